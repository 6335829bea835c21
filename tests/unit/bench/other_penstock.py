"""A penstock that is not this one, for tests of a benchmark with two of them."""

import sys
from pathlib import Path


def other_penstock(root: Path) -> Path:
    """A checkout with a penstock that only has its location, and a Python that has it installed."""
    package = root / "src" / "penstock"
    (package / "broker").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "broker" / "__init__.py").write_text("")
    (package / "broker" / "__main__.py").write_text("print('broker of', __file__)\nraise SystemExit(3)\n")
    (root / "setup.py").write_text("COMPILED = ()\n")
    python = root / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={root}/src exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python
