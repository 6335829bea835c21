"""A pytest plugin: import the modules that can be compiled from their source, as without a compiler."""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import penstock.wire
from penstock.wire.build import COMPILABLE

WIRE = Path(penstock.wire.__file__).parent


class SourceOnly(MetaPathFinder):
    """Finds the .py where a compiled module beside it would come first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in COMPILABLE:
            return None
        return importlib.util.spec_from_file_location(fullname, WIRE / f"{fullname.rpartition('.')[2]}.py")


sys.meta_path.insert(0, SourceOnly())
