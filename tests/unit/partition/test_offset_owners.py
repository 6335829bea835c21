"""Only the rules of leaders and followers assign a replica's offsets."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.unit.partition.rig import Rig, batch, topic
from tests.unit.partition.test_aborted_after_crash import Writers
from tests.unit.partition.test_truncated_follower import become_follower

import penstock
from penstock.model.ids import TopicPartition
from penstock.partition.offsets import Offsets

SOURCE = Path(penstock.__file__).parent
OWNERS = {"partition/leader.py", "partition/follower.py"}
OFFSETS = {field.name for field in fields(Offsets)}

NOT_A_BROKER = {"wire", "testing"}
"""Codecs, which have no replicas, and the test kit, whose ablations replace methods by name."""

OTHER_OWNERS = {"self", "log", "error"}
"""Owners of other attributes with these names: a class's own, a log's, the log start in an error."""


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Attributes that are assigned, deleted, or bound by a loop, `with` or unpacking, and calls of `setattr`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            name = node.args[1]
            if not isinstance(name, ast.Constant) or name.value in OFFSETS:
                yield ast.Attribute(value=node.args[0], attr=str(getattr(name, "value", "log_end")), ctx=ast.Store())


def owner_of(attribute: ast.Attribute) -> str:
    """The last name before the attribute: `log` in `self.log.log_end`."""
    value = attribute.value
    return value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""


def offsets_assigned_in(source: str) -> list[str]:
    return [
        f"{owner_of(found)}.{found.attr}"
        for found in assigned(ast.parse(source))
        if found.attr in OFFSETS and owner_of(found) not in OTHER_OWNERS
    ]


def test_only_the_modules_of_leader_and_follower_assign_an_offset() -> None:
    found = {
        str(path.relative_to(SOURCE)): names
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in NOT_A_BROKER and (names := offsets_assigned_in(path.read_text()))
    }

    assert set(found) == OWNERS, {path: names for path, names in found.items() if path not in OWNERS}


@pytest.mark.parametrize(
    "source",
    [
        "replica.offsets.log_end = 1",
        "offsets.high_watermark += 1",
        "a, state.last_stable = 1, 2",
        "for role.offsets.local_end in (): pass",
        "setattr(offsets, 'log_start', 1)",
        "del offsets.log_end",
    ],
)
def test_every_kind_of_assignment_is_detected(source: str) -> None:
    assert offsets_assigned_in(source)


def test_only_leader_and_follower_assign_an_offset_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assigning: set[str] = set()
    put = Offsets.__setattr__

    def record(offsets: Offsets, name: str, value: Any) -> None:
        assigning.add(sys._getframe(1).f_globals["__name__"])
        put(offsets, name, value)

    def made(offsets: Offsets, **found: int) -> None:
        for name, value in found.items():
            put(offsets, name, value)

    monkeypatch.setattr(Offsets, "__init__", made)
    monkeypatch.setattr(Offsets, "__setattr__", record)
    rig = Rig(topic("os"), topic("group", number=2, configs={"flush": "group"}))
    for name in ("os", "group"):
        rig.append(rig.replica(name), batch(b"a", b"b"), acks_all=True)
        rig.flush()
        rig.replica(name).delete_records(1)
    writers = Writers(segment_bytes=1 << 20)
    for producer_id in (5, 6):
        writers.write(producer_id)
    writers.end(5, commit=False)
    become_follower(writers)
    writers.rig.replicas.truncate({writers.replica.tp: 1})

    assert assigning == {"penstock.partition.leader", "penstock.partition.follower"}


def test_a_leader_is_never_truncated() -> None:
    rig = Rig(topic())
    rig.append(rig.replica(), batch(b"a"))

    with pytest.raises(AssertionError, match="a leader never truncates itself"):
        rig.replicas.truncate({TopicPartition("orders", 0): 0})

    assert rig.replica().offsets.log_end == 1
