"""What a fetch of a view sends, against a model: logs of every kind of batch, and consumers that read views of them.

The rules are V1 to V5 of docs/invariants.md. Each has an ablation, which the same check must catch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.model.generated_errors import CorruptMessage
from penstock.model.ids import CoordinatorEpoch, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from penstock.storage.txn_index import AbortedTxn
from penstock.views import look as look_module
from penstock.views.conditions import Condition, compiled
from penstock.views.form import packed
from penstock.views.language import parse
from penstock.views.look import Look, TooHeavy, unlimited
from penstock.wire.records import (
    ABORT_MARKER,
    Record,
    build_batch,
    build_marker,
    decode_records,
    empty_batch,
    filter_batch,
    iter_batches,
    parse_batch_header,
    parse_marker,
)

FILTER = "value.n % 3 = 0 AND value.kind = 'match'"
CONDITION = Condition(parse(FILTER))
NEVER = Condition(parse("value.kind = 'nothing has this'"))
PRODUCERS = (7, 8)


def passes(record: Record) -> bool:
    """The filter, once more and by hand."""
    found = json.loads(record.value or b"{}")
    return "n" in found and found["n"] % 3 == 0 and found.get("kind") == "match"


class Txn(NamedTuple):
    producer: int
    first: int


class Log:
    """A log made of steps, with what its leader knows of transactions."""

    def __init__(self, steps: Sequence[tuple[str, int, int]], codec: int) -> None:
        self.batches: list[bytes] = []
        self.aborted: list[AbortedTxn] = []
        self.records: list[tuple[Record, int | None]] = []
        """Every data record, and the producer of its transaction."""
        self.markers: list[int] = []
        self.end = 0
        self._codec = codec
        self._open: dict[int, int] = {}
        self._outcomes: list[tuple[Txn, int, bool]] = []
        for kind, size, of in steps:
            getattr(self, kind)(size, PRODUCERS[of % 2])

    @property
    def last_stable(self) -> int:
        return min(self._open.values(), default=self.end)

    def readable(self, *, committed: bool) -> list[int]:
        """Offsets of the records that a reader of the view gets."""
        if not committed:
            return [record.offset for record, _ in self.records if passes(record)]
        return [
            record.offset
            for record, producer in self.records
            if passes(record) and record.offset < self.last_stable and not self._is_aborted(record.offset, producer)
        ]

    def _is_aborted(self, offset: int, producer: int | None) -> bool:
        return any(
            txn.producer == producer and txn.first <= offset < end and not committed
            for txn, end, committed in self._outcomes
        )

    def _data(self, size: int, producer: int | None) -> bytearray:
        batch = [
            Record(self.end + at, 1000 + self.end + at, b"k", value_of(self.end + at), (("h", b"x"),))
            for at in range(size)
        ]
        self.records += [(record, producer) for record in batch]
        made = build_batch(
            batch,
            base_offset=Offset(self.end),
            compression=self._codec,
            producer_id=ProducerId(-1 if producer is None else producer),
            producer_epoch=ProducerEpoch(0),
            base_sequence=0,
            is_transactional=producer is not None,
            leader_epoch=LeaderEpoch(self.end // 10),
        )
        self.end += size
        return made

    def plain(self, size: int, _: int) -> None:
        self.batches.append(bytes(self._data(size, None)))

    def transactional(self, size: int, producer: int) -> None:
        self._open.setdefault(producer, self.end)
        self.batches.append(bytes(self._data(size, producer)))

    def compacted(self, size: int, _: int) -> None:
        """A batch of which compaction left every second record."""
        made = self._data(size + 1, None)
        kept = [at % 2 == 0 for at in range(size + 1)]
        gone = {self.end - size - 1 + at for at in range(size + 1) if not kept[at]}
        self.records = [each for each in self.records if each[0].offset not in gone]
        self.batches.append(bytes(filter_batch(made, kept)))

    def emptied(self, size: int, _: int) -> None:
        """A batch of which compaction left the header."""
        made = self._data(size, None)
        self.records = [each for each in self.records if each[0].offset < self.end - size]
        self.batches.append(bytes(empty_batch(parse_batch_header(made))))

    def hole(self, size: int, _: int) -> None:
        self.end += size

    def commit(self, _: int, producer: int) -> None:
        self._mark(producer, commit=True)

    def abort(self, _: int, producer: int) -> None:
        self._mark(producer, commit=False)

    def _mark(self, producer: int, *, commit: bool) -> None:
        marker = build_marker(
            commit=commit,
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=CoordinatorEpoch(0),
            timestamp_ms=5,
        )
        marker[:8] = self.end.to_bytes(8, "big")
        first = self._open.pop(producer, None)
        if first is not None:
            self._outcomes.append((Txn(producer, first), self.end, commit))
            if not commit:
                self.aborted.append(AbortedTxn(ProducerId(producer), Offset(first), Offset(self.end), Offset(first)))
        self.markers.append(self.end)
        self.end += 1
        self.batches.append(bytes(marker))

    def piece(self, at: int, end: int, count: int) -> bytes:
        """Up to `count` whole batches from the one that holds an offset, below another."""
        found = [
            batch
            for batch in self.batches
            if at <= parse_batch_header(batch).last_offset and parse_batch_header(batch).last_offset < end
        ]
        return b"".join(found[:count])

    def aborted_within(self, at: int, piece: bytes) -> list[AbortedTxn]:
        """What a read of a piece from an offset on names: a transaction that ended before it is of no other records."""
        end = max(header.next_offset for _, header in iter_batches(piece))
        return [each for each in self.aborted if each.last_offset >= at and each.first_offset < end]


def value_of(offset: int) -> bytes:
    kind = "match" if offset % 4 else "m\\u0061tch" if offset % 8 else "other"
    return b'{"n": %d, "kind": "%s"}' % (offset, kind.encode())


class Consumer:
    """Reads batches as Kafka's clients do."""

    def __init__(self, *, committed: bool) -> None:
        self.position = 0
        self.got: list[int] = []
        self.bytes: dict[int, Record] = {}
        self.markers: list[int] = []
        self._committed = committed

    def take(self, answer: bytes, aborted: Iterable[AbortedTxn]) -> None:
        pending = sorted(aborted, key=lambda each: each.first_offset)
        skipped: set[int] = set()
        for start, header in iter_batches(answer):
            batch = answer[start : start + header.size]
            if header.last_offset < self.position:
                continue
            while pending and pending[0].first_offset <= header.last_offset:
                skipped.add(pending.pop(0).producer_id)
            if header.is_control:
                [record] = decode_records(batch)
                if header.producer_id >= 0:
                    self.markers.append(record.offset)
                if parse_marker(record)[0] == ABORT_MARKER:
                    skipped.discard(header.producer_id)
                self.position = record.offset + 1
                continue
            if not (self._committed and header.is_transactional and header.producer_id in skipped):
                for record in decode_records(batch):
                    if record.offset >= self.position:
                        self.got.append(record.offset)
                        self.bytes[record.offset] = record
                        # librdkafka's position: neither the batch's last offset nor an empty batch moves it further.
                        self.position = record.offset + 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["plain", "plain", "transactional", "transactional", "commit", "abort", "compacted", "emptied", "hole"]
        ),
        st.integers(1, 6),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=14,
)


def read_view(
    log: Log, *, committed: bool, fetches: Iterator[tuple[int, int, int]], condition: Condition = CONDITION
) -> Consumer:
    """Read a view to its end: in fetches of some pieces of some batches, with room for some bytes."""
    consumer = Consumer(committed=committed)
    end = log.last_stable if committed else log.end
    # A hole at the end of a log is one for readers of the parent too.
    headers = map(parse_batch_header, log.batches)
    last = max((header.next_offset for header in headers if header.last_offset < end), default=0)
    for _ in range(10_000):
        if consumer.position >= last:
            return consumer
        pieces, batches, room = next(fetches)
        look = Look(condition, 0, Offset(consumer.position), LeaderEpoch(0))
        for _ in range(pieces):
            data = log.piece(look.at, end, batches)
            if not data or look.is_full:
                break
            heavy = look.at % 2 == 0
            aborted = log.aborted_within(look.at, data) if committed else ()
            try:
                look.through(data, aborted=aborted, room_bytes=room, hold=unlimited if heavy else None)
            except TooHeavy:
                look.through(data, aborted=aborted, room_bytes=room, hold=unlimited)
        before = consumer.position
        consumer.take(look.records(), cast("Iterable[AbortedTxn]", look.aborted.values()))
        assert consumer.position >= look.at, f"V1: at {consumer.position} of {look.at} looked at"
        assert consumer.position > before, f"V2: the position rests at {before} of {last}"
    raise AssertionError("V2: the end is not reached")


def check(log: Log, *, committed: bool, fetches: Iterator[tuple[int, int, int]]) -> None:
    consumer = read_view(log, committed=committed, fetches=fetches)
    assert consumer.got == log.readable(committed=committed), "V4"
    originals = {record.offset: record for record, _ in log.records}
    for offset, record in consumer.bytes.items():
        assert (record.timestamp_ms, record.key, record.value, tuple(record.headers)) == (
            originals[offset].timestamp_ms,
            originals[offset].key,
            originals[offset].value,
            tuple(originals[offset].headers),
        ), "V4"
    end = log.last_stable if committed else log.end
    assert consumer.markers == [each for each in log.markers if each < end], "V3"


def check_agreement(log: Log, *, committed: bool, fetches: Sequence[tuple[int, int, int]]) -> None:
    """Two readers get the same: one in these fetches, one all at once from a broker that was started later."""
    one = read_view(log, committed=committed, fetches=cycled(fetches))
    stored = compiled(json.loads(json.dumps(packed(parse(FILTER)))))
    other = read_view(log, committed=committed, fetches=cycled([(1, 1_000, 1 << 20)]), condition=stored)
    assert (one.got, one.bytes, one.markers, one.position) == (
        other.got,
        other.bytes,
        other.markers,
        other.position,
    ), "V5: two readers differ"


FETCHES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 5), st.sampled_from([1, 200, 1 << 20])), min_size=1, max_size=6
)


def cycled(fetches: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    while True:
        yield from fetches


@settings(max_examples=250, deadline=None)
@given(steps=STEPS, codec=st.sampled_from([0, 0, 3, 4]), committed=st.booleans(), fetches=FETCHES)
def test_readers_of_a_view_get_what_matches_and_reach_the_end(
    steps: list[tuple[str, int, int]], codec: int, committed: bool, fetches: list[tuple[int, int, int]]
) -> None:
    check(Log(steps, codec), committed=committed, fetches=cycled(fetches))
    check_agreement(Log(steps, codec), committed=committed, fetches=fetches)


def test_a_transaction_that_ended_before_a_fetch_is_not_named_in_it() -> None:
    """The next transaction of the same producer would be skipped with it."""
    steps = [("transactional", 1, 0), ("abort", 1, 0), ("transactional", 2, 0), ("commit", 1, 0)]

    check(Log(steps, 0), committed=True, fetches=cycled([(1, 1, 1)]))


def without_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Look, "_pass_over", lambda self, header, after=-1: None)


def empty_batches_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def emptied(self: Look) -> bytearray:
        header = parse_batch_header(build_batch([Record(self._run_last, 0, None, None)], base_offset=self._run_first))
        return empty_batch(header)

    monkeypatch.setattr(Look, "_advance", emptied)


def ends_of_batches_unheeded(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Look._pass_over
    monkeypatch.setattr(Look, "_pass_over", lambda self, header, after=-1: after < 0 and original(self, header))


def runs_across_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Look.through

    def through(self: Look, data: bytes, **given: object) -> None:
        for start, header in iter_batches(data):
            if header.is_control and header.last_offset >= self.at and self._run_first >= 0:
                self._pass_over(header)
                self.at = header.next_offset
            else:
                original(self, data[start : start + header.size], **given)  # type: ignore[arg-type]

    monkeypatch.setattr(Look, "through", through)


def answer_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Look.records
    monkeypatch.setattr(Look, "records", lambda self: b"".join(self._parts) or original(self))


def escapes_unheeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "hides", lambda *_: False)


def one_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    original = look_module.candidates
    monkeypatch.setattr(look_module, "candidates", lambda *given: list(original(*given))[:1])


def depends_on_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Look._matching

    def matching(self: Look, among: Iterable[int]) -> Iterator[int]:
        return (at for at in original(self, among) if (self._row.offset - self.begin) % 5 != 4)

    monkeypatch.setattr(Look, "_matching", matching)


ABLATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "V1: the answer ends before the last run": answer_stops_early,
    "V1, V2: nothing is sent for batches of which none pass": without_advance,
    "V1, V2: empty batches are sent for them": empty_batches_instead,
    "V1, V2: nothing is sent for what follows the last record that passes": ends_of_batches_unheeded,
    "V3: a run goes on across a marker": runs_across_markers,
    "V4: a literal is looked for in JSON with escapes": escapes_unheeded,
    "V4: only the first record with the literal is looked at": one_candidate,
    "V5: what passes depends on where the reader began": depends_on_the_reader,
}


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_the_check_catches(ablation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ABLATIONS[ablation](monkeypatch)

    @settings(
        max_examples=300,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(steps=STEPS, codec=st.sampled_from([0, 3]), committed=st.booleans(), fetches=FETCHES)
    def attempt(
        steps: list[tuple[str, int, int]], codec: int, committed: bool, fetches: list[tuple[int, int, int]]
    ) -> None:
        if ablation.startswith("V5"):
            check_agreement(Log(steps, codec), committed=committed, fetches=fetches)
        else:
            check(Log(steps, codec), committed=committed, fetches=cycled(fetches))

    with pytest.raises(AssertionError, match=ablation.split(":")[0].replace(", ", "|")):
        attempt()


def test_a_batch_of_which_all_pass_is_sent_as_it_is() -> None:
    batch = bytes(build_batch([Record(0, 5, None, b'{"n": 3, "kind": "match"}')], compression=4))
    look = Look(CONDITION, 0, Offset(0), LeaderEpoch(0))

    look.through(batch, room_bytes=1 << 20)

    assert look.records() == batch
    assert (look.tally.records, look.tally.records_passed) == (1, 1)


def test_records_that_are_no_json_do_not_match_and_are_counted() -> None:
    condition = Condition(parse("value.n > 1 OR value.n IS NULL"))
    values = [b"no json", b'{"n": 2}', b'{"n": "text"}', b"{}", None]
    batch = bytes(build_batch([Record(at, 5, None, value) for at, value in enumerate(values)]))
    look = Look(condition, 0, Offset(0), LeaderEpoch(0))

    look.through(batch, room_bytes=1 << 20)

    assert [record.offset for record in decode_records(look.records())] == [0, 1, 3, 4]
    assert (look.tally.undecodable, look.tally.failed) == (1, 1)


def test_a_long_run_is_one_advance_batch() -> None:
    batches = [
        bytes(build_batch([Record(at, 5, None, b'{"kind": "x"}')], base_offset=Offset(at), leader_epoch=LeaderEpoch(3)))
        for at in range(100)
    ]
    look = Look(NEVER, 0, Offset(20), LeaderEpoch(3))

    look.through(b"".join(batches[20:]), room_bytes=0, at_least_one=False)

    [(_, header)] = iter_batches(look.records())
    assert (header.base_offset, header.last_offset, header.leader_epoch, header.producer_id) == (20, 99, 3, -1)
    assert header.is_control
    assert not look.is_full
    assert look.tally.batches_opened == 0, "the literal is in none of them"


def test_a_corrupt_batch_fails_where_a_read_begins_with_it() -> None:
    good = bytes(build_batch([Record(0, 5, None, b'{"n": 3, "kind": "match"}')], compression=4))
    bad = bytearray(build_batch([Record(1, 5, None, b'{"n": 6}')], base_offset=Offset(1), compression=4))
    bad[61:] = bytes(len(bad) - 61)
    look = Look(CONDITION, 0, Offset(0), LeaderEpoch(0))

    look.through(good + bytes(bad), room_bytes=1 << 20, hold=unlimited)
    assert (look.at, look.records()) == (1, good)

    with pytest.raises(CorruptMessage, match="offset 1"):
        Look(CONDITION, 0, Offset(1), LeaderEpoch(0)).through(bytes(bad), room_bytes=1 << 20, hold=unlimited)


def test_a_batch_that_has_rotted_is_not_sent_with_a_new_checksum() -> None:
    """The records that pass are sent as another batch, of which a client could not tell."""
    values = [b'{"n": 3, "kind": "match"}', b'{"n": 4, "kind": "match"}']
    batch = bytearray(build_batch([Record(at, 5, None, value) for at, value in enumerate(values)]))
    batch[batch.index(b"3")] = ord("6")
    look = Look(CONDITION, 0, Offset(0), LeaderEpoch(0))

    with pytest.raises(CorruptMessage, match="offset 0: the checksum is wrong"):
        look.through(bytes(batch), room_bytes=1 << 20)
    assert look.records() == b""


def test_what_is_no_batch_fails_where_a_read_begins_with_it() -> None:
    good = bytes(build_batch([Record(0, 5, None, b'{"n": 3, "kind": "match"}')]))
    look = Look(CONDITION, 0, Offset(0), LeaderEpoch(0))

    look.through(good + bytes(100), room_bytes=1 << 20)
    assert (look.at, look.is_full, look.records()) == (1, True, good)

    with pytest.raises(CorruptMessage, match="offset 1"):
        Look(CONDITION, 0, Offset(1), LeaderEpoch(0)).through(bytes(100), room_bytes=1 << 20)


def test_a_bomb_is_left_to_a_thread() -> None:
    bomb = bytes(build_batch([Record(0, 5, None, b" " * (8 << 20))], compression=4))
    assert len(bomb) < 8_000
    look = Look(CONDITION, 0, Offset(0), LeaderEpoch(0))

    with pytest.raises(TooHeavy):
        look.through(bomb, room_bytes=1 << 20)

    look.through(bomb, room_bytes=1 << 20, hold=unlimited)
    assert look.at == 1
