"""Rules about writes whose outcome is not known: what the store shows afterwards, and what follows from it.

Every transaction of a controller sets `/changes` to a mark of its own, at the version it expects the node to have. So
of two transactions that expect the same version one is done at most, and the mark shows which.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum

from penstock.metadata.nodes import Node
from penstock.metadata.operations import Check, Operation, Set
from penstock.metadata.records import CHANGES, CONTROLLER_EPOCH, unpack_controller


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A controller's transaction: its mark, and the version of `/changes` that it expects."""

    mark: bytes
    expected: int


EPOCH_CHECK = 0
"""Index of the operation that fails when another broker was elected."""

FENCE_OPERATIONS = 2
FENCE_BYTES = 512
"""Allowed for the two operations that precede those of a plan."""


def fence(epoch_version: int, sent: Sent) -> tuple[Operation, Operation]:
    """What precedes the operations of every transaction of a controller.

    `epoch_version` is what it won at its election, never the newest it has seen: a deposed controller follows its
    successor's election too.
    """
    return Check(CONTROLLER_EPOCH, epoch_version), Set(CHANGES, sent.mark, sent.expected)


class Found(Enum):
    """What `/changes` shows about a transaction of unknown outcome."""

    DONE = "done"
    NEVER = "never"
    """Another transaction was done in its place: one that voids it, or an earlier one of unknown outcome."""
    PENDING = "pending"
    """Not done, but it can be at any time until another transaction takes its place."""
    SUPERSEDED = "superseded"
    """Later transactions hide it: another broker is controller."""


def found_after(sent: Sent, changes: Node | None) -> Found:
    """Judge by `/changes` as it is now."""
    if changes is None or changes.version > sent.expected + 1:
        return Found.SUPERSEDED
    if changes.version <= sent.expected:
        return Found.PENDING
    return Found.DONE if changes.data == sent.mark else Found.NEVER


class Claim(Enum):
    """What `/controller` shows a broker that wants to be controller."""

    FREE = "free"
    TAKEN = "taken"
    WON = "won"
    LATE = "late"
    """A claim of this session whose outcome was unknown and that was done after it had been given up."""


def read_claim(controller: Node | None, session: int, epochs_sent: Container[int]) -> Claim:
    """A broker is elected only if the node belongs to its session and carries an epoch that this election sent."""
    if controller is None:
        return Claim.FREE
    if controller.owner != session:
        return Claim.TAKEN
    return Claim.WON if unpack_controller(controller.data).epoch in epochs_sent else Claim.LATE
