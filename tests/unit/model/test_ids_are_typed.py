"""Offsets, epochs and ids are NewTypes in the signatures and fields of the data path, so that they cannot be confused.

mypy and pyright check the values; this checks that no signature opts out of that with a plain `int`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent
PACKAGES = (
    "storage",
    "partition",
    "maintenance",
    "transactions",
    "coordinator",
    "replication",
    "controller",
    "metadata",
)

NAMES = {
    "Offset": r"offset|\w+_offset|offset_(min|max|limit|end)|log_(start|end)|(\w+_)?high_watermark|last_stable"
    r"|recovery_point|cleaned_to|dirty_from|(held|local|durable)_end|epoch_start",
    "LeaderEpoch": r"(\w+_)?leader_epoch|fetched_epoch",
    "PartitionEpoch": r"partition_epoch",
    "BrokerId": r"broker_id|leader|follower|replica_id",
    "ProducerId": r"(\w+_)?producer_id",
    "ProducerEpoch": r"producer_epoch",
    "CoordinatorEpoch": r"coordinator_epoch",
}
"""The type of a number, by the names that parameters and fields of it have."""

PLAIN = {
    "relative_offset": "relative to the base of a segment: a difference of offsets",
    "max_timestamp_offset": "of the active segment only, where every append computes it",
}
"""Names that a plain number may have, and why."""


def plain_numbers(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each parameter and field whose name asks for a NewType and whose type is `int`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                pass
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                pass
            case _:
                continue
        wanted = next((type_ for type_, names in NAMES.items() if re.fullmatch(names, name.lstrip("_"))), None)
        if wanted is not None and name not in PLAIN and is_int(annotation):
            yield node.lineno, f"{name}: {ast.unparse(annotation)}, where {wanted} is meant"


def is_int(annotation: ast.expr) -> bool:
    """Whether an annotation is `int`, or a union with it."""
    match annotation:
        case ast.Name(id="int"):
            return True
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return is_int(left) or is_int(right)
        case _:
            return False


@pytest.mark.parametrize("package", PACKAGES)
def test_no_offset_epoch_or_id_is_a_plain_number(package: str) -> None:
    paths = sorted((SOURCE / package).rglob("*.py"))
    assert paths, f"no modules in {package}"
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text}" for path in paths for line, text in plain_numbers(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "def truncate_to(self, offset: int) -> None: ...",
        "def find(*, base_offset: int | None = None) -> None: ...",
        "async def follow(leader_epoch: int) -> None: ...",
        "class Job:\n    log_end: int",
        "self._high_watermark: int = 0",
        "lookup = 0\ndef get(broker_id: int) -> None: ...",
    ],
)
def test_a_plain_number_is_found(source: str) -> None:
    assert list(plain_numbers(source))


@pytest.mark.parametrize(
    "source",
    [
        "def truncate_to(self, offset: Offset) -> None: ...",
        "def floor(self, relative_offset: int) -> int: ...",
        "def record(last_offset_delta: int) -> None: ...",
        "def walk(position: int, end: int) -> None: ...",
    ],
)
def test_a_difference_of_offsets_or_a_position_may_be_plain(source: str) -> None:
    assert not list(plain_numbers(source))
