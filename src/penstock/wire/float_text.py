"""Parses the text of a double, rounded correctly.

Compiled modules use the functions of ``float_text.pxd`` instead, which create no object.
"""

from __future__ import annotations

from penstock.wire.primitives import Buffer

POWER_MAX = 27
"""Of the powers of ten that `scaled` takes; the least is as far from 0."""


def scaled(mantissa: int, power: int) -> float:
    """A 64-bit mantissa other than 0, times a power of ten; -1 if the text has to be parsed."""
    return -1.0


def parsed(data: Buffer, pos: int, size: int) -> float:
    """Of at most 63 bytes that are a JSON number; infinite where it is too large."""
    return float(bytes(data[pos : pos + size]))
