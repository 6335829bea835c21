"""Small JSON files in a partition's directory, with a checksum: damaged JSON may still be JSON."""

import json
from typing import Any, cast

from fastcrc.crc32 import iscsi as crc32c

CHECKSUM = "crc32c"


class NoteDamaged(ValueError):
    """A note is damaged."""


def encode(fields: dict[str, Any]) -> bytes:
    return json.dumps({**fields, CHECKSUM: checksum(fields)}, indent=1).encode()


def decode(data: bytes) -> dict[str, Any]:
    """The fields of a note; `NoteDamaged` when it is not as it was written. Earlier versions wrote no checksum."""
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NoteDamaged(str(error)) from error
    if not isinstance(found, dict):
        raise NoteDamaged("it is no JSON object")
    fields = cast("dict[str, Any]", found)
    if CHECKSUM in fields and fields.pop(CHECKSUM) != checksum(fields):
        raise NoteDamaged("wrong checksum")
    return fields


def checksum(fields: dict[str, Any]) -> str:
    return f"{crc32c(json.dumps(fields, sort_keys=True).encode()):08x}"
