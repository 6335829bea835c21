"""What an assignor is given: members, their subscriptions and their last target, and the topics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.model.ids import TopicId
from penstock.wire.group_values import Partitions

Racks = tuple[frozenset[str], ...]
"""The racks of a topic's partitions, by index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """A member, the existing topics it reads, and what it was to have so far. It shares sets with its like."""

    member_id: str
    topics: frozenset[TopicId]
    target: Partitions
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A group as an assignor sees it. Nobody changes it: an assignor may run in a thread of its own."""

    members: Sequence[MemberSpec]
    partition_counts: Mapping[TopicId, int]
    """Every topic that somebody reads."""
    racks: Mapping[TopicId, Racks] = field(default_factory=dict[TopicId, Racks])
    """Left empty where no member names its rack."""


Assignor = Callable[[GroupSpec], dict[str, Partitions]]
"""Gives every member its target, which may be nothing. Every partition has one owner, among its topic's readers."""


@dataclass(frozen=True, slots=True)
class Audience:
    """Topics that the same members read: to an assignor they are one topic."""

    kinds: tuple[int, ...]
    topics: list[TopicId]


@dataclass(frozen=True, slots=True)
class Readership:
    """Members by what they read, and topics by who reads them. Members are named by their place in a list.

    Members come in a few kinds, each with the same subscription. So kinds are compared with topics: a thousand members
    with ten thousand topics each would else be ten million pairs.
    """

    kinds: list[list[int]]
    audiences: list[Audience]

    @classmethod
    def of(cls, members: Sequence[MemberSpec]) -> "Readership":
        """Places within a kind ascend, and so do topics within an audience."""
        kinds: dict[frozenset[TopicId], list[int]] = {}
        for place, member in enumerate(members):
            kinds.setdefault(member.topics, []).append(place)
        readers: dict[TopicId, list[int]] = {}
        for kind, topics in enumerate(kinds):
            for topic in topics:
                readers.setdefault(topic, []).append(kind)
        audiences: dict[tuple[int, ...], Audience] = {}
        for topic in sorted(readers):
            key = tuple(readers[topic])
            if key not in audiences:
                audiences[key] = Audience(key, [])
            audiences[key].topics.append(topic)
        return cls(list(kinds.values()), list(audiences.values()))

    def size(self, audience: Audience) -> int:
        """How many members read these topics."""
        return sum(len(self.kinds[kind]) for kind in audience.kinds)
