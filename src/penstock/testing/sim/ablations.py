"""Rules of the broker, each with a way to take it out: the simulator must notice that it is missing."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.events import TxnOffsetPending
from penstock.groups.group import VALID
from penstock.groups.offset_store import OffsetStore
from penstock.partition.producers import ProducerTable
from penstock.storage.directories import LogDirectory
from penstock.storage.flush import FlushJob
from penstock.storage.recovery import Stop

Ablation = Callable[[], AbstractContextManager[None]]


@contextmanager
def replaced(owner: type | ModuleType, name: str, other: Callable[..., Any] | property) -> Generator[None]:
    """Have another function in the place of a method, or of a function of a module."""
    original = owner.__dict__[name]
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def recovery_point() -> Generator[None]:
    """The recovery point moves without an fsync: what is below it may not survive a power cut."""

    def claim(job: FlushJob) -> None:
        """Sync nothing."""

    with replaced(FlushJob, "run", claim):
        yield


@contextmanager
def producer_deduplication() -> Generator[None]:
    """A batch that is in the log already is appended once more."""
    check = ProducerTable.check

    def check_without(table: ProducerTable, *batch: Any, **fields: Any) -> None:
        check(table, *batch, **fields)

    with replaced(ProducerTable, "check", check_without):
        yield


@contextmanager
def last_stable_offset() -> Generator[None]:
    """Readers of committed data do not stop before open transactions."""

    def find_none(table: ProducerTable) -> None:
        table.first_unstable = None

    with replaced(ProducerTable, "_find_first_unstable", find_none):
        yield


@contextmanager
def generation_fencing() -> Generator[None]:
    """A group accepts offsets from any member of any generation."""

    def accept(group: ClassicGroup | ConsumerGroup, *commit: Any, **fields: Any) -> Any:
        return VALID

    with replaced(ClassicGroup, "validate_commit", accept), replaced(ConsumerGroup, "validate_commit", accept):
        yield


@contextmanager
def markers_before_visibility() -> Generator[None]:
    """Offsets of a transaction show before a marker says that it was committed."""

    def show(store: OffsetStore, event: TxnOffsetPending) -> None:
        store.committed(event.offset)

    with replaced(OffsetStore, "pending", show):
        yield


@contextmanager
def boot_id() -> Generator[None]:
    """A start after a power cut recovers as after a kill, as if the page cache were still there."""
    last_stop = LogDirectory.last_stop

    def believe(directory: LogDirectory) -> Stop:
        stop = last_stop(directory)
        return Stop.PROCESS_CRASH if stop is Stop.MACHINE_CRASH else stop

    with replaced(LogDirectory, "last_stop", believe):
        yield


ABLATIONS: dict[str, Ablation] = {
    "recovery-point": recovery_point,
    "producer-deduplication": producer_deduplication,
    "last-stable-offset": last_stable_offset,
    "generation-fencing": generation_fencing,
    "markers-before-visibility": markers_before_visibility,
    "boot-id": boot_id,
}
"""By the name that `penstock sim run --ablate` has for it."""
