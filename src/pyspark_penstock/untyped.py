"""numpy, pyarrow and fastavro as Any: their own types are partial or missing.

``pyarrow.array`` imports pandas, which costs a worker's first task most of a second: readers use
``Array.from_buffers``.
"""

from importlib import import_module
from typing import Any

numpy: Any = import_module("numpy")
pyarrow: Any = import_module("pyarrow")
compute: Any = import_module("pyarrow.compute")


def fastavro() -> Any:
    """Imported when a query reads Avro."""
    return import_module("fastavro")
