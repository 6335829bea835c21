import json
import shutil
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest
from typer.testing import CliRunner

from penstock.cli.log import row_text, rows_of
from penstock.cli.main import app
from penstock.cli.segment_file import INDEX_ENTRY, TIME_ENTRY, Bad, verify_segment
from penstock.model.ids import TopicId, TopicPartition
from penstock.storage import completeness, summary, txn_index
from penstock.storage.completeness import Contents
from penstock.storage.disk import RealDisk
from penstock.storage.summary import LogSummary
from penstock.storage.txn_index import AbortedTxn
from penstock.wire.records import Record, build_batch, build_marker

RUNNER = CliRunner()
BASE = 100


def batch(offset: int, *values: bytes, codec: int = 0) -> bytes:
    """A batch of records from the given offset on, one millisecond apart."""
    records = [
        Record(
            offset=offset + index, timestamp_ms=1_000 + offset + index, key=b"k", value=value, headers=(("h", b"1"),)
        )
        for index, value in enumerate(values)
    ]
    return bytes(build_batch(records, base_offset=offset, compression=codec))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition's directory with one segment of three batches and its indexes."""
    parts = [batch(100, b"a", b"b"), batch(102, b"c" * 50, codec=3), batch(110, b"d")]
    directory = tmp_path / "orders-0"
    directory.mkdir()
    name = directory / f"{BASE:020d}"
    name.with_suffix(".log").write_bytes(b"".join(parts))
    at = [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    name.with_suffix(".index").write_bytes(INDEX_ENTRY.pack(2, at[1]) + INDEX_ENTRY.pack(10, at[2]) + bytes(80))
    name.with_suffix(".timeindex").write_bytes(TIME_ENTRY.pack(1_102, 2) + TIME_ENTRY.pack(1_110, 10))
    return directory


def segment(partition: Path) -> Path:
    return partition / f"{BASE:020d}.log"


def test_a_valid_segment_is_counted(partition: Path) -> None:
    found = verify_segment(segment(partition))

    assert (found.batches, found.records, found.start, found.next_offset) == (3, 4, 100, 111)


def test_every_flipped_bit_of_a_segment_is_found_in_its_batch(partition: Path) -> None:
    path = segment(partition)
    whole = path.read_bytes()
    # The broker stamps base offset and leader epoch into a batch; its checksum does not cover them.
    checked = [at for at in range(len(batch(100, b"a", b"b"))) if 8 <= at < 12 or at >= 16]

    for position in checked:
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(Bad) as bad:
            verify_segment(path)
        assert bad.value.position == 0


def test_every_cut_of_a_segment_is_found(partition: Path) -> None:
    path = segment(partition)
    whole = path.read_bytes()

    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(Bad):
            verify_segment(path)


def test_offsets_that_go_back_are_found_where_they_do(partition: Path) -> None:
    first = batch(105, b"later")
    segment(partition).write_bytes(first + batch(101, b"earlier"))

    with pytest.raises(Bad, match="base offset 101, after 105") as bad:
        verify_segment(segment(partition))

    assert bad.value.position == len(first)


def test_room_made_in_advance_is_no_damage(partition: Path) -> None:
    path = segment(partition)
    path.write_bytes(path.read_bytes() + bytes(10_000))

    assert verify_segment(path).batches == 3


@pytest.mark.parametrize(
    ("suffix", "content", "complaint"),
    [
        (".index", INDEX_ENTRY.pack(2, 7), "where no batch begins"),
        (".index", INDEX_ENTRY.pack(10, 0), "points at the batch of 100 to 101"),
        (".index", INDEX_ENTRY.pack(1, 0) + INDEX_ENTRY.pack(1, 0), "comes after"),
        (".index", INDEX_ENTRY.pack(1, 0) + b"\x01", "1 bytes are left"),
        (".timeindex", TIME_ENTRY.pack(1_050, 10), "1110 came before it"),
        (".timeindex", TIME_ENTRY.pack(1_110, 900), "is not in the segment"),
        (".timeindex", TIME_ENTRY.pack(1_110, 10) + TIME_ENTRY.pack(1_102, 2), "comes after"),
    ],
)
def test_an_index_that_lies_is_found(partition: Path, suffix: str, content: bytes, complaint: str) -> None:
    segment(partition).with_suffix(suffix).write_bytes(content)

    with pytest.raises(Bad, match=complaint):
        verify_segment(segment(partition))


def test_verify_names_the_first_bad_byte_and_fails(partition: Path) -> None:
    path = segment(partition)
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)

    shown = RUNNER.invoke(app, ["log", "verify", str(partition), "-o", "json"])

    (bad,) = json.loads(shown.stdout)["bad"]
    assert shown.exit_code == 1
    assert bad["position"] == len(whole) - len(batch(110, b"d"))
    assert "checksum of the batch at offset 110" in bad["what"]


def test_verify_walks_a_data_directory_and_sees_segments_that_overlap(partition: Path) -> None:
    shutil.copy(segment(partition), partition / f"{99:020d}.log")

    shown = RUNNER.invoke(app, ["log", "verify", str(partition.parent), "-o", "json"])

    verdict = json.loads(shown.stdout)
    assert [each["start"] for each in verdict["good"]] == [99]
    assert "it begins before offset 111" in verdict["bad"][0]["what"]


def faults(path: Path) -> list[str]:
    """The faults that `log verify` reports, with its exit code."""
    shown = RUNNER.invoke(app, ["log", "verify", str(path), "-o", "json"])
    found = [each["what"] for each in json.loads(shown.stdout)["bad"]]
    assert shown.exit_code == (1 if found else 0)
    return found


def add_segment(partition: Path, base: int) -> None:
    (partition / f"{base:020d}.log").write_bytes(batch(base, b"x"))


def test_verify_misses_a_segment_between_two_others(partition: Path) -> None:
    add_segment(partition, 111)
    add_segment(partition, 113)

    assert faults(partition) == ["offsets 112 to 112 before it are missing"]
    assert faults(partition.parent) == ["offsets 112 to 112 before it are missing"]
    (partition / "offset-gaps").touch()
    assert faults(partition) == []


def test_verify_misses_the_segment_of_an_index(partition: Path) -> None:
    (partition / "offset-gaps").touch()
    for kind in ("log", "index", "timeindex", "txnindex"):
        (partition / f"{200:020d}.{kind}").touch()
    assert faults(partition) == []

    (partition / f"{200:020d}.log").unlink()
    assert len(faults(partition)) == 3
    segment(partition).unlink()
    assert len(faults(partition)) == 5, "also where no segment is left at all"


def test_verify_compares_with_the_last_clean_stop(partition: Path) -> None:
    data = partition.parent
    size = segment(partition).stat().st_size
    summaries = (
        LogSummary(
            tp=tp,
            topic_id=TopicId(bytes(16)),
            log_start=segments[0][0],
            log_end=segments[-1][0] + 1,
            size_bytes=0,
            oldest_ms=-1,
            cleaned_to=0,
            segments=segments,
        )
        for tp, segments in (
            (TopicPartition("orders", 0), ((100, size), (111, 80), (112, 80))),
            (TopicPartition("gone", 0), ((0, 80),)),
        )
    )
    (data / "log-summary-checkpoint").write_bytes(summary.encode(summaries))
    assert faults(data) == [], "a broker that runs, or crashed, left no word on them"

    (data / ".kafka_cleanshutdown").touch()

    missing = [
        f"{111:020d}.log with 80 bytes is missing, as the last broker left it",
        f"{112:020d}.log with 80 bytes is missing, as the last broker left it",
    ]
    assert faults(partition) == missing
    assert faults(data) == [*missing, f"{0:020d}.log with 80 bytes is missing, as the last broker left it"]


def test_the_loss_of_records_is_accepted_only_with_a_confirmation(partition: Path) -> None:
    add_segment(partition, 111)
    assert RUNNER.invoke(app, ["log", "accept-loss", str(partition), "--yes"]).exit_code == 1
    left = Contents(segments=((100, 1), (111, 1), (112, 80)), log_start=100, log_end=113)
    completeness.write_note(RealDisk(), str(partition), left)
    assert faults(partition) == [f"{112:020d}.log with 80 bytes is missing, as the last broker left it"]

    assert RUNNER.invoke(app, ["log", "accept-loss", str(partition)]).exit_code == 1
    done = RUNNER.invoke(app, ["log", "accept-loss", str(partition), "--yes", "-o", "json"])

    assert json.loads(done.stdout)["log_end"] == 113
    assert completeness.read_note(RealDisk(), str(partition)) == replace(left, given_up=True)
    assert faults(partition) == []


def test_dump_shows_batches_records_and_index_entries(partition: Path) -> None:
    path = segment(partition)

    shown = RUNNER.invoke(app, ["log", "dump", str(path), "--records", "-o", "json"])
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    index = RUNNER.invoke(app, ["log", "dump", str(path.with_suffix(".index")), "-o", "json"])
    times = RUNNER.invoke(app, ["log", "dump", str(path.with_suffix(".timeindex")), "-o", "json"])

    batches = [row for row in rows if "base_offset" in row]
    assert [(row["base_offset"], row["last_offset"], row["codec"], row["crc_ok"]) for row in batches] == [
        (100, 101, "none", True),
        (102, 102, "lz4", True),
        (110, 110, "none", True),
    ]
    assert [(row["offset"], row["value"]) for row in rows if "value" in row] == [
        (100, "a"),
        (101, "b"),
        (102, "c" * 50),
        (110, "d"),
    ]
    assert [json.loads(line)["offset"] for line in index.stdout.splitlines()] == [102, 110]
    assert json.loads(times.stdout.splitlines()[0]) == {"timestamp": 1_102, "offset": 102}


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_bytes(pack(">q", 1))

    assert RUNNER.invoke(app, ["log", "dump", str(other)]).exit_code == 1
    assert RUNNER.invoke(app, ["log", "verify", str(other)]).exit_code == 1


def transactional(offset: int, producer_id: int) -> bytes:
    record = Record(offset=offset, timestamp_ms=1_000, key=b"k", value=b"v")
    return bytes(
        build_batch(
            [record],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    made = bytearray(
        build_marker(commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1_000)
    )
    made[:8] = pack(">q", offset)
    return bytes(made)


@pytest.fixture
def transactions(tmp_path: Path) -> Path:
    """A segment in which one producer commits, another aborts, and a third aborts what it began in the one before."""
    path = tmp_path / f"{BASE:020d}.log"
    path.write_bytes(
        transactional(100, 7)
        + transactional(101, 8)
        + marker(102, 7, commit=True)
        + marker(103, 8, commit=False)
        + marker(104, 9, commit=False)
    )
    path.with_suffix(".txnindex").write_bytes(
        txn_index.encode([AbortedTxn(8, 101, 103, 104), AbortedTxn(9, 90, 104, 105)])
    )
    return path


def test_the_index_of_aborted_transactions_is_checked_and_shown(transactions: Path) -> None:
    assert verify_segment(transactions).batches == 5

    shown = RUNNER.invoke(app, ["log", "dump", str(transactions.with_suffix(".txnindex")), "-o", "json"])

    assert [json.loads(line) for line in shown.stdout.splitlines()] == [
        {"producer_id": 8, "first_offset": 101, "last_offset": 103, "last_stable": 104},
        {"producer_id": 9, "first_offset": 90, "last_offset": 104, "last_stable": 105},
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "producer 8 aborted at offset 103 is missing: readers of committed records are shown it"),
        (None, "producer 8 aborted at offset 103 is missing"),
        (txn_index.encode([AbortedTxn(8, 101, 103, 104)])[:-1], "33 bytes are left"),
        (b"\0\1" + txn_index.encode([AbortedTxn(8, 101, 103, 104)])[2:], "has version 1"),
        (txn_index.encode([AbortedTxn(7, 100, 102, 103)]), "producer 7 has aborted nothing at offset 102"),
        (txn_index.encode([AbortedTxn(8, 102, 103, 104)]), "begins at offset 101, not at 102"),
        (txn_index.encode([AbortedTxn(9, 90, 104, 105), AbortedTxn(8, 101, 103, 104)]), "103 comes after 104"),
    ],
)
def test_an_index_of_aborted_transactions_that_lies_is_found(
    transactions: Path, content: bytes | None, complaint: str
) -> None:
    index = transactions.with_suffix(".txnindex")
    if content is None:
        index.unlink()
    else:
        index.write_bytes(content)

    with pytest.raises(Bad, match=complaint):
        verify_segment(transactions)


@pytest.mark.parametrize("codec", range(5))
def test_a_damaged_batch_is_dumped_up_to_where_it_can_be_read(tmp_path: Path, codec: int) -> None:
    whole = batch(BASE, b"a" * 50, b"b", codec=codec)
    path = tmp_path / f"{BASE:020d}.log"
    refused = 0

    for position in range(len(whole)):
        for flipped in (0x01, 0x07, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[position] ^= flipped
            path.write_bytes(damaged)
            try:
                shown = [row_text(row) for row in rows_of(path, records=True)]
                assert shown
            except Bad:
                refused += 1

    assert refused > 0
