"""Compare the schema that the codec is generated from with the message definitions that Apache Kafka ships.

    python tools/wire_audit.py kafka-clients-4.3.1.jar

Prints every difference in fields, versions, types, defaults and nullability, and the changes that the table of fields
that may not be dropped needs. Not part of the tests: it needs the jar. Run it when kio is updated.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from typing import Any

from wire_emit import snake
from wire_facts import NEVER_DROPPED
from wire_schema import Api, Field, Message, Struct, read_apis

Definition = dict[str, Any]
PRIMITIVE_DEFAULTS: dict[str, object] = {"string": "", "bytes": b"", "records": None, "uuid": bytes(16), "bool": False}


def load(jar: str) -> dict[str, Definition]:
    """Every message definition in the jar by its name."""
    found: dict[str, Definition] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    return found


def versions(text: str | None, among: set[int]) -> set[int]:
    """The versions in a range like ``3+`` or ``0-2``, among those that exist."""
    if text is None or text == "none":
        return set()
    first, plus, _ = text.partition("+")
    if plus:
        return {version for version in among if version >= int(first)}
    low, _, high = text.partition("-")
    return {version for version in among if int(low) <= version <= int(high or low)}


class Audit:
    """One message against its definition."""

    def __init__(self, message: Message, definition: Definition) -> None:
        self.name: str = definition["name"]
        self.structs = {struct.name: struct for struct in message.structs}
        self.common = {struct["name"]: struct for struct in definition.get("commonStructs", [])}
        self.differences: list[str] = []
        self.never_dropped: set[str] = set()
        self.struct(message.root, definition["fields"], message.root.versions)

    def struct(self, struct: Struct, fields: list[Definition], among: set[int]) -> None:
        there = {snake(field["name"]): field for field in fields if versions(field["versions"], among)}
        here = {field.name.rstrip("_"): field for field in struct.fields if field.versions & among}
        for name in there.keys() ^ here.keys():
            self.differences.append(f"{self.name}.{struct.name}.{name}: only {'there' if name in there else 'here'}")
        for version in among:
            order = [name for name, field in there.items() if version in versions(field["versions"], among)]
            if order != [name for name, field in here.items() if version in field.versions]:
                self.differences.append(f"{self.name}.{struct.name}: version {version} has the order {order} there")
        for name in there.keys() & here.keys():
            self.field(struct, there[name], here[name], among)

    def field(self, struct: Struct, there: Definition, here: Field, among: set[int]) -> None:
        place = f"{self.name}.{struct.name}.{here.name}"
        present = versions(there["versions"], among)
        kind = there["type"].removeprefix("[]")
        facts: dict[str, tuple[object, object]] = {
            "versions": (present, here.versions & among),
            "nullable": (versions(there.get("nullableVersions"), present), here.nullable & among),
            "tagged": (versions(there.get("taggedVersions"), present), here.tagged & among),
            "tag": (there.get("tag"), here.tag),
            "array": (there["type"].startswith("[]"), here.array),
            "type": (kind, here.struct or here.kind),
        }
        if facts["array"][0] is False and here.kind != "struct":
            facts["default"] = (self.default(there, kind), here.default)
        self.differences += [f"{place}: {fact} {a} there, {b} here" for fact, (a, b) in facts.items() if a != b]
        if present != among and not there.get("ignorable", False):
            self.never_dropped.add(place)
        if here.struct is not None and here.struct in self.structs:
            fields = there.get("fields") or self.common[kind]["fields"]
            self.struct(self.structs[here.struct], fields, present)

    @staticmethod
    def default(there: Definition, kind: str) -> object:
        value = there.get("default")
        if value is None:
            return PRIMITIVE_DEFAULTS.get(kind, 0)
        if value == "null":
            return None
        if kind == "string":
            return value
        return value in (True, "true") if kind == "bool" else int(str(value), 0)


def audit(api: Api, definitions: dict[str, Definition]) -> list[Audit]:
    return [
        Audit(api.request, definitions[f"{api.name}Request"]),
        Audit(api.response, definitions[f"{api.name}Response"]),
    ]


def main() -> int:
    definitions = load(sys.argv[1])
    audits = [audited for api in read_apis() for audited in audit(api, definitions)]
    differences = [line for audited in audits for line in audited.differences]
    never = set[str]().union(*(audited.never_dropped for audited in audits))
    for line in differences:
        print(line)
    for place in sorted(never ^ NEVER_DROPPED):
        print(f"{'add to' if place in never else 'remove from'} NEVER_DROPPED: {place!r}")
    print(f"{len(audits)} messages, {len(differences)} differences, {len(never ^ NEVER_DROPPED)} changes of the table")
    return 1 if differences or never != NEVER_DROPPED else 0


if __name__ == "__main__":
    sys.exit(main())
