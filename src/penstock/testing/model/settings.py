"""What is fixed for one run of the model."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.ids import BrokerId

FIRST = BrokerId(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A cluster of the model, and what is slow in it."""

    replicas: tuple[tuple[BrokerId, ...], ...] = ((BrokerId(1), BrokerId(2), BrokerId(3)),)
    """Of each partition of the topic; the first is the preferred leader."""
    in_sync_min: int = 2
    flush_group: bool = False
    operations_max: int = 100
    """Of one transaction in the store: with few, plans stop half-way."""
    first: BrokerId = FIRST
    """The broker that starts first, and becomes controller."""
    spares: tuple[BrokerId, ...] = ()
    """Brokers without a replica at the start: reassignments move some to them."""
    replicas_min: int = 2
    """Of a partition that is reassigned. A single replica leads on in its epoch after a clean restart, and loses what
    it has acknowledged with its disk."""
    slow: frozenset[tuple[str, BrokerId]] = frozenset()
    """Things that happen on a broker only every so often: (what, broker)."""

    @property
    def brokers(self) -> tuple[BrokerId, ...]:
        return tuple(sorted({*self.spares, *(broker for replicas in self.replicas for broker in replicas)}))
