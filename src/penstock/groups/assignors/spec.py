"""The input of an assignor: members with their subscriptions and current targets, and the topics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.model.ids import TopicId
from penstock.wire.group_values import Partitions

Racks = tuple[frozenset[str], ...]
"""The racks of a topic's partitions, by index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """A member, the existing topics it subscribes to, and its current target. Members with equal topics share a set."""

    member_id: str
    topics: frozenset[TopicId]
    target: Partitions
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A group as an assignor sees it. Immutable, as an assignor may run in a thread."""

    members: Sequence[MemberSpec]
    partition_counts: Mapping[TopicId, int]
    """Every topic with a subscriber."""
    racks: Mapping[TopicId, Racks] = field(default_factory=dict[TopicId, Racks])
    """Empty if no member has a rack."""


Assignor = Callable[[GroupSpec], dict[str, Partitions]]
"""Returns a target, possibly empty, for every member. Every partition has one owner among its topic's subscribers."""


@dataclass(frozen=True, slots=True)
class Audience:
    """Topics with the same subscribers: to an assignor they are one topic."""

    kinds: tuple[int, ...]
    topics: list[TopicId]


@dataclass(frozen=True, slots=True)
class Readership:
    """Members grouped by subscription, and topics grouped by subscribers. Members are indexes into a list.

    Members come in a few kinds, each with the same subscription, so topics are compared with kinds: a thousand members
    with ten thousand topics each would otherwise be ten million pairs.
    """

    kinds: list[list[int]]
    audiences: list[Audience]

    @classmethod
    def of(cls, members: Sequence[MemberSpec]) -> "Readership":
        """Indexes within a kind and topics within an audience are in ascending order."""
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
        """How many members subscribe to these topics."""
        return sum(len(self.kinds[kind]) for kind in audience.kinds)
