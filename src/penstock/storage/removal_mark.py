"""`removal-mark.json`: the greatest offset of a tombstone or marker that compaction removed from a log.

It is on the disk before the segments are swapped in that lack a removed record, and before a follower appends records
of a log that lacks some. See `penstock.partition.removals`.
"""

from dataclasses import dataclass, replace
from threading import Lock

from penstock.model.ids import NO_OFFSET, Offset
from penstock.model.removals import NO_COPY, CopyStart, Removals
from penstock.storage import notes
from penstock.storage.disk import replace_file
from penstock.storage.names import REMOVAL_MARK
from penstock.storage.notes import NoteDamaged
from penstock.storage.partition_directory import PartitionDirectory
from penstock.storage.recovery import Finding
from penstock.storage.view import LogChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The contents of the file."""

    mark: Offset = NO_OFFSET
    copied: CopyStart = NO_COPY


class RemovalMark:
    """The mark of one log, and from when its records are copied. A compaction raises it off the loop."""

    __slots__ = ("_directory", "_lock", "_revision", "_saved")

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory
        self._saved = Saved()
        self._revision = 0
        self._lock = Lock()
        """Held while the file is written: a compaction and a follower's fetch may both raise the mark."""

    @property
    def removals(self) -> Removals:
        return Removals(self._saved.mark, self._revision)

    @property
    def mark(self) -> Offset:
        return self._saved.mark

    @property
    def copied(self) -> CopyStart:
        """The last copy from the leader's log start that had to be made."""
        return self._saved.copied

    def load(self, log_end: Offset, high_watermark: Offset) -> None:
        """Read the file of a log that ends at `log_end`. Where it is damaged, every committed record may be removed."""
        directory = self._directory
        try:
            saved = decode(directory.disk.read_file(f"{directory.path}/{REMOVAL_MARK}"), directory.topic_id.hex())
        except FileNotFoundError:
            return
        except NoteDamaged as damage:
            path = f"{directory.path}/{REMOVAL_MARK}"
            saved = Saved(mark=Offset(high_watermark - 1))
            detail = f"{damage}; replicas that lag behind {saved.mark} copy the log again"
            directory.report(Finding(event="removal_mark_damaged", path=path, offset=saved.mark, detail=detail))
        # A crash may have left the mark of before a truncation.
        self._saved = replace(saved, mark=Offset(min(saved.mark, log_end - 1)))

    def raise_to(self, mark: Offset, *, rewrites: int) -> None:
        """Raise the mark, on the disk first. `OSError` leaves it as it is. In any thread.

        `LogChanged` when files were replaced or cut since the log's `rewrites` were counted: the mark is of other ones.
        """
        with self._lock:
            if self._directory.rewrites != rewrites:
                raise LogChanged(f"The files in {self._directory.path} have changed while they were compacted.")
            if mark > self._saved.mark:
                self._save(replace(self._saved, mark=mark))

    def lower_to(self, mark: Offset) -> None:
        """Lower the mark, after the log was cut and before the next append."""
        with self._lock:
            if mark < self._saved.mark:
                self._saved = replace(self._saved, mark=mark)
                self._save(self._saved)

    def copy_from_start(self, mark: Offset, copied: CopyStart) -> None:
        """The log was emptied, and copies its leader's from the log start on: save that with the leader's mark."""
        with self._lock:
            self._save(Saved(mark=mark, copied=copied))

    def removed(self) -> None:
        """Segments without some tombstones or markers were swapped in: followers that copy the log begin again."""
        self._revision += 1

    def _save(self, saved: Saved) -> None:
        directory = self._directory
        directory.make()
        fields = {
            "version": 1,
            "topic_id": directory.topic_id.hex(),
            "mark": saved.mark,
            "copied_leader_epoch": saved.copied.leader_epoch,
            "copied_revision": saved.copied.revision,
        }
        replace_file(directory.disk, f"{directory.path}/{REMOVAL_MARK}", notes.encode(fields), sync=True)
        self._saved = saved


def decode(data: bytes, topic_id: str) -> Saved:
    """The contents of a file; `NoteDamaged` where they are not as they were written."""
    note = notes.decode(data)
    try:
        if note["topic_id"] != topic_id:
            # Of a topic of the same name that was deleted while its compaction wrote the file.
            return Saved()
        return Saved(mark=note["mark"], copied=CopyStart(note["copied_leader_epoch"], note["copied_revision"]))
    except KeyError as error:
        raise NoteDamaged(f"it lacks {error}") from error
