"""A generated module per API. `from penstock.wire.api import metadata` executes the module at its first use.

A broker imports the modules of all its handlers at the start, and its clients use a few of them.
"""

import sys
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

LOADING = RLock()


class LazyModule(ModuleType):
    """A module that has not been executed yet. Unlike `importlib.util.LazyLoader`'s, threads may race to use it."""

    def __getattr__(self, name: str) -> Any:
        with LOADING:
            if type(self) is LazyModule:
                assert self.__spec__ is not None
                assert self.__spec__.loader is not None
                self.__spec__.loader.exec_module(self)
                # A plain module from here on: lookups in one are faster.
                object.__setattr__(self, "__class__", ModuleType)
        return getattr(self, name)


def lazy(name: str) -> ModuleType:
    """The module of an API, not executed yet."""
    spec = None if name.startswith("_") else find_spec(f"{__name__}.{name}")
    if spec is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with LOADING:
        made: ModuleType | None = globals().get(name)
        if made is None:
            made = module_from_spec(spec)
            made.__class__ = LazyModule
            globals()[name] = sys.modules[spec.name] = made
    return made


if not TYPE_CHECKING:
    # Type checkers find the modules by themselves, and the names that are none.
    __getattr__ = lazy
