"""Opens a log at its first use: checks that its files are complete, and recovers it after a crash."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import Offset
from penstock.storage import completeness, recovery
from penstock.storage.completeness import Contents
from penstock.storage.directories import FILE_ERRORS
from penstock.storage.notes import NoteDamaged
from penstock.storage.partition_directory import PartitionDirectory
from penstock.storage.recovery import Finding, Loaded, Stop
from penstock.storage.segment_files import mark_gaps


class LogLoader:
    """The state of a log before it is opened, and the checks that open it."""

    __slots__ = ("_directory", "findings", "left", "stop")

    def __init__(self, directory: PartitionDirectory, stop: Stop, left: Contents | None) -> None:
        self._directory = directory
        self.stop = stop
        """How the last broker on the log stopped; clean once the log is loaded."""
        self.left = left
        """The files that the last broker left, where that is known, until the log is opened."""
        self.findings: list[Finding] = []
        """Findings of the last load."""

    @property
    def is_lost(self) -> bool:
        """Whether the directory of a log of the last broker is missing; opening it records that for later starts."""
        return not self._directory.made and self.left is not None

    def lacks_newest(self) -> bool:
        """Whether the newest segment of the last clean stop is missing or short: a cheap check, for every log."""
        newest = () if self.left is None else self.left.segments[-1:]
        try:
            return bool(completeness.missing_of(self._directory.disk, self._directory.path, newest))
        except OSError as error:
            if error.errno not in FILE_ERRORS:
                raise
            return True

    def check_complete(self, log_end: Offset) -> Contents | None:
        """Refuse a log that lacks files of the last clean stop, until they are back or an operator accepts the loss.

        After an accepted loss, returns the former contents: the log keeps its end, and the rest is verified.
        """
        directory = self._directory
        disk, path = directory.disk, directory.path
        try:
            self.left = completeness.read_note(disk, path) or self.left
            missing = [] if self.left is None else completeness.missing_in(disk, path, self.left)
            if self.left is None or not missing:
                return None
            if not self.left.given_up:
                completeness.note_missing(disk, path, directory.topic_id, self.left)
                directory.made = True
        except OSError as error:
            raise directory.failed(error, f"opening the log of {directory.tp}") from error
        except NoteDamaged as error:
            raise directory.take_offline(
                f"{completeness.NOTE}, which says what it lacks, is damaged ({error}); remove it to serve what is there"
            ) from error
        reason = completeness.in_words(missing, path, self.left)
        if not self.left.given_up:
            directory.report(self._serious("records_missing", log_end, reason))
            raise directory.take_offline(reason)
        detail = f"the log goes on at {self.left.log_end}; {'; '.join(missing)}"
        directory.report(self._serious("records_given_up", log_end, detail))
        # Gaps between the remaining segments are not damage.
        mark_gaps(disk, path)
        self.stop = Stop.MACHINE_CRASH
        return self.left

    def is_incomplete(self, log_end: Offset) -> bool:
        """Whether files of the last clean stop are missing, of a log that other brokers have too. Reports it."""
        directory = self._directory
        try:
            self.left = completeness.read_note(directory.disk, directory.path) or self.left
            missing = [] if self.left is None else completeness.missing_in(directory.disk, directory.path, self.left)
        except NoteDamaged:
            # The note says what is missing, so that something is.
            missing = [f"what {completeness.NOTE} names"]
        except OSError as error:
            raise directory.failed(error, f"opening the log of {directory.tp}") from error
        if missing:
            detail = f"{'; '.join(missing)}; the rest is copied from the leader"
            directory.report(replace(self._serious("replica_files_missing", log_end, detail), restorable=True))
            self.stop = Stop.MACHINE_CRASH
        return bool(missing)

    def report_unsynced(self, offset: Offset, log_end: Offset) -> None:
        """Report that a replica is cut because its disk may lack what the page cache shows."""
        detail = f"records up to {log_end} may not be on the disk, and are copied from the leader"
        finding = replace(self._serious("replica_unsynced", offset, detail), restorable=True)
        self.findings.append(finding)
        self._directory.report(finding)

    def _serious(self, event: str, offset: Offset, detail: str) -> Finding:
        return Finding(event=event, path=self._directory.path, offset=offset, detail=detail, serious=True)

    def recovery(
        self,
        *,
        log_start: Offset,
        recovery_point: Offset,
        high_watermark: Offset,
        interval: int,
        whole: bool = False,
        replicated: bool = False,
    ) -> Callable[[], Loaded]:
        """The work of reading the directory and repairing it, which may run off the loop. See `recovery.load`."""
        return partial(
            recovery.load,
            self._directory.disk,
            self._directory.path,
            stop=self.stop,
            log_start=log_start,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
            interval=interval,
            whole=whole,
            replicated=replicated,
        )

    def loaded(self, found: Loaded) -> None:
        """Apply a successful recovery: later loads of the same files have no crash to repair."""
        self.stop = Stop.CLEAN
        self.findings = found.findings
        for finding in found.findings:
            self._directory.report(finding)

    def opened(self) -> None:
        """The log is complete and in use: forget the files of the last clean stop."""
        if self.left is not None:
            completeness.forget_note(self._directory.disk, self._directory.path)
            self.left = None

    def refusal(self, error: Exception) -> KafkaStorageError:
        """The error to raise for a failed recovery.

        A failing disk takes the log directory offline, anything else this log alone.
        """
        if isinstance(error, OSError):
            return self._directory.failed(error, f"opening the log of {self._directory.tp}")
        return self._directory.take_offline(f"{type(error).__name__}: {error}")
