"""The scrubber verifies finished segments in the background, so that damage is found while it can be repaired.

The scrubber changes nothing: with one replica there is nothing to repair from, and a batch that a client refuses is
better than one that is silently missing. It reports the file and the position to the operator, and what to do.
"""

from dataclasses import dataclass

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import OFFSET_ZERO, Offset, TopicPartition
from penstock.storage.log import Log
from penstock.storage.names import LOG, offset_name
from penstock.storage.recovery import Finding
from penstock.storage.store import LogStore
from penstock.storage.throttle import Throttle
from penstock.storage.view import LogChanged, LogView, SegmentView
from penstock.storage.walk import BadBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubJob:
    """One finished segment to read. Made on the loop, run off it."""

    tp: TopicPartition
    view: LogView
    segment: SegmentView

    @property
    def is_stale(self) -> bool:
        """Whether files of the log were replaced: a compaction finished, or the log was truncated."""
        return self.view.rewrites_now() != self.view.rewrites

    def run(self, throttle: Throttle) -> Finding | None:
        """The damage in the segment; None when there is none, when it was dropped, or when the log has changed."""
        try:
            file = self.view.file(self.segment, LOG)
            if file is None:
                return None
            for batch in self.view.walk(file, 0, self.segment, bodies=True):
                throttle.done(batch.header.size)
        except LogChanged:
            return None
        except BadBatch as bad:
            return Finding(
                event="segment_damaged",
                path=f"{self.view.path}/{offset_name(self.segment.base, LOG)}",
                offset=bad.offset,
                detail=f"{bad.reason} at position {bad.position}; restore the file from a copy, or stop the broker and "
                "run 'penstock log verify' on it",
                serious=True,
            )
        return None


class Scrubber:
    """Verifies all finished segments of a broker in rounds, one segment at a time."""

    __slots__ = ("_queue", "damaged")

    def __init__(self) -> None:
        self._queue: list[TopicPartition] | None = None
        """Logs still to come in this round; None between rounds."""
        self.damaged: dict[tuple[TopicPartition, Offset], Finding] = {}
        """Segments found damaged, by partition and base offset, for metrics and for logging each only once."""

    def next_jobs(self, store: LogStore) -> list[ScrubJob]:
        """The finished segments of the next log that has any; empty when a round is over."""
        if self._queue is None:
            self._queue = [log.tp for log in store]
            self._queue.reverse()
        while self._queue:
            log = store.get(self._queue.pop())
            jobs = [] if log is None else self._jobs(log, OFFSET_ZERO)
            if jobs:
                return jobs
        self._queue = None
        self._forget_gone(store)
        return []

    def resume(self, store: LogStore, job: ScrubJob) -> list[ScrubJob]:
        """The rest of a log whose files were replaced, from the segment of a job on."""
        log = store.get(job.tp)
        return [] if log is None else self._jobs(log, job.segment.base)

    def _jobs(self, log: Log, base_min: Offset) -> list[ScrubJob]:
        # A log unused since the start is opened for this: its files may be damaged too.
        if log.size_bytes == 0 or log.directory.offline is not None:
            return []
        try:
            view = log.view()
        except KafkaStorageError:
            # Opening it has logged the fault; the scrubber continues with the others.
            return []
        finished = [segment for segment in view.segments[:-1] if segment.base >= base_min]
        return [ScrubJob(tp=log.tp, view=view, segment=segment) for segment in finished]

    def _forget_gone(self, store: LogStore) -> None:
        """Forget damage in segments that were dropped."""
        for tp, base in list(self.damaged):
            log = store.get(tp)
            if log is None or (log.opened and all(segment.base != base for segment in log.segments)):
                del self.damaged[tp, base]

    def note(self, job: ScrubJob, found: Finding | None) -> bool:
        """Record the result of a job; True when it is new damage."""
        key = (job.tp, job.segment.base)
        if found is None:
            self.damaged.pop(key, None)
            return False
        news = key not in self.damaged
        self.damaged[key] = found
        return news
