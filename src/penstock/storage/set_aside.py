"""Stray logs: set aside because the metadata does not know their topic, or another copy has more records.

No client deleted them, so a broker renames their directories to `<topic>-<partition>.<id>-stray` and never removes
them. A note in the directory has the topic, the reason and the log's checkpoints. A log whose topic the metadata has
again (a restored copy, `penstock log adopt`) is restored at the next start.
"""

import contextlib
from dataclasses import dataclass, replace
from enum import Enum

from penstock.model.ids import OFFSET_ZERO, TOPIC_ID_ZERO, Offset, TopicId, TopicPartition
from penstock.storage import notes, partition_metadata
from penstock.storage.disk import Disk, replace_file
from penstock.storage.names import (
    PARTITION_METADATA,
    STRAY_DIRECTORY,
    marked_name,
    parse_partition_name,
    partition_name,
)
from penstock.storage.recovery import Stop
from penstock.storage.segment_files import unlink_if_there

NOTE = "set-aside.json"


class Reason(Enum):
    """Why a log is not in use."""

    UNKNOWN_TOPIC = "unknown topic"
    """The metadata has no topic with its id."""
    SECOND_COPY = "second copy"
    """Another log directory has more of the same partition."""
    ADOPTED = "adopted"
    """An operator gave it to a topic; the next start restores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayLog:
    """A log that was set aside, and its state at that time."""

    path: str
    tp: TopicPartition
    topic_id: TopicId
    reason: Reason
    stop: Stop = Stop.MACHINE_CRASH
    """How the broker that last used it stopped, if it has not been recovered since."""
    log_start: Offset = OFFSET_ZERO
    recovery_point: Offset = OFFSET_ZERO
    high_watermark: Offset = OFFSET_ZERO
    cleaned_to: Offset = OFFSET_ZERO
    damage: str | None = None
    """Description of the damage to its note, if any."""

    @property
    def is_restorable(self) -> bool:
        """Whether it is the log of its topic id: a second copy lacks records, so only an operator may choose it."""
        return self.reason is not Reason.SECOND_COPY


def set_aside(disk: Disk, log: StrayLog, unique: str) -> StrayLog:
    """Rename a log's directory out of the way, with a note inside; returns the stray log."""
    # On a full disk the log is set aside without a note; only an operator can restore it then.
    with contextlib.suppress(OSError):
        write_note(disk, log)
    home = log.path.rpartition("/")[0]
    aside = f"{home}/{marked_name(log.tp, STRAY_DIRECTORY, unique)}"
    disk.rename(log.path, aside)
    disk.sync_directory(home)
    return replace(log, path=aside)


def restore(disk: Disk, log: StrayLog, tp: TopicPartition) -> str:
    """Rename the directory to the partition's name; returns its path. The note stays until `forget_note`."""
    home = log.path.rpartition("/")[0]
    path = f"{home}/{partition_name(tp)}"
    disk.rename(log.path, path)
    disk.sync_directory(home)
    return path


def write_note(disk: Disk, log: StrayLog) -> None:
    note = {
        "version": 1,
        "topic": log.tp.topic,
        "partition": log.tp.partition,
        "topic_id": log.topic_id.hex(),
        "reason": log.reason.value,
        "stop": log.stop.value,
        "log_start": log.log_start,
        "recovery_point": log.recovery_point,
        "high_watermark": log.high_watermark,
        "cleaned_to": log.cleaned_to,
    }
    replace_file(disk, f"{log.path}/{NOTE}", notes.encode(note), sync=True)


def forget_note(disk: Disk, path: str) -> None:
    """Remove the note of a log that is in use again: the checkpoints have its contents."""
    unlink_if_there(disk, f"{path}/{NOTE}")


def find(disk: Disk, directory: str) -> list[StrayLog]:
    """The logs that are set aside in a log directory."""
    found = (read(disk, f"{directory}/{name}") for name in sorted(disk.list_directory(directory)))
    return [log for log in found if log is not None]


def read(disk: Disk, path: str) -> StrayLog | None:
    """The stray log at a path; None when there is none, or when its partition is unknown."""
    name = path.rpartition("/")[2]
    if not name.endswith(STRAY_DIRECTORY):
        return None
    try:
        note = notes.decode(disk.read_file(f"{path}/{NOTE}"))
        return StrayLog(
            path=path,
            tp=TopicPartition(note["topic"], note["partition"]),
            topic_id=TopicId(bytes.fromhex(note["topic_id"])),
            reason=Reason(note["reason"]),
            stop=Stop(note["stop"]),
            log_start=note["log_start"],
            recovery_point=note["recovery_point"],
            high_watermark=note["high_watermark"],
            cleaned_to=note["cleaned_to"],
        )
    except (FileNotFoundError, NotADirectoryError):
        # Set aside by an earlier version or by hand.
        return _without_note(disk, path, None)
    except (ValueError, KeyError, TypeError, IsADirectoryError, PermissionError) as error:
        return _without_note(disk, path, f"{type(error).__name__}: {error}")


def _without_note(disk: Disk, path: str, damage: str | None) -> StrayLog | None:
    """A stray log without a note, as its directory name describes it."""
    tp = parse_partition_name(path.rpartition("/")[2].removesuffix(STRAY_DIRECTORY).rpartition(".")[0])
    topic_id = read_topic_id(disk, path)
    if tp is None or topic_id is None:
        return None
    return StrayLog(path=path, tp=tp, topic_id=topic_id, reason=Reason.SECOND_COPY, damage=damage)


def read_topic_id(disk: Disk, path: str) -> TopicId | None:
    """The id in a partition's metadata file, zero without one that can be read; None when the path is no directory."""
    try:
        data = disk.read_file(f"{path}/{PARTITION_METADATA}")
    except NotADirectoryError:
        return None
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        return TOPIC_ID_ZERO
    return partition_metadata.decode(data)
