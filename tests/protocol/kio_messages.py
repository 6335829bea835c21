"""Random messages of any API and version: kio's, and ours with the same values."""

import dataclasses
import datetime
import importlib
import io
import random
import types
import typing
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.constants import EntityType

from penstock.wire.api.table import TABLE
from penstock.wire.primitives import Message

MESSAGES_PER_VERSION = 6
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# kio calls a missing time None; on the wire it is -1.
MISSING_TIME = -1
SIDES = ("request", "response")
INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def versions_and_sides(key: int) -> Iterator[tuple[int, str]]:
    for version in range(TABLE[key].version_min, TABLE[key].version_max + 1):
        for side in SIDES:
            yield version, side


def our_module(key: int) -> types.ModuleType:
    return importlib.import_module(f"penstock.wire.api.{TABLE[key].module}")


def kio_class(key: int, version: int, side: str) -> Any:
    module = importlib.import_module(f"kio.schema.{TABLE[key].module}.v{version}.{side}")
    classes = [value for value in vars(module).values() if dataclasses.is_dataclass(value)]
    (found,) = [cls for cls in classes if getattr(cls, "__type__", None) is EntityType[side]]
    return found


class RandomMessages:
    """kio's messages, filled at random; the first is as small as can be, the second as full."""

    def __init__(self, seed: int) -> None:
        self.randomness = random.Random(seed)
        self.fill = 0.5

    def message(self, cls: Any, fill: float) -> Any:
        self.fill = fill
        return self.entity(cls)

    def entity(self, cls: Any) -> Any:
        return cls(**{field.name: self.value(field) for field in dataclasses.fields(cls)})

    def value(self, field: Any) -> Any:
        annotation, nullable = unwrapped(field.type)
        is_array = typing.get_origin(annotation) is tuple
        tagged = "tag" in field.metadata
        if tagged and self.randomness.random() > self.fill and field.default is not dataclasses.MISSING:
            return field.default
        if nullable and (not tagged or is_array) and self.randomness.random() > self.fill:
            return None
        if is_array:
            item = unwrapped(typing.get_args(annotation)[0])[0]
            count = self.randomness.randrange(4) if self.fill else 0
            return tuple(self.single(item, field.metadata.get("kafka_type")) for _ in range(count))
        return self.single(annotation, field.metadata.get("kafka_type"))

    def single(self, annotation: Any, kind: str | None) -> Any:
        randomness = self.randomness
        if kind is None:
            return self.entity(annotation)
        if kind in INTEGERS:
            bits = randomness.randrange(INTEGERS[kind] + 1)
            return randomness.choice((-1, 1)) * randomness.getrandbits(bits) if bits else 0
        match kind:
            case "uint16":
                return randomness.getrandbits(16)
            case "bool":
                return randomness.random() < 0.5
            case "float64":
                return randomness.uniform(-1e300, 1e300)
            case "string":
                return "".join(randomness.choice("abcxyz.-_é中😀") for _ in range(randomness.choice((0, 1, 5, 150))))
            case "bytes" | "records":
                return randomness.randbytes(randomness.choice((0, 1, 7, 300)))
            case "uuid":
                return uuid.UUID(bytes=randomness.randbytes(16))
            case "error_code":
                return randomness.choice(list(ErrorCode))
            case "timedelta_i32":
                return datetime.timedelta(milliseconds=randomness.randrange(-(2**31), 2**31))
            case "timedelta_i64":
                return datetime.timedelta(milliseconds=randomness.randrange(-(2**40), 2**40))
            case "datetime_i64":
                return EPOCH + datetime.timedelta(milliseconds=randomness.randrange(2**40))
        raise AssertionError(kind)


def unwrapped(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) is types.UnionType:
        (inner,) = [arg for arg in typing.get_args(annotation) if arg is not types.NoneType]
        return inner, True
    return annotation, False


def as_ours(module: types.ModuleType, side: str, entity: Any) -> Message:
    """Our message with the same values."""
    name = type(entity).__name__
    if entity.__type__ is EntityType[side]:
        cls = getattr(module, side.capitalize())
    else:
        cls = getattr(module, f"{side.capitalize()}{name}", None) or getattr(module, name)
    values = {}
    for field in dataclasses.fields(entity):
        kind = field.metadata.get("kafka_type")
        value = getattr(entity, field.name)
        is_array = "tuple" in str(field.type)
        value = None if value is None and is_array else our_value(module, side, value, kind)
        timed = kind is not None and kind.startswith(("timedelta", "datetime"))
        values[f"{field.name}_ms" if timed else field.name] = value
    return cls(**values)


def our_value(module: types.ModuleType, side: str, value: Any, kind: str | None) -> Any:
    if isinstance(value, tuple):
        return [our_value(module, side, item, kind) for item in value]
    if value is None:
        return {"uuid": bytes(16), "datetime_i64": MISSING_TIME}.get(kind or "")
    if dataclasses.is_dataclass(value):
        return as_ours(module, side, value)
    match value:
        case uuid.UUID():
            return value.bytes
        case ErrorCode():
            return int(value.value)
        case datetime.timedelta():
            return value // datetime.timedelta(milliseconds=1)
        case datetime.datetime():
            return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    return value


def kio_bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def random_entities(key: int, version: int, side: str) -> list[Any]:
    source = RandomMessages(zlib.crc32(f"{key} {version} {side}".encode()))
    cls = kio_class(key, version, side)
    return [source.message(cls, fill) for fill in (0.0, 1.0, *[0.6] * (MESSAGES_PER_VERSION - 2))]
