"""numpy, pyarrow and fastavro as Any: their own types are partial or missing, and what leaves this package is typed.

``pyarrow.array`` imports pandas, which takes a worker's first task most of a second: readers make arrays with
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
