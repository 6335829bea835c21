"""Reads the protocol's schema from kio's dataclasses, a class per message and version, into a model per message."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import uuid
from pathlib import Path
from types import EllipsisType, NoneType, UnionType
from typing import Any, get_args, get_origin

import kio.schema
from kio.static.constants import EntityType

from wire_facts import NEVER_DROPPED, NOT_GENERATED

ZERO_UUID = bytes(16)
PRIMITIVES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
IMPLICIT: dict[str, object] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
    "bool": False,
    "float64": 0.0,
}


@dataclasses.dataclass(kw_only=True)
class Field:
    """A field in every version that has it."""

    name: str
    kind: str
    struct: str | None
    array: bool
    tag: int | None
    versions: set[int]
    nullable: set[int]
    tagged: set[int]
    default: object
    is_error: bool = False
    ignorable: bool = True


@dataclasses.dataclass(kw_only=True)
class Struct:
    name: str
    versions: set[int]
    fields: list[Field]


@dataclasses.dataclass(kw_only=True)
class Message:
    """A request or a response: its own fields, and the structs in them, inner ones first."""

    root: Struct
    structs: list[Struct]


@dataclasses.dataclass(kw_only=True)
class Api:
    module: str
    key: int
    name: str
    versions: range
    flexible_from: int | None
    request: Message
    response: Message


def read_apis() -> list[Api]:
    """Every API that is generated, by key."""
    root = Path(kio.schema.__path__[0])
    names = sorted(entry.name for entry in pkgutil.iter_modules([str(root)]) if entry.ispkg)
    apis = [read_api(root, name) for name in names if (root / name / last_version(root, name) / "request.py").exists()]
    return sorted((api for api in apis if api.name not in NOT_GENERATED), key=lambda api: api.key)


def last_version(root: Path, name: str) -> str:
    return f"v{max(versions_of(root, name))}"


def versions_of(root: Path, name: str) -> list[int]:
    return sorted(int(entry.name[1:]) for entry in pkgutil.iter_modules([str(root / name)]))


def read_api(root: Path, name: str) -> Api:
    versions = versions_of(root, name)
    assert versions == list(range(versions[0], versions[-1] + 1)), f"{name} skips a version"
    requests = {version: root_class(name, version, "request") for version in versions}
    responses = {version: root_class(name, version, "response") for version in versions}
    last = requests[versions[-1]]
    flexible = [version for version, cls in requests.items() if cls.__flexible__]
    return Api(
        module=name,
        key=int(last.__api_key__),
        name=last.__name__.removesuffix("Request"),
        versions=range(versions[0], versions[-1] + 1),
        flexible_from=min(flexible, default=None),
        request=read_message(requests, "Request"),
        response=read_message(responses, "Response"),
    )


def root_class(name: str, version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    found = [
        value
        for value in vars(module).values()
        if dataclasses.is_dataclass(value) and getattr(value, "__module__", "") == module.__name__
    ]
    (root,) = [value for value in found if getattr(value, "__type__", None) is EntityType[kind]]
    return root


def read_message(classes: dict[int, Any], root_name: str) -> Message:
    structs: dict[str, Struct] = {}
    message = next(iter(classes.values())).__name__
    for version, cls in classes.items():
        read_struct(structs, cls, version, message, root_name)
    for struct in structs.values():
        for field in struct.fields:
            field.ignorable = f"{message}.{struct.name}.{field.name}" not in NEVER_DROPPED
    root = structs.pop(root_name)
    return Message(root=root, structs=list(structs.values()))


def read_struct(structs: dict[str, Struct], cls: Any, version: int, message: str, name: str) -> None:
    fields = [read_field(field, version) for field in dataclasses.fields(cls)]
    for field, source in zip(fields, dataclasses.fields(cls), strict=True):
        if field.struct is not None:
            read_struct(structs, entity_of(source.type), version, message, field.struct)
    struct = structs.setdefault(name, Struct(name=name, versions=set(), fields=[]))
    struct.versions.add(version)
    merge(struct, fields, version)


def entity_of(annotation: Any) -> Any:
    if dataclasses.is_dataclass(annotation):
        return annotation
    for inner in get_args(annotation):
        if inner not in (NoneType, Ellipsis):
            return entity_of(inner)
    raise AssertionError(annotation)


def merge(struct: Struct, fields: list[Field], version: int) -> None:
    """Merge one version's fields into those of the others, each new field before its next known neighbour."""
    known = {field.name: field for field in struct.fields}
    for place, field in enumerate(fields):
        old = known.get(field.name)
        if old is None:
            following = (known[later.name] for later in fields[place:] if later.name in known)
            before = next(following, None)
            struct.fields.insert(len(struct.fields) if before is None else struct.fields.index(before), field)
            continue
        assert (old.kind, old.struct, old.array) == (field.kind, field.struct, field.array), (struct.name, field)
        old.versions.add(version)
        old.nullable |= field.nullable
        old.tagged |= field.tagged
        old.tag = field.tag if field.tag is not None else old.tag
        old.default = field.default
    order = [field.name for field in struct.fields]
    places = [order.index(field.name) for field in fields]
    assert places == sorted(places), f"{struct.name} changes the order of its fields in version {version}"


def read_field(field: dataclasses.Field[Any], version: int) -> Field:
    annotation: Any = field.type
    nullable = False
    if get_origin(annotation) is UnionType:
        (annotation,) = [inner for inner in get_args(annotation) if inner is not NoneType]
        nullable = True
    array = get_origin(annotation) is tuple
    if array:
        annotation, rest = get_args(annotation)
        assert rest is EllipsisType or rest is Ellipsis
    kafka_type = field.metadata.get("kafka_type")
    kind = "struct" if kafka_type is None else PRIMITIVES.get(kafka_type, kafka_type)
    # For kio a missing time is None and the zero uuid is None; on the wire both are plain values.
    if not array and (kind == "uuid" or kafka_type == "datetime_i64"):
        nullable = False
    tag = field.metadata.get("tag")
    return Field(
        name=kafka_name(field.name, kafka_type),
        kind=kind,
        struct=annotation.__name__ if kind == "struct" else None,
        array=array,
        tag=tag,
        versions={version},
        nullable={version} if nullable else set(),
        tagged=set() if tag is None else {version},
        default=default_of(field, kind, array, kafka_type),
        is_error=kafka_type == "error_code",
    )


def kafka_name(name: str, kafka_type: str | None) -> str:
    """kio drops the unit from the names of times."""
    timed = kafka_type is not None and kafka_type.startswith(("timedelta", "datetime"))
    return f"{name}_ms" if timed and not name.endswith("_ms") else name


def default_of(field: dataclasses.Field[Any], kind: str, array: bool, kafka_type: str | None) -> object:
    value = field.default
    if value is dataclasses.MISSING:
        if array:
            return []
        return None if kind == "struct" else IMPLICIT.get(kind, 0)
    if array:
        return None if value is None else []
    match value:
        case None if kind == "uuid":
            return ZERO_UUID
        case None if kafka_type == "datetime_i64":
            return -1
        case None | bool() | float() | str() | bytes():
            return value
        case uuid.UUID():
            return value.bytes
        case int():
            return int(value)
    if dataclasses.is_dataclass(value):
        return None
    return round(value.total_seconds() * 1000)
