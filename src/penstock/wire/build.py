"""Which modules are compiled and which run as Python."""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

COMPILABLE = (
    "penstock.wire.column_batches",
    "penstock.wire.commit",
    "penstock.wire.fetch",
    "penstock.wire.frame",
    "penstock.wire.json_columns",
    "penstock.wire.primitives",
    "penstock.wire.produce",
    "penstock.wire.record_blobs",
    "penstock.wire.record_loops",
)
"""The modules that setup.py compiles if it finds a compiler."""


def compiled_modules() -> dict[str, bool]:
    """Each module that can be compiled, and whether it is."""
    return {name: is_compiled(name) for name in COMPILABLE}


def is_compiled(name: str) -> bool:
    """Whether this module is compiled."""
    spec = find_spec(name)
    assert spec is not None, f"{name} is not there"
    origin = spec.origin or ""
    return any(origin.endswith(suffix) for suffix in EXTENSION_SUFFIXES)
