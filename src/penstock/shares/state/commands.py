"""The commands of the share coordinator and their replies, independent of the wire format.

Each is about one share partition. If it fails, the response is the error itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.shares.persister import StateBatch
from penstock.wire.share_records import ShareKey

NO_EPOCH = -1
"""A leader epoch or state epoch that is not checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """A new leader of the partition asks for the state; its leader epoch fences the leaders before it."""

    key: ShareKey
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteState:
    """The partition's leader adds to the state. A start offset of -1 leaves the start as it is."""

    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeState:
    """The group coordinator begins a share partition, or begins it again elsewhere."""

    key: ShareKey
    state_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteState:
    """The group coordinator ends a share partition."""

    key: ShareKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSummary:
    """Where a share partition is; fences no leader, whatever the leader epoch."""

    key: ShareKey
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Done:
    """The change is committed."""


DONE = Done()

StateCommand = ReadState | WriteState | InitializeState | DeleteState | ReadSummary
