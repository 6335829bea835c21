"""The codec passes the same tests compiled and as plain Python."""

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.wire.build import COMPILABLE, compiled_modules

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def test_build_lists_the_modules_that_setup_compiles() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text())
    (compiled,) = [
        ast.literal_eval(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "COMPILED"
        if node.value is not None
    ]

    assert compiled == COMPILABLE == tuple(compiled_modules())


def test_the_modules_are_compiled_all_or_none() -> None:
    assert len(set(compiled_modules().values())) == 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_same_tests_pass_from_source() -> None:
    if not any(compiled_modules().values()):
        pytest.skip("nothing is compiled here: the tests ran from source")
    protocol = ROOT / "tests" / "protocol"
    tests = [
        path for path in HERE.glob("test_wire_*.py") if path.name not in (Path(__file__).name, "test_wire_generator.py")
    ]
    tests += [protocol / "test_codec_oracles.py", protocol / "test_codec_robustness.py"]
    check = "from penstock.wire import build; assert not any(build.compiled_modules().values())"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}

    plain = subprocess.run([sys.executable, "-c", f"import source_only; {check}"], env=environment, check=False)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "source_only", "-p", "no:cacheprovider", *map(str, tests)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )

    assert plain.returncode == 0
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]


@pytest.mark.parametrize("name", COMPILABLE)
def test_a_compiled_module_is_not_older_than_its_source(name: str) -> None:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    source = ROOT / "src" / Path(*name.split("."))

    newest = max(source.with_suffix(suffix).stat().st_mtime for suffix in (".py", ".pxd"))

    assert Path(spec.origin).stat().st_mtime >= newest or not compiled_modules()[name], (
        f"{name} was changed after it was compiled: run python setup.py build_ext --inplace"
    )
