"""Kafka's DumpLogSegments reads the files: logs, indexes, snapshots, aborted transactions, compacted segments."""

import re
import subprocess

import pytest
from tests.unit.storage.logs import Settings, batch_of, log_on, put

from penstock.model.producers import ProducerSnapshot
from penstock.storage import compaction, txn_index
from penstock.storage.disk import RealDisk
from penstock.storage.trash import Trash
from penstock.storage.txn_index import AbortedTxn
from penstock.testing.apache_kafka import tool_command
from penstock.wire.records import Record, build_batch, build_marker

pytestmark = [pytest.mark.needs("kafka-jars"), pytest.mark.slow]


def dump(*paths: str, deep: bool = False) -> str:
    arguments = ["--files", ",".join(paths), *(["--print-data-log"] if deep else [])]
    command = tool_command("org.apache.kafka.tools.DumpLogSegments", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kafka_reads_segments_indexes_and_snapshots(tmp_path):
    log = log_on(RealDisk(), Settings(segment_bytes_effective=30_000, index_interval_bytes=1000), path=str(tmp_path))
    log.producers = lambda: [ProducerSnapshot(7, 3, 11, log.log_end - 1, 1, 5_000, 2, -1)]
    for at in range(300):
        batch = batch_of(b"v%d" % at, b"w" * 100, timestamps=at * 10, codec=at % 5, producer_id=7, sequence=at * 2)
        put(log, batch, epoch=at // 100)
    log.close()
    names = sorted(path.name for path in tmp_path.iterdir() if path.name[0] == "0")
    assert len([name for name in names if name.endswith(".log")]) >= 2

    output = dump(*(str(tmp_path / name) for name in names), deep=True)

    assert "Found timestamp mismatch" not in output
    assert "Mismatches" not in output
    assert "does not" not in output
    assert re.findall(r"isvalid: (\w+)", output) == ["true"] * 300
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)] == list(range(600))
    assert re.findall(r"partitionLeaderEpoch: (\d+)", output) == [str(at // 100) for at in range(300)]
    assert "producerId: 7 producerEpoch: 3 coordinatorEpoch: 2" in output


def test_kafka_reads_compacted_segments_and_aborted_transactions(tmp_path):
    config = Settings(
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.0,
        segment_bytes_effective=50_000,
        index_interval_bytes=500,
    )
    log = log_on(RealDisk(), config, path=str(tmp_path))
    for at in range(200):
        put(log, batch_of(b"v%d" % at, None, keys=[b"a%d" % (at % 20), b"b%d" % (at % 30)], codec=at % 5))
    first = put(
        log,
        build_batch(
            [Record(0, 0, b"k", b"aborted")],
            producer_id=9,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ),
    )
    marker = build_marker(commit=False, producer_id=9, producer_epoch=0, coordinator_epoch=4, timestamp_ms=0)
    last = put(log, marker)
    aborted = AbortedTxn(9, first, last, first)
    txn_index.append(log.directory.disk, f"{tmp_path}/{0:020d}.txnindex", aborted)
    log.roll()
    due = compaction.plan(log, 1_000, stable=log.log_end, keys_max=1000)
    assert due is not None
    due.run(log, Trash(log.directory.disk))
    log.close()
    names = [f"{0:020d}{kind}" for kind in (".log", ".index", ".timeindex", ".txnindex")]

    output = dump(*(str(tmp_path / name) for name in names), deep=True)

    assert "Mismatches" not in output
    assert "does not" not in output
    assert set(re.findall(r"isvalid: (\w+)", output)) == {"true"}
    kept = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    values = range(180, 200)
    tombstones = range(170, 200)
    assert kept == sorted([at * 2 for at in values] + [at * 2 + 1 for at in tombstones] + [last])
    assert "deleteHorizonMs: OptionalLong[86401000]" in output
    assert "endTxnMarker: ABORT coordinatorEpoch: 4" in output
    assert f"producerId: 9 firstOffset: {first} lastOffset: {last}" in output
