"""When the garbage of a simulation is collected: once, after it.

The collector would walk everything that the process has imported, again and again, while a simulation makes few cycles
and takes a second or two. What a simulation does must not depend on when garbage is collected, so this changes nothing
but its speed.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collected_after() -> Generator[None]:
    """Collect nothing until the end of the block, and then only what was made in it."""
    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if enabled:
            gc.enable()
