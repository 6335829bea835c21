"""A log compared with a list of batches, after any sequence of operations."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.storage.logs import ManualClock, Settings, batch_of, directory_of, log_on, put, read_all, read_from

from penstock.model.generated_errors import OffsetOutOfRange
from penstock.storage.recovery import Stop
from penstock.storage.retention import retain
from penstock.storage.trash import Trash
from penstock.testing.mem_disk import MemDisk
from penstock.wire.records import Record, decode_records, parse_batch_header


class LogMachine(RuleBasedStateMachine):
    """The model is a list of batches, each a list of records, and two offsets."""

    @initialize(
        segment_bytes=st.sampled_from([250, 700, 5000]),
        interval=st.sampled_from([0, 150, 4096]),
        files_max=st.sampled_from([1, 100]),
    )
    def start(self, segment_bytes: int, interval: int, files_max: int) -> None:
        self.disk = MemDisk()
        self.clock = ManualClock()
        self.settings = Settings(
            segment_bytes_effective=segment_bytes, index_interval_bytes=interval, retention_ms=-1, segment_ms=500
        )
        self.directory = directory_of(self.disk, files_max)
        self.trash = Trash(self.disk)
        self.log = log_on(self.disk, self.settings, directory=self.directory, clock=self.clock)
        self.batches: list[list[Record]] = []
        self.log_start = self.log_end = 0
        self.epoch = 0

    @rule(
        count=st.integers(1, 4),
        timestamps=st.lists(st.integers(0, 2000), min_size=4, max_size=4),
        codec=st.sampled_from([0, 0, 3]),
    )
    def append(self, count: int, timestamps: list[int], codec: int) -> None:
        values = [b"%d" % (self.log_end + at) for at in range(count)]
        batch = batch_of(*values, timestamps=timestamps[:count], codec=codec)

        base = put(self.log, batch, self.epoch)

        assert base == self.log_end
        self.batches.append(decode_records(bytes(batch)))
        self.log_end += count

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.log_end))

        self.log.truncate_to(offset)

        if offset < self.log_end:
            self.batches = [batch for batch in self.batches if batch[-1].offset < offset]
            self.log_end = offset
            if offset == self.log_start:
                self.batches = []

    @rule(data=st.data())
    def delete_before(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.log_end))

        self.log.delete_before(offset)
        retain(self.log, self.clock.now_ms(), committed=self.log_end, trash=self.trash)

        self.log_start = offset

    @rule(stop=st.sampled_from(list(Stop)))
    def reopen(self, stop: Stop) -> None:
        if stop is Stop.CLEAN:
            self.log.close()
        else:
            self.log.abandon()

        self.log = log_on(
            self.disk,
            self.settings,
            directory=self.directory,
            clock=self.clock,
            stop=stop,
            log_start=self.log_start,
            recovery_point=self.log.recovery_point,
        )

        if not self.log.segments:
            self.log.log_end = self.log_end

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.log_end

    @rule()
    def release(self) -> None:
        self.log.segments.release()

    @rule(data=st.data(), bytes_max=st.integers(1, 2000))
    def read_anywhere(self, data: st.DataObject, bytes_max: int) -> None:
        offset = data.draw(st.integers(self.log_start, self.log_end))
        end = data.draw(st.sampled_from([self.log_end, self.log_end, self.log_start, (offset + self.log_end) // 2]))

        found = self.log.slice(offset, bytes_max, end=end, at_least_one=True)

        visible = [b for b in self.batches if b[-1].offset >= offset and b[-1].offset < end]
        if not visible or offset >= end:
            assert found is None
            return
        assert found is not None
        first = parse_batch_header(found.contents())
        assert first.base_offset == visible[0][0].offset
        assert len(found) <= max(bytes_max, first.size)

    @rule(timestamp=st.integers(-1, 2100))
    def find_time(self, timestamp: int) -> None:
        found = self.log.view().offset_for_time(timestamp)

        records = [record for batch in self.batches for record in batch if record.offset >= self.log_start]
        expected = next(((r.timestamp_ms, r.offset) for r in records if r.timestamp_ms >= timestamp), None)
        assert (found and (found.timestamp, found.offset)) == expected

    @rule()
    def find_newest(self) -> None:
        if self.log_start == 0:
            found = self.log.view().max_timestamp()
            records = [record for batch in self.batches for record in batch]
            best = max(records, key=lambda record: (record.timestamp_ms, -record.offset), default=None)
            assert (found and (found.timestamp, found.offset)) == (best and (best.timestamp_ms, best.offset))

    @precondition(lambda self: self.log_start > 0)
    @rule()
    def read_before_the_start(self) -> None:
        with pytest.raises(OffsetOutOfRange):
            self.log.slice(self.log_start - 1, 100, end=self.log_end, at_least_one=True)

    @invariant()
    def reads_like_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start, self.log.log_end) == (self.log_start, self.log_end)
        expected = [record for batch in self.batches for record in batch if record.offset >= self.log_start]
        assert read_all(self.log, 600) == expected
        assert [h.base_offset for h in self.log.view().batches(self.log_start)] == [
            batch[0].offset for batch in self.batches if batch[-1].offset >= self.log_start
        ]
        assert len(self.directory.files) <= self.directory.files.files_max


TestLogModel = LogMachine.TestCase
TestLogModel.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_reading_below_an_end_inside_a_batch_leaves_that_batch_out():
    log = log_on(MemDisk())
    put(log, batch_of(b"a", b"b", b"c"))

    assert read_from(log, 0, end=2) == []
