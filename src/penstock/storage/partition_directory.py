"""The directory of one partition (`<topic>-<partition>`): where its files are, and what a failure in it means."""

from contextlib import suppress

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicId, TopicPartition
from penstock.storage import partition_metadata
from penstock.storage.directories import FILE_ERRORS, LogDirectory, said
from penstock.storage.disk import Disk
from penstock.storage.names import PARTITION_METADATA
from penstock.storage.recovery import Finding
from penstock.storage.segment_files import mark_gaps

DAMAGE_ADVICE = "run 'penstock log verify' on it, restore it from a copy, and restart the broker"


class PartitionDirectory:
    """Where a log's files are, shared by all parts of the log. A move to another log directory changes it."""

    __slots__ = ("entry_synced", "log_directory", "made", "offline", "path", "rewrites", "topic_id", "tp")

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        log_directory: LogDirectory,
        path: str,
        *,
        made: bool = True,
        entry_synced: bool = False,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log_directory = log_directory
        self.path = path
        self.made = made
        """Whether the directory exists; a new log has none until its first append."""
        self.entry_synced = entry_synced
        """Whether its entry in the log directory survives a power cut."""
        self.rewrites: int = 0
        """How often files were replaced, truncated or renamed, counted before each change: code that opens them by name
        off the loop compares it afterwards."""
        self.offline: KafkaStorageError | None = None
        """Why this log alone cannot be served until the broker restarts, while others in its log directory can."""

    @property
    def disk(self) -> Disk:
        return self.log_directory.disk

    def make(self) -> None:
        """Create the directory if it does not exist yet. `OSError` when that fails."""
        if self.made:
            return
        self.disk.make_directory(self.path)
        self.disk.write_file(f"{self.path}/{PARTITION_METADATA}", partition_metadata.encode(self.topic_id))
        self.made = True
        self.entry_synced = False

    def sync_topic_id(self) -> None:
        """Sync the topic id of a new directory, whose first flush would do it. `OSError` when that fails."""
        if not self.entry_synced:
            # A log that an earlier version or Kafka wrote may have none.
            with suppress(FileNotFoundError):
                self.disk.open(f"{self.path}/{PARTITION_METADATA}").sync()

    def move_to(self, log_directory: LogDirectory, path: str) -> None:
        """The files are in another log directory now, with a directory entry that is not synced yet."""
        self.log_directory = log_directory
        self.path = path
        self.entry_synced = False

    def allow_gaps(self) -> None:
        """Note on the disk that offsets may be missing between batches, before the first gap is written."""
        try:
            mark_gaps(self.disk, self.path)
        except OSError as error:
            raise self.log_directory.failed(error, f"noting a gap in {self.tp}") from error

    def failed(self, error: OSError, doing: str) -> KafkaStorageError:
        """Handle a file that cannot be opened, and return the error to raise.

        A file with the wrong owner or type takes this log offline; any other error is the log directory's.
        """
        if error.errno in FILE_ERRORS:
            return self.take_offline(
                f"{error.filename or self.path}: {said(error)}", "correct its owner or type, and restart the broker"
            )
        return self.log_directory.failed(error, doing)

    def take_offline(self, reason: str, advice: str = DAMAGE_ADVICE) -> KafkaStorageError:
        """Stop serving this log and leave its log directory online; the error to raise now and at every later use."""
        self.offline = KafkaStorageError(
            f"The log of {self.tp} in {self.path} is offline: {reason}. Other partitions are served; {advice}."
        )
        return self.offline

    def report(self, finding: Finding) -> None:
        """Report a finding of the log's opening, for the broker's own log."""
        if self.log_directory.on_finding is not None:
            self.log_directory.on_finding(self.tp, finding)
