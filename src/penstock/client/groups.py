"""Consumer groups: their members, their committed offsets, and seeks of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.client.calls import AdminCalls
from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import ClientError, failure
from penstock.client.library import kafka
from penstock.client.positions import Bounds, Position

Place = tuple[str, int]
"""A topic and one of its partitions."""

DEAD = "dead"
NO_OFFSET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as the list of groups has it."""

    name: str
    kind: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member and the partitions assigned to it."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    places: tuple[Place, ...]

    def __str__(self) -> str:
        return f"{self.member_id} (client {self.client_id}, host {self.host})"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group and its members; `assignor` is empty while there is none."""

    name: str
    kind: str
    state: str
    assignor: str
    coordinator: int | None
    members: tuple[GroupMember, ...]

    def owners(self) -> dict[Place, GroupMember]:
        return {place: member for member in self.members for place in member.places}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A target relative to the committed offset; negative is back."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The seek of one partition: from its committed offset, None if there is none, to another."""

    place: Place
    before: int | None
    after: int
    end: int
    asked: int | None = None
    """The requested offset, if it is outside the partition's range."""

    @property
    def change(self) -> int | None:
        return None if self.before is None else self.after - self.before

    @property
    def lag(self) -> int:
        return self.end - self.after


class NothingCommitted(ClientError):
    """A shift of a partition without a committed offset."""


def plan_moves(
    wanted: Mapping[Place, Position | Shift], committed: Mapping[Place, int], bounds: Mapping[Place, Bounds]
) -> tuple[Move, ...]:
    """The move of each partition, clamped to the partition's range."""
    moves: list[Move] = []
    for place, target in sorted(wanted.items()):
        held, before = bounds[place], committed.get(place)
        asked: int | None = None
        if isinstance(target, Shift):
            if before is None:
                raise NothingCommitted(
                    f"{place[0]} partition {place[1]} has no committed offset to shift",
                    hint="say --to earliest, latest, an offset or a time",
                )
            asked = before + target.count
            after = min(max(asked, held.start), held.end)
        else:
            after = held.offset_of(target)
            asked = getattr(target, "offset", None)
        moves.append(
            Move(place=place, before=before, after=after, end=held.end, asked=None if asked == after else asked)
        )
    return tuple(moves)


class Groups:
    """The groups of a cluster. Every call returns its result or raises `ClientError`."""

    def __init__(self, connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX) -> None:
        self._calls = AdminCalls(connection, seconds_max)
        self._client = self._calls.client

    def list(self) -> tuple[GroupListing, ...]:
        """Every group, by name."""
        found = self._calls.whole("cannot list groups", self._client.list_consumer_groups)
        for error in found.errors:
            raise failure(error.args[0], "cannot list groups")
        listed = (
            GroupListing(name=each.group_id, kind=_word(each.type), state=_word(each.state)) for each in found.valid
        )
        return tuple(sorted(listed, key=lambda each: each.name))

    def describe(self, name: str) -> GroupInfo:
        """One group with its members; an unknown group is an error."""
        found = self._calls.one(f"cannot describe group {name}", self._client.describe_consumer_groups, [name])
        state = _word(found.state)
        if state == DEAD:
            raise ClientError(f"there is no group {name}", hint="penstock group list shows the groups there are")
        return GroupInfo(
            name=name,
            kind=_word(found.type),
            state=state,
            assignor=found.partition_assignor or "",
            coordinator=None if found.coordinator is None else found.coordinator.id,
            members=tuple(_member(each) for each in found.members),
        )

    def committed(self, name: str) -> dict[Place, int]:
        """The committed offset of each partition that has one."""
        return {place: offset for place, (offset, _) in self.noted(name).items()}

    def noted(self, name: str) -> dict[Place, tuple[int, str]]:
        """The committed offset of each partition that has one, and the text beside it."""
        wanted = [kafka().ConsumerGroupTopicPartitions(name)]
        doing = f"cannot read the offsets of group {name}"
        found = self._calls.one(doing, self._client.list_consumer_group_offsets, wanted)
        offsets: dict[Place, tuple[int, str]] = {}
        for each in found.topic_partitions:
            if each.error is not None:
                raise failure(each.error, doing)
            if each.offset > NO_OFFSET:
                offsets[each.topic, each.partition] = each.offset, each.metadata or ""
        return offsets

    def commit(self, name: str, offsets: Mapping[Place, int]) -> None:
        """Replace committed offsets of a group without members."""
        doing = f"cannot move group {name}"
        parts = [kafka().TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
        wanted = [kafka().ConsumerGroupTopicPartitions(name, parts)]
        found = self._calls.one(doing, self._client.alter_consumer_group_offsets, wanted)
        for each in found.topic_partitions:
            if each.error is not None:
                raise failure(each.error, f"{doing}: {each.topic} partition {each.partition}")

    def delete(self, names: Sequence[str]) -> None:
        """Delete groups without members, with their offsets."""
        self._calls.all(f"cannot delete {_listed(names)}", self._client.delete_consumer_groups, list(names))


def _member(found: Any) -> GroupMember:
    assigned = found.assignment.topic_partitions if found.assignment is not None else ()
    return GroupMember(
        member_id=found.member_id,
        client_id=found.client_id,
        # Kafka writes an address as Java prints it.
        host=found.host.lstrip("/"),
        instance_id=found.group_instance_id,
        places=tuple(sorted((each.topic, each.partition) for each in assigned)),
    )


def _word(value: Any) -> str:
    """A state or kind as one lower-case word: PREPARING_REBALANCING is preparing-rebalancing."""
    return str(value.name).lower().replace("_", "-")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
