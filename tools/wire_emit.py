"""Generates the Python module that reads and writes an API from its schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from wire_schema import ZERO_UUID, Api, Field, Message, Struct

FIXED = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "float64": ("d", 8),
    "bool": ("?", 1),
}
METHOD = {"bool": "boolean", "bytes": "raw"}
PYTHON = {"float64": "float", "bool": "bool", "string": "str", "bytes": "bytes", "records": "Buffer", "uuid": "bytes"}
NOTICE = '"""{name} (API key {key}), versions {first} to {last}. Written by tools/generate_wire.py; do not edit."""'


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def condition(has: set[int], among: set[int]) -> str | None:
    """The test for ``has`` when the version is known to be one of ``among``; None when it always holds."""
    if has == among:
        return None
    spans: list[str] = []
    ordered = sorted(among)
    for inside, run in groupby(ordered, key=lambda version: version in has):
        versions = list(run)
        if not inside:
            continue
        first, last = versions[0], versions[-1]
        if first == ordered[0]:
            spans.append(f"v <= {last}")
        elif last == ordered[-1]:
            spans.append(f"v >= {first}")
        else:
            spans.append(f"v == {first}" if first == last else f"{first} <= v <= {last}")
    return " or ".join(spans)


def literal(value: object) -> str:
    if value == ZERO_UUID:
        return "ZERO_UUID"
    return repr(value)


class ModuleSource:
    """One module's text, and the names that it imports."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.layouts: dict[str, str] = {}
        self.renamed: dict[tuple[str, str], str] = {}
        self.shared: set[str] = set()
        self.name_structs()

    def name_structs(self) -> None:
        """Two structs of one name get their side's name in front, unless they are the same struct."""
        request = {struct.name: struct for struct in self.api.request.structs}
        response = {struct.name: struct for struct in self.api.response.structs}
        differ = {name for name in request.keys() & response.keys() if not self.same(request, response, name)}
        self.shared = (request.keys() & response.keys()) - differ
        for name in differ:
            self.renamed["Request", name] = f"Request{name}"
            self.renamed["Response", name] = f"Response{name}"

    def same(self, request: dict[str, Struct], response: dict[str, Struct], name: str) -> bool:
        if request[name] != response[name]:
            return False
        inner = [field.struct for field in request[name].fields if field.struct is not None]
        return all(self.same(request, response, struct) for struct in inner)

    def text(self) -> str:
        api = self.api
        body = [*self.side(api.request, "Request", skip=set()), *self.side(api.response, "Response", skip=self.shared)]
        body += self.functions()
        lines = [
            NOTICE.format(name=api.name, key=api.key, first=api.versions[0], last=api.versions[-1]),
            "",
            "from __future__ import annotations",
            "",
            "from struct import Struct",
            "",
            "from penstock.wire.primitives import "
            "ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range",
            "",
            f"API_KEY = {api.key}",
            f"NAME = {api.name!r}",
            f"VERSION_MIN = {api.versions[0]}",
            f"VERSION_MAX = {api.versions[-1]}",
            f"FLEXIBLE_FROM: int | None = {api.flexible_from}",
            "",
            *(f'{name} = Struct(">{codes}")' for codes, name in sorted(self.layouts.items())),
            *body,
        ]
        return prune_imports("\n".join(lines) + "\n")

    def side(self, message: Message, side: str, skip: set[str]) -> Iterator[str]:
        for struct in [*message.structs, message.root]:
            if struct.name in skip:
                continue
            yield from self.type(struct, side)
        for struct in [*message.structs, message.root]:
            if struct.name in skip:
                continue
            yield from self.reader(struct, side)
            yield from self.writer(struct, side)

    def class_name(self, name: str, side: str) -> str:
        return self.renamed.get((side, name), name)

    def suffix(self, name: str, side: str) -> str:
        return snake(self.class_name(name, side))

    # The class.

    def annotation(self, field: Field, side: str) -> str:
        inner = self.class_name(field.struct, side) if field.struct is not None else PYTHON.get(field.kind, "int")
        if field.array:
            inner = f"list[{inner}]"
        return f"{inner} | None" if self.optional(field) else inner

    @staticmethod
    def optional(field: Field) -> bool:
        return bool(field.nullable) or (field.default is None and field.kind not in ("struct", "bytes"))

    def type(self, struct: Struct, side: str) -> Iterator[str]:
        yield from ("", "", f"class {self.class_name(struct.name, side)}(Message):")
        names = ", ".join(repr(field.name) for field in struct.fields)
        yield f"    __slots__ = ({names}{',' if len(struct.fields) == 1 else ''})"
        if side == "Response":
            yield from self.error_fields(struct)
        if not struct.fields:
            return
        yield ""
        parameters = ", ".join(self.parameter(field, side) for field in struct.fields)
        yield f"    def __init__(self, *, {parameters}) -> None:"
        for field in struct.fields:
            yield f"        self.{field.name}{self.assignment(field, side)}"

    def error_fields(self, struct: Struct) -> Iterator[str]:
        """The fields with error codes, for metrics: the struct's own, and lists whose elements have some at any
        depth."""
        codes = [field.name for field in struct.fields if field.is_error]
        assert len(codes) <= 1, f"{struct.name} has several error codes"
        if codes:
            yield f"    ERROR_FIELD = {codes[0]!r}"
        inner = [field for field in struct.fields if field.struct is not None and self.has_errors(field.struct)]
        assert all(field.array for field in inner), f"{struct.name} has a struct with an error code"
        if inner:
            names = ", ".join(repr(field.name) for field in inner)
            yield f"    ERROR_LISTS = ({names}{',' if len(inner) == 1 else ''})"

    def has_errors(self, name: str) -> bool:
        (struct,) = [struct for struct in self.api.response.structs if struct.name == name]
        return any(
            field.is_error or (field.struct is not None and self.has_errors(field.struct)) for field in struct.fields
        )

    def parameter(self, field: Field, side: str) -> str:
        annotation = self.annotation(field, side)
        if field.array and field.default is not None:
            item = annotation.removesuffix(" | None")[5:-1]
            null = " | None" if self.optional(field) else ""
            return f"{field.name}: list[{item}] | tuple[{item}, ...]{null} = ()"
        if field.kind == "struct" and not field.array:
            return f"{field.name}: {annotation.removesuffix(' | None')} | None = None"
        return f"{field.name}: {annotation} = {literal(field.default)}"

    def assignment(self, field: Field, side: str) -> str:
        name = field.name
        if field.array and field.default is not None:
            return f": {self.annotation(field, side)} = list({name}) if isinstance({name}, tuple) else {name}"
        if field.kind == "struct" and not field.array and not field.nullable:
            return f" = {self.class_name(field.struct or '', side)}() if {name} is None else {name}"
        return f" = {name}"

    def default(self, field: Field, side: str) -> str:
        """The default as an expression."""
        if field.kind == "struct" and not field.array and not field.nullable:
            return f"{self.class_name(field.struct or '', side)}()"
        return literal(field.default)

    def differs(self, field: Field, side: str) -> str:
        """The test for a value that is not the default."""
        name = f"m.{field.name}"
        if field.default is None and (field.nullable or field.kind != "struct"):
            return f"{name} is not None"
        if field.default is False or (field.default in ([], "", b"") and not field.nullable):
            return name
        return f"not {name}" if field.default is True else f"{name} != {self.default(field, side)}"

    # Reading.

    def layout(self, fields: list[Field]) -> str:
        codes = "".join(FIXED[field.kind][0] for field in fields)
        return self.layouts.setdefault(codes, "_" + codes.replace("?", "t").replace("H", "uh"))

    def reader(self, struct: Struct, side: str) -> Iterator[str]:
        name = self.class_name(struct.name, side)
        yield from ("", "", f"def _read_{snake(name)}(r: Reader, v: int) -> {name}:")
        yield f"    m = {name}.__new__({name})"
        for fields, test in groups(struct):
            reads = [line for run in runs(fields) for line in self.read_run(run, side)]
            yield from indent(test, reads, self.defaults(fields, side))
        tagged = [field for field in struct.fields if field.tagged]
        for field in tagged:
            yield f"    m.{field.name} = {self.default(field, side)}"
        yield from self.read_tags(tagged, struct, side)
        yield "    return m"

    def defaults(self, fields: list[Field], side: str) -> list[str]:
        return [f"m.{field.name} = {self.default(field, side)}" for field in fields]

    def read_run(self, fields: list[Field], side: str) -> Iterator[str]:
        if len(fields) > 1:
            yield f"{', '.join(f'm.{field.name}' for field in fields)} = r.fixed({self.layout(fields)})"
            return
        yield f"m.{fields[0].name} = {self.read_value(fields[0], fields[0].versions, side)}"

    def read_value(self, field: Field, versions: set[int], side: str) -> str:
        if field.nullable and field.nullable != versions:
            test = condition(field.nullable, versions)
            return f"{self.read_call(field, True, side)} if {test} else {self.read_call(field, False, side)}"
        return self.read_call(field, bool(field.nullable), side)

    def read_call(self, field: Field, nullable: bool, side: str) -> str:
        null = "_nullable" if nullable else ""
        if field.kind == "struct":
            read = f"_read_{self.suffix(field.struct or '', side)}"
            if field.array:
                return f"r.array{null}({read}, v, {self.size_min(field.struct or '', side)})"
            return f"{read}(r, v) if r.present() else None" if nullable else f"{read}(r, v)"
        if field.array and field.kind in FIXED:
            code, size = FIXED[field.kind]
            return f"r.integers{null}({code!r}, {size})"
        if field.kind == "records":
            return "r.view_nullable()"
        method = METHOD.get(field.kind, field.kind)
        return f"r.{method}{'s' if field.array else ''}{null}()"

    def read_tags(self, tagged: list[Field], struct: Struct, side: str) -> Iterator[str]:
        start = self.api.flexible_from
        if start is None or max(struct.versions) < start:
            return
        if not tagged:
            yield "    r.skip_tags()"
            return
        yield "    for tag, end in r.tagged():"
        word = "if"
        for field in tagged:
            test = condition(field.tagged, {version for version in struct.versions if version >= start})
            yield f"        {word} tag == {field.tag}{f' and {test}' if test else ''}:"
            yield f"            m.{field.name} = {self.read_value(field, field.tagged, side)}"
            word = "elif"
        yield "        else:"
        yield "            r.pos = end"

    def size_min(self, name: str, side: str) -> int:
        """The fewest bytes that this struct takes in any version."""
        message = self.api.request if side == "Request" else self.api.response
        (struct,) = [struct for struct in message.structs if struct.name == name]
        return max(1, min(self.size_in(struct, version, side) for version in struct.versions))

    def size_in(self, struct: Struct, version: int, side: str) -> int:
        flexible = self.api.flexible_from is not None and version >= self.api.flexible_from
        size = 1 if flexible else 0
        for field in struct.fields:
            if version not in field.versions or version in field.tagged:
                continue
            if field.array:
                size += 1 if flexible else 4
            elif field.kind in FIXED:
                size += FIXED[field.kind][1]
            elif field.kind == "uuid":
                size += 16
            elif field.kind == "struct":
                inner = 1 if version in field.nullable else self.size_min(field.struct or "", side)
                size += inner
            else:
                size += 1 if flexible else 2 if field.kind == "string" else 4
        return size

    # Writing.

    def writer(self, struct: Struct, side: str) -> Iterator[str]:
        name = self.class_name(struct.name, side)
        yield from ("", "", f"def _write_{snake(name)}(w: Writer, m: {name}, v: int) -> None:")
        for fields, test in groups(struct):
            writes = [line for run in runs(fields) for line in self.write_run(run, side)]
            yield from indent(test, writes, list(self.refusals(fields, side)))
        tagged = [field for field in struct.fields if field.tagged]
        yield from self.write_tags(tagged, struct, side)
        start = self.api.flexible_from
        if not tagged and (start is None or max(struct.versions) < start) and not struct.fields:
            yield "    pass"

    def refusals(self, fields: list[Field], side: str) -> Iterator[str]:
        """Code that refuses a value in a field that a version lacks."""
        for field in fields:
            if not field.ignorable:
                yield f"if {self.differs(field, side)}:"
                yield f"    absent(m, {field.name!r}, v)"

    def write_run(self, fields: list[Field], side: str) -> Iterator[str]:
        if len(fields) > 1:
            yield f"w += {self.layout(fields)}.pack({', '.join(f'm.{field.name}' for field in fields)})"
            return
        yield from self.write_value(fields[0], fields[0].versions, side, "w")

    def write_value(self, field: Field, versions: set[int], side: str, out: str) -> Iterator[str]:
        value = f"m.{field.name}"
        if not self.optional(field):
            yield from self.write_call(field, False, side, out, value)
            return
        if field.nullable == versions:
            yield from self.write_call(field, True, side, out, value)
            return
        if not field.nullable:
            yield f"if {value} is None:"
            yield f'    raise ValueError("{field.name} is null")'
            yield from self.write_call(field, False, side, out, value)
            return
        yield f"if {condition(field.nullable, versions)}:"
        yield from (f"    {line}" for line in self.write_call(field, True, side, out, value))
        yield f"elif {value} is None:"
        yield f'    raise ValueError(f"{field.name} is null in version {{v}}")'
        yield "else:"
        yield from (f"    {line}" for line in self.write_call(field, False, side, out, value))

    def write_call(self, field: Field, nullable: bool, side: str, out: str, value: str) -> Iterator[str]:
        null = "_nullable" if nullable else ""
        if field.kind == "struct":
            write = f"_write_{self.suffix(field.struct or '', side)}"
            if field.array:
                yield f"{out}.array{null}({write}, {value}, v)"
            elif nullable:
                yield f"{out}.present({value})"
                yield f"if {value} is not None:"
                yield f"    {write}({out}, {value}, v)"
            else:
                yield f"{write}({out}, {value}, v)"
        elif field.array and field.kind in FIXED:
            yield f"{out}.integers{null}({FIXED[field.kind][0]!r}, {value})"
        else:
            method = "raw" if field.kind == "records" else METHOD.get(field.kind, field.kind)
            yield f"{out}.{method}{'s' if field.array else ''}{null}({value})"

    def write_tags(self, tagged: list[Field], struct: Struct, side: str) -> Iterator[str]:
        start = self.api.flexible_from
        if start is None or max(struct.versions) < start:
            return
        if not tagged:
            yield "    w.tags()"
            return
        yield "    tagged: list[tuple[int, Writer]] = []"
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            test = condition(field.tagged, struct.versions)
            yield f"    if {f'({test}) and ' if test else ''}{self.differs(field, side)}:"
            yield "        t = w.fresh()"
            yield from (f"        {line}" for line in self.write_value(field, field.tagged, side, "t"))
            yield f"        tagged.append(({field.tag}, t))"
            if test and not field.ignorable:
                yield f"    elif {self.differs(field, side)}:"
                yield f"        absent(m, {field.name!r}, v)"
        yield "    w.tags(tagged)"

    # The four functions.

    def functions(self) -> Iterator[str]:
        start = self.api.flexible_from
        flexible = "False" if start is None else "True" if start <= self.api.versions[0] else f"version >= {start}"
        for side in ("request", "response"):
            root = side.capitalize()
            yield from ("", "", f"def decode_{side}(data: Buffer, offset: int, version: int) -> {root}:")
            yield "    if not VERSION_MIN <= version <= VERSION_MAX:"
            yield "        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)"
            yield f"    return decode(_read_{side}, data, offset, version, {flexible})"
            yield from ("", "", f"def encode_{side}(msg: {root}, version: int) -> bytes:")
            yield "    if not VERSION_MIN <= version <= VERSION_MAX:"
            yield "        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)"
            yield f"    return encode(_write_{side}, msg, version, {flexible})"


def groups(struct: Struct) -> Iterator[tuple[list[Field], str | None]]:
    """Fields in order, without tagged ones, neighbours of equal versions grouped with the test for these versions."""
    for field in struct.fields:
        assert not field.tagged or field.tagged == field.versions, field
    plain = [field for field in struct.fields if not field.tagged]
    for _, group in groupby(plain, key=lambda field: sorted(field.versions)):
        fields = list(group)
        yield fields, condition(fields[0].versions, struct.versions)


def runs(fields: list[Field]) -> Iterator[list[Field]]:
    """Neighbours of fixed width together, the others alone."""
    for fixed, group in groupby(fields, key=lambda field: field.kind in FIXED and not field.array):
        if fixed:
            yield list(group)
        else:
            yield from ([field] for field in group)


def indent(test: str | None, lines: Iterable[str], otherwise: list[str]) -> Iterator[str]:
    if test is None:
        yield from (f"    {line}" for line in lines)
        return
    yield f"    if {test}:"
    yield from (f"        {line}" for line in lines)
    if otherwise:
        yield "    else:"
        yield from (f"        {line}" for line in otherwise)


def prune_imports(text: str) -> str:
    """Import only what the module uses."""
    head, _, rest = text.partition("from penstock.wire.primitives import ")
    names, _, rest = rest.partition("\n")
    used = [name for name in names.split(", ") if re.search(rf"\b{name}\b", rest)]
    if not re.search(r"\bStruct\(", rest):
        head = head.replace("from struct import Struct\n\n", "")
    return f"{head}from penstock.wire.primitives import {', '.join(used)}\n{rest}"


def table_text(apis: list[Api]) -> str:
    """The module that lists the APIs without importing them."""
    lines = [
        '"""The APIs by key. Written by tools/generate_wire.py; do not edit."""',
        "",
        "from typing import NamedTuple",
        "",
        "",
        "class Entry(NamedTuple):",
        '    """Where an API\'s codec is and which versions it knows."""',
        "",
        "    module: str",
        "    name: str",
        "    version_min: int",
        "    version_max: int",
        "    flexible_from: int | None",
        "",
        "",
        "TABLE: dict[int, Entry] = {",
    ]
    for api in apis:
        first, last = api.versions[0], api.versions[-1]
        lines.append(f"    {api.key}: Entry({api.module!r}, {api.name!r}, {first}, {last}, {api.flexible_from}),")
    return "\n".join([*lines, "}"]) + "\n"
