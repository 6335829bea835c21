"""Reads the members of a JSON value that a filter names, and builds nothing of the rest.

msgspec decodes into classes made of the filter's paths, and skips what they do not have. A value of another shape, say
a text where a path goes on, is decoded as a whole; both ways give the same results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, cast

import msgspec

from penstock.views.rows import UNREAD, Parts

Path = tuple[str | int, ...]

UNUSUAL = re.compile(r'[\x00-\x1f"\\]')

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no JSON, or nested too deep."""


class Member:
    """A member that paths lead to or through."""

    def __init__(self) -> None:
        self.members: dict[str | int, Member] = {}
        self.is_read = False
        """Whether a path ends here."""

    def add(self, path: Path) -> None:
        here = self
        for part in path:
            here = here.members.setdefault(part, Member())
        here.is_read = True

    @property
    def is_whole(self) -> bool:
        """Whether it is decoded as it is: it is read itself, or a path goes on through an array or an odd name."""
        return self.is_read or not self.members or not all(map(is_usual, self.members))


def is_usual(part: str | int) -> bool:
    """Whether a part is a name that a class of msgspec can have: JSON may escape the others."""
    return isinstance(part, str) and not UNUSUAL.search(part)


class Documents:
    """The JSON values of records, as far as the paths of one filter go."""

    def __init__(self, paths: Iterable[Sequence[str | int]]) -> None:
        self._root = Member()
        for path in paths:
            self._root.add(tuple(path))
        self._shape = None if self._root.is_whole else shape_of(self._root)
        self._decode: Callable[[bytes], Any] = (
            msgspec.json.Decoder() if self._shape is None else msgspec.json.Decoder(self._shape)
        ).decode
        self._decode_whole: Callable[[bytes], Any] = msgspec.json.Decoder().decode

    def getter(self, path: Sequence[str | int]) -> Callable[[Parts], Any]:
        """Reads what is at a path of a record's value: None where nothing is, or NULL."""
        load = self._load
        if self._shape is None:
            parts = tuple(path)
            return lambda row: at_path(load(row) if row.document is UNREAD else row.document, parts)
        attributes: list[str] = []
        here = self._root
        rest = list(path)
        while rest and not here.is_whole:
            attributes.append(attribute_of(here, rest[0]))
            here = here.members[rest.pop(0)]
        if not rest and len(attributes) == 1:
            [single] = attributes
            get_single = attrgetter(single)

            def top(row: Parts) -> Any:
                document = row.document
                return get_single(load(row) if document is UNREAD else document)

            return top
        get, remaining = attrgetter(".".join(attributes)), tuple(rest)

        def inner(row: Parts) -> Any:
            document = row.document
            try:
                found = get(load(row) if document is UNREAD else document)
            except AttributeError:
                # A member on the way is missing, or NULL.
                return None
            return at_path(found, remaining) if remaining else found

        return inner

    def _load(self, row: Parts) -> Any:
        """Decode the value of a record; what is no JSON has no members, and is noted."""
        value = row.value_bytes()
        found: Any = None
        if value is not None:
            try:
                found = self._decode(value)
            except msgspec.ValidationError:
                found = self._of_another_shape(row, value)
            except UNDECODABLE:
                row.undecodable = True
        if found is None and self._shape is not None:
            found = self._shape()
        row.document = found
        return found

    def _of_another_shape(self, row: Parts, value: bytes) -> Any:
        try:
            whole = self._decode_whole(value)
        except UNDECODABLE:
            row.undecodable = True
            return None
        return None if self._shape is None else shaped(self._root, self._shape, whole)


def attribute_of(member: Member, part: str | int) -> str:
    """The attribute of a member's class that holds a part."""
    return f"m{list(member.members).index(part)}"


def shape_of(member: Member) -> Any:
    """A class with the members that are read, each None where the JSON lacks it."""
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for part, inner in member.members.items():
        attribute = attribute_of(member, part)
        names[attribute] = str(part)
        inner_type = Any if inner.is_whole else shape_of(inner) | None
        fields.append((attribute, inner_type, None))
    return msgspec.defstruct("Document", fields, rename=names, gc=False)


def shaped(member: Member, shape: Any, found: Any) -> Any:
    """A value that was decoded as a whole, as an instance of a shape; None where it is no object."""
    if not isinstance(found, dict):
        return None
    whole = cast("dict[str, Any]", found)
    values: dict[str, Any] = {}
    types = {field.name: field.type for field in msgspec.structs.fields(shape)}
    for part, inner in member.members.items():
        attribute = attribute_of(member, part)
        value = whole.get(str(part))
        if value is not None and not inner.is_whole:
            [inner_shape] = [each for each in types[attribute].__args__ if each is not type(None)]
            value = shaped(inner, inner_shape, value)
        values[attribute] = value
    return shape(**values)


def at_path(found: Any, path: Path) -> Any:
    """What is at a path of a decoded value: None where a part is missing or of another type."""
    here = found
    for part in path:
        kind: object = here.__class__
        if type(part) is int:
            if kind is not list or part >= len(here):
                return None
            here = here[part]
        elif kind is dict:
            here = here.get(part)
        else:
            return None
    return here
