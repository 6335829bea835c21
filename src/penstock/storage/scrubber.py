"""Reading finished segments through, now and then, so that damage is found while it can still be mended.

The scrubber changes nothing: with one replica there is nothing to mend from, and a batch that a client refuses is
better than one that is silently missing. It tells the operator which file, where, and what to do.
"""

from dataclasses import dataclass

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicPartition
from penstock.storage.names import LOG, offset_name
from penstock.storage.pace import Pace
from penstock.storage.recovery import Finding
from penstock.storage.store import LogStore
from penstock.storage.view import LogView, SegmentView
from penstock.storage.walk import BadBatch, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubJob:
    """One finished segment to read. Made on the loop, run off it."""

    tp: TopicPartition
    view: LogView
    segment: SegmentView

    def run(self, pace: Pace) -> Finding | None:
        """What is wrong with the segment; None when nothing is, or when it is gone."""
        file = self.view.file(self.segment, LOG)
        if file is None:
            return None
        try:
            for batch in walk(file, 0, self.segment.size, offset_min=self.segment.base, bodies=True):
                pace.done(batch.header.size)
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
    """Goes round all finished segments of a broker, one at a time, for ever."""

    __slots__ = ("_queue", "damaged")

    def __init__(self) -> None:
        self._queue: list[TopicPartition] | None = None
        """Logs still to come in this round; None between rounds."""
        self.damaged: dict[tuple[TopicPartition, int], Finding] = {}
        """Segments found damaged, by partition and base offset, for metrics and for telling each only once."""

    def next_jobs(self, store: LogStore) -> list[ScrubJob]:
        """The finished segments of the next log that has any; empty when a round is over."""
        if self._queue is None:
            self._queue = [log.tp for log in store]
            self._queue.reverse()
        while self._queue:
            log = store.get(self._queue.pop())
            # A log nobody has used since the start is opened for this: rot does not ask who reads.
            if log is None or log.size_bytes == 0 or log.directory.offline is not None:
                continue
            try:
                view = log.view()
            except KafkaStorageError:
                # Opening it has said what is wrong; the others are looked at all the same.
                continue
            if len(view.segments) > 1:
                return [ScrubJob(tp=log.tp, view=view, segment=segment) for segment in view.segments[:-1]]
        self._queue = None
        return []

    def note(self, job: ScrubJob, found: Finding | None) -> bool:
        """Remember what a job found; whether that is news."""
        key = (job.tp, job.segment.base)
        if found is None:
            self.damaged.pop(key, None)
            return False
        news = key not in self.damaged
        self.damaged[key] = found
        return news
