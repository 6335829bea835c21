"""The double that a number's text stands for, rounded correctly.

Compiled modules take what ``float_text.pxd`` has instead, which makes no object.
"""

from __future__ import annotations

from penstock.wire.primitives import Buffer

POWER_MAX = 27
"""Of the powers of ten that `scaled` takes; the least is as far from 0."""


def scaled(mantissa: int, power: int) -> float:
    """A mantissa that is not 0 and fits 64 bits, times a power of ten; -1 where the text has to be parsed."""
    return -1.0


def parsed(data: Buffer, pos: int, size: int) -> float:
    """Of at most 63 bytes that are a JSON number; infinite where it is too large."""
    return float(bytes(data[pos : pos + size]))
