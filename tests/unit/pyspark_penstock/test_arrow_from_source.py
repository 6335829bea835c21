"""Without a C compiler the same loops run as Python, with the same rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.wire.build import compiled_modules

HERE = Path(__file__).parent
PLUGIN = HERE.parent / "wire"


def test_columns_are_the_same_without_a_compiler() -> None:
    if not any(compiled_modules().values()):
        pytest.skip("nothing is compiled here: the tests ran from source")
    program = [sys.executable, "-m", "pytest", "-q", "-p", "source_only", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*program, str(HERE / "test_arrow_columns.py")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        cwd=HERE.parents[2],
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
