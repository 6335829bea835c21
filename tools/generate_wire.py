"""Write the codec of every API from kio's schema, or check that the files are up to date.

python tools/generate_wire.py            write src/penstock/wire/api/
python tools/generate_wire.py --check    name the stale files and exit 1 if there are any
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from wire_emit import ModuleSource, table_text
from wire_schema import read_apis

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "src" / "penstock" / "wire" / "api"
KEPT = frozenset({"__init__.py"})


def sources() -> dict[str, str]:
    """Every generated file's text by its name, formatted."""
    apis = read_apis()
    texts = {f"{api.module}.py": ModuleSource(api).text() for api in apis}
    texts["table.py"] = table_text(apis)
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in texts.items():
            Path(scratch, name).write_text(text)
        ruff = [
            sys.executable,
            "-m",
            "ruff",
            "format",
            "--quiet",
            "--no-cache",
            "--config",
            str(ROOT / "pyproject.toml"),
        ]
        subprocess.run([*ruff, scratch], check=True)
        return {name: Path(scratch, name).read_text() for name in texts}


def stale(texts: dict[str, str], output: Path) -> list[str]:
    """The files whose text differs, missing files, and files that are no longer generated."""
    present = {path.name: path.read_text() for path in output.glob("*.py") if path.name not in KEPT}
    return sorted(name for name in texts.keys() | present.keys() if texts.get(name) != present.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the files that are stale")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the modules are")
    arguments = parser.parse_args()
    texts = sources()
    names = stale(texts, arguments.output)
    if arguments.check:
        for name in names:
            print(f"stale: {arguments.output.name}/{name} (run python tools/generate_wire.py)")
        return 1 if names else 0
    for name in names:
        path = arguments.output / name
        if name in texts:
            path.write_text(texts[name])
        else:
            path.unlink()
    print(f"{len(texts)} files, {len(names)} of them changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
