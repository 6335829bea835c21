"""The replicas of a simulated cluster, compared as they are on the disks of its brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

from penstock.model.ids import Offset, ProducerId, TopicPartition
from penstock.model.topic import INTERNAL_TOPICS
from penstock.partition.offsets import Offsets
from penstock.storage.names import LOG
from penstock.testing.mem_disk import MemDisk
from penstock.testing.sim.broker import DATA, SimBroker
from penstock.testing.sim.metadata_history import MetadataHistory
from penstock.testing.sim.schedules import LATER
from penstock.wire.primitives import Malformed
from penstock.wire.records import ABORT_MARKER, decode_records, iter_batches, parse_marker

SHOWN_MAX = 4
COMPACTED = INTERNAL_TOPICS | {LATER.name}
"""Topics whose replicas may have compacted different parts."""


def offsets_of(broker: SimBroker, topic: str, index: int) -> Offsets | None:
    """What a running broker says of its replica of a partition; None where it has none."""
    parts = None if broker.broker is None else broker.broker.parts
    if parts is None or not broker.running:
        return None
    replica = parts.replicas.used(TopicPartition(topic, index))
    return None if replica is None else replica.offsets


def batches_of(files: MemDisk, topic: str, index: int, end: Offset) -> dict[int, bytes]:
    """The batches of a partition's log by base offset, of those that end at or before an offset."""
    directory = f"{DATA}/{topic}-{index}"
    found: dict[int, bytes] = {}
    # A log without a batch need not have a directory yet.
    for name in files.list_directory(directory) if files.exists(directory) else ():
        if name.endswith(LOG):
            data = files.read_file(f"{directory}/{name}")
            # What is damaged differs from the other replicas.
            with suppress(Malformed):
                for at, header in iter_batches(data):
                    if header.last_offset < end:
                        found[header.base_offset] = data[at : at + header.size]
    return found


def values_of(batches: dict[int, bytes]) -> dict[bytes, bytes]:
    """The last value of each key, as a compacted log keeps it; a deleted key has none.

    Records of aborted transactions are left out: a replica that has compacted its log has them no more.
    """
    found: list[tuple[ProducerId, bytes, bytes | None] | None] = []
    open_from: dict[ProducerId, int] = {}
    for base in sorted(batches):
        [(_, header)] = iter_batches(batches[base])
        producer_id, records = header.producer_id, decode_records(batches[base])
        if header.is_control:
            start = open_from.pop(producer_id, len(found))
            if records and parse_marker(records[0])[0] == ABORT_MARKER:
                for at in range(start, len(found)):
                    if (each := found[at]) is not None and each[0] == producer_id:
                        found[at] = None
            continue
        if header.is_transactional:
            open_from.setdefault(producer_id, len(found))
        for record in records:
            value = None if record.value is None else bytes(record.value)
            found.append((producer_id, bytes(record.key or b""), value))
    values: dict[bytes, bytes] = {}
    for _, key, value in filter(None, found):
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values


def check_replicas(brokers: Sequence[SimBroker], history: MetadataHistory) -> Iterator[tuple[str, int, str]]:
    """Where two replicas differ below the least high watermark: topic, partition, and what differs."""
    by_id = {broker.broker_id: broker for broker in brokers}
    for topic, state in history.existing():
        offsets = {each: offsets_of(by_id[each], topic, state.index) for each in state.replicas}
        known = {each: found for each, found in offsets.items() if found is not None}
        if not known:
            continue
        start = max(found.log_start for found in known.values())
        end = min(found.high_watermark for found in known.values())
        logs = {each: batches_of(by_id[each].disk.files, topic, state.index, end) for each in known}
        for first, second in pairwise(known):
            if logs[first] == logs[second]:
                continue
            if topic in COMPACTED:
                mine, theirs = values_of(logs[first]), values_of(logs[second])
                differing = [key.hex() for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)]
            else:
                one, other = logs[first], logs[second]
                differing = [
                    str(base)
                    for base in sorted(one.keys() | other.keys())
                    if base >= start and one.get(base) != other.get(base)
                ]
            if differing:
                shown = ", ".join(sorted(differing)[:SHOWN_MAX])
                yield topic, state.index, f"brokers {first} and {second} differ below {end}, at {shown}"


def unequal(brokers: Sequence[SimBroker], history: MetadataHistory) -> list[str]:
    """The partitions whose replicas do not end at the same offset, or have not committed all of it."""
    by_id = {broker.broker_id: broker for broker in brokers}
    found: list[str] = []
    for topic, state in history.existing():
        if len(state.replicas) < 2:
            continue
        ends = {each: offsets_of(by_id[each], topic, state.index) for each in state.replicas}
        bounds = {
            (None, None) if offsets is None else (offsets.high_watermark, offsets.log_end) for offsets in ends.values()
        }
        if len(bounds) > 1 or any(mark != end for mark, end in bounds):
            shown = {
                each: None if offsets is None else (offsets.high_watermark, offsets.log_end)
                for each, offsets in ends.items()
            }
            found.append(f"{topic}-{state.index} (high watermark and log end by broker: {shown})")
    return found


def left_behind(brokers: Sequence[SimBroker], history: MetadataHistory) -> Iterator[tuple[int, str]]:
    """Logs of partitions on brokers that are no replicas of them: broker and log."""
    for broker in brokers:
        names = set(broker.disk.files.list_directory(DATA))
        for topic, state in history.existing():
            log = f"{topic}-{state.index}"
            if log in names and broker.broker_id not in state.replicas:
                yield broker.broker_id, log
