"""The members of a classic group, their protocols, and their leader."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.coordinator.step import Ticket
from penstock.groups.commands import JoinedMember
from penstock.model.generated_errors import FencedInstanceId, UnknownMemberId
from penstock.wire.group_values import ClassicMember

Protocols = tuple[tuple[str, bytes], ...]
"""Assignment protocols that a member supports, the preferred one first, each with its metadata."""

NO_TIMER = 0
NO_ASSIGNMENT = b""


def offered(protocols: Iterable[tuple[str, bytes]]) -> Protocols:
    """The protocols of a request without duplicates; the first of a name counts."""
    once: dict[str, bytes] = {}
    for name, metadata in protocols:
        once.setdefault(name, metadata)
    return tuple(once.items())


class Session:
    """A member's session. Shared by all copies of the member: a heartbeat counts even if a decision is refused."""

    __slots__ = ("deadline_ms", "timer_ms")

    def __init__(self) -> None:
        self.deadline_ms = 0
        """When the session expires without a heartbeat."""
        self.timer_ms = NO_TIMER
        """When the session's timer expires. A heartbeat moves the deadline and leaves the timer alone."""


@dataclass(slots=True, kw_only=True)
class Member:
    """One member, with its JoinGroup and SyncGroup requests that wait for a response.

    Immutable by convention: copied at each step of a rebalance, and a frozen dataclass takes twice as long to make.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    """Has not been part of a generation: it may not know its id, and its session expires even while it waits."""
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    session: Session = field(default_factory=Session, compare=False)

    @classmethod
    def restored(cls, saved: ClassicMember, protocol: str | None) -> "Member":
        """The member of a record. Records of version 0 have no rebalance timeout."""
        known = saved.rebalance_timeout_ms >= 0
        return cls(
            member_id=saved.member_id,
            group_instance_id=saved.group_instance_id,
            client_id=saved.client_id,
            client_host=saved.client_host,
            rebalance_timeout_ms=saved.rebalance_timeout_ms if known else saved.session_timeout_ms,
            session_timeout_ms=saved.session_timeout_ms,
            protocols=((protocol or "", saved.subscription),),
            assignment=saved.assignment,
        )

    def saved(self, protocol: str) -> ClassicMember:
        return ClassicMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol) or b"",
            assignment=self.assignment,
        )

    def moved(self, assignment: bytes, *, sync_ticket: Ticket | None = None) -> "Member":
        """The same member once its generation has begun. Equal to `replace`, in a third of the time."""
        return Member(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocols=self.protocols,
            assignment=assignment,
            sync_ticket=sync_ticket,
            session=self.session,
        )

    @property
    def awaits(self) -> bool:
        """Whether a request waits for its response; meanwhile the member sends no heartbeats."""
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata(self, protocol: str | None) -> bytes | None:
        """The member's metadata for a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), None)


class Members:
    """The members of one group, in the order in which they joined."""

    __slots__ = ("_members", "_static", "_supporters", "leader")

    def __init__(self, members: Iterable[Member] = (), leader: str | None = None) -> None:
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._supporters: dict[str, int] = {}
        self.leader = leader
        for member in members:
            self.add(member)

    def copy(self) -> "Members":
        """A copy that can change without changing this one."""
        copied = Members(leader=self.leader)
        copied._members = self._members.copy()
        copied._static = self._static.copy()
        copied._supporters = self._supporters.copy()
        return copied

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def ids(self) -> list[str]:
        return list(self._members)

    def static_id(self, group_instance_id: str | None) -> str | None:
        """The id of the member that currently has this instance id."""
        return None if group_instance_id is None else self._static.get(group_instance_id)

    def checked(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member with this id. Raises UnknownMemberId, or FencedInstanceId if another member replaced it."""
        if group_instance_id is not None:
            current = self._static.get(group_instance_id)
            if current is None:
                raise UnknownMemberId
            if current != member_id:
                raise FencedInstanceId
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMemberId
        return member

    @property
    def waiting_to_join(self) -> int:
        return sum(member.join_ticket is not None for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: Member) -> None:
        """Add a member. The first one is the leader."""
        assert member.member_id not in self._members, f"{member.member_id} is a member already"
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static, f"{member.group_instance_id} is a member already"
            self._static[member.group_instance_id] = member.member_id
        self._members[member.member_id] = member
        self._count(member, 1)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member; the next one becomes the leader if it was the leader."""
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        if member.group_instance_id is not None:
            del self._static[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def replace(self, old_id: str, member: Member) -> Member:
        """Replace a static member, also as the leader; returns the old one."""
        assert member.group_instance_id is not None, "only static members are replaced"
        old = self._members[old_id]
        self._count(old, -1)
        self._members = {
            (member if found is old else found).member_id: (member if found is old else found) for found in self
        }
        self._count(member, 1)
        self._static[member.group_instance_id] = member.member_id
        if self.leader == old_id:
            self.leader = member.member_id
        return old

    def put(self, member: Member) -> None:
        """Update a member under the same id."""
        before = self._members[member.member_id]
        self._members[member.member_id] = member
        if before.protocols is not member.protocols:
            self._count(before, -1)
            self._count(member, 1)

    def elect_joined(self) -> bool:
        """Elect a leader among the members that have joined this rebalance; False if none has."""
        if self.leader is None:
            return False
        if self._members[self.leader].join_ticket is not None:
            return True
        joined = next((member for member in self if member.join_ticket is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def supports(self, protocols: Protocols) -> bool:
        """Whether every member supports one of these."""
        return any(self._supporters.get(name, 0) == len(self._members) for name, _ in protocols)

    def vote(self) -> str:
        """Of the protocols that all members support, the one that most prefer; a tie goes to the earlier members."""
        votes: dict[str, int] = {}
        for member in self:
            choice = next(name for name, _ in member.protocols if self._supporters[name] == len(self._members))
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def joined(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """The members as the leader's JoinGroup response lists them."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol) or b"")
            for member in self
        )

    def _count(self, member: Member, by: int) -> None:
        for name, _ in member.protocols:
            count = self._supporters.get(name, 0) + by
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]
