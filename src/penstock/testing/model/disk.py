"""What a broker of the model keeps on its disk: logs as lists of records, and the record of its registration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.registration import RegistrationRecord

NEW = RegistrationRecord()


class Record(NamedTuple):
    """One record: the epoch of the leader that appended it, and a value that no other record has."""

    epoch: LeaderEpoch
    value: int


class RecordLog:
    """The log of one replica. `durable_end` and `checkpoint` are what a power failure leaves of it."""

    def __init__(self) -> None:
        self.start = Offset(0)
        self.records: list[Record] = []
        self.epochs = LeaderEpochs()
        self.durable_end = Offset(0)
        self.checkpoint = Offset(0)
        """The high watermark that a restart begins with."""
        self.damaged_at: Offset | None = None
        """A record that can no longer be read."""
        self.damage_known = False

    @property
    def end(self) -> Offset:
        return Offset(self.start + len(self.records))

    def __repr__(self) -> str:
        return f"<{self.start}: {[tuple(record) for record in self.records]}, {self.durable_end} durable>"

    def get(self, offset: int) -> Record | None:
        """The record at an offset; None outside of the log."""
        return self.records[offset - self.start] if self.start <= offset < self.end else None

    def read(self, offset: int, end: int) -> list[Record]:
        return self.records[max(offset - self.start, 0) : max(end - self.start, 0)]

    def append(self, record: Record) -> None:
        self.epochs.assign(record.epoch, self.end)
        self.records.append(record)

    def truncate(self, end: Offset) -> None:
        """Drop records from `end` on, durably."""
        del self.records[max(end - self.start, 0) :]
        self.start = min(self.start, end)
        self.epochs.truncate_to(end)
        self.durable_end = min(self.durable_end, end)
        self.checkpoint = min(self.checkpoint, end)
        if self.damaged_at is not None and self.damaged_at >= end:
            self.damaged_at = None

    def delete_before(self, offset: Offset) -> None:
        del self.records[: max(offset - self.start, 0)]
        self.start = max(self.start, offset)
        self.epochs.delete_before(offset)
        self.durable_end = max(self.durable_end, offset)
        self.checkpoint = max(self.checkpoint, offset)
        if self.damaged_at is not None and self.damaged_at < offset:
            self.damaged_at = None

    def recover(self) -> bool:
        """Drop the log from a damaged record on; whether there was one that was known."""
        if not self.damage_known or self.damaged_at is None:
            return False
        self.truncate(self.damaged_at)
        self.damage_known = False
        return True

    def restart_at(self, offset: Offset) -> None:
        """Empty the log: it goes on at `offset`."""
        self.truncate(Offset(0))
        self.start = self.durable_end = self.checkpoint = offset

    def flush(self, high_watermark: Offset) -> None:
        self.durable_end = self.end
        self.checkpoint = max(self.checkpoint, high_watermark)

    def lose_unflushed(self, kept: int) -> None:
        """The power fails: up to `kept` records of those that were not flushed are left."""
        self.truncate(Offset(min(self.end, self.durable_end + kept)))
        self.durable_end = self.end


@dataclass(slots=True, kw_only=True)
class Disk:
    """The disk of one broker. It survives a process; a power failure takes what was not flushed."""

    broker_id: BrokerId
    directory: str
    logs: dict[TopicPartition, RecordLog] = field(default_factory=dict[TopicPartition, RecordLog])
    registration: RegistrationRecord = NEW
    stopped_clean: bool = True
    power_failed: bool = False
    """Since the last start."""

    def log(self, tp: TopicPartition) -> RecordLog:
        return self.logs.setdefault(tp, RecordLog())
