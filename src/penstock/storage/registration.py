"""What a broker remembers of its registration, beside its logs: by this the controller tells its lives apart.

The record is in every log directory. It is conservative where it is old or lost: a broker that does not know the epoch
that was admitted last counts as one that may have lost records, and catches up before it counts as in sync. So does
each directory: what was replaced, was offline at the last admission or may have lost records is told from the others by
its own record.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from fastcrc.crc32 import iscsi as crc32c

from penstock.model.ids import NO_BROKER_EPOCH, BrokerEpoch
from penstock.storage.checkpoint import CheckpointDamaged, encode_lines, read_lines
from penstock.storage.disk import Disk, replace_file

REGISTRATION = "registration-checkpoint"
IMPORTED_SUFFIX = ".imported"
"""Ended the id of a store that was made of an export, in records of the first format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRecord:
    """The last admission that this broker has seen, and whether it may have lost records since."""

    admitted_before: BrokerEpoch = NO_BROKER_EPOCH
    may_have_lost: bool = False
    """Set before recovery changes a log, and cleared when an admission that took it into account was seen."""
    store_id: str = ""
    """The metadata store that `admitted_before` is a number of."""
    store_imported: bool = False
    """Whether that store was made of an export."""

    def recovered(self, *, lost: bool) -> "RegistrationRecord":
        """The record after a recovery: what an earlier start found counts until an admission took it into account."""
        return replace(self, may_have_lost=self.may_have_lost or lost)

    def admitted(self, epoch: BrokerEpoch, store_id: str, *, store_imported: bool = False) -> "RegistrationRecord":
        """The record once an admission was seen: the controller has acted on what the registration said."""
        return RegistrationRecord(admitted_before=epoch, store_id=store_id, store_imported=store_imported)

    def line(self) -> str:
        flags = f"{int(self.may_have_lost)} {self.store_id or '-'} {int(self.store_imported)}"
        facts = f"{self.admitted_before} {flags}"
        return f"{facts} {crc32c(facts.encode()):08x}"

    @classmethod
    def parse(cls, line: str) -> "RegistrationRecord":
        facts, _, crc = line.rpartition(" ")
        if crc != f"{crc32c(facts.encode()):08x}":
            raise ValueError(f"the checksum of {line!r} is wrong")
        epoch, lost, store_id, *imported = facts.split()
        if not imported:
            # Of the first format, in which the id had a suffix.
            imported = ["1" if store_id.endswith(IMPORTED_SUFFIX) else "0"]
            store_id = store_id.removesuffix(IMPORTED_SUFFIX)
        return cls(
            admitted_before=BrokerEpoch(int(epoch)),
            may_have_lost=bool(int(lost)),
            store_id="" if store_id == "-" else store_id,
            store_imported=bool(int(imported[0])),
        )


class RegistrationFile:
    """The record in the log directories of a broker. Waits for the disk."""

    __slots__ = ("_directories", "_disk")

    def __init__(self, disk: Disk, directories: Sequence[str]) -> None:
        self._disk = disk
        self._directories = directories

    def read(self) -> RegistrationRecord:
        """The newest record found: a directory that was offline may have an older one."""
        found = [record for each in self._directories if (record := self._read(each)) is not None]
        if not found:
            return RegistrationRecord()
        last = max(record.admitted_before for record in found)
        newest = [record for record in found if record.admitted_before == last]
        return RegistrationRecord(
            admitted_before=last,
            may_have_lost=any(record.may_have_lost for record in newest),
            store_id=newest[0].store_id,
            store_imported=newest[0].store_imported,
        )

    def present(self) -> dict[str, bool]:
        """The directories that were there at the last admission that any of them knows: whether each is whole.

        One that is not may have lost records since.
        """
        last = self.read()
        found = {each: self._read(each) for each in self._directories}
        return {
            each: not record.may_have_lost
            for each, record in found.items()
            if record is not None and replace(record, may_have_lost=last.may_have_lost) == last
        }

    def _read(self, directory: str) -> RegistrationRecord | None:
        try:
            [line] = read_lines(self._disk, f"{directory}/{REGISTRATION}")
            return RegistrationRecord.parse(line)
        except (OSError, CheckpointDamaged, ValueError):
            return None

    def write(self, record: RegistrationRecord, whole: Collection[str] = ()) -> None:
        """Make a record durable in every directory that can be written; raises `OSError` where none can.

        Directories that are `whole` have lost nothing, whatever the others have.
        """
        failure: OSError | None = None
        written = 0
        for directory in self._directories:
            if not self._disk.exists(directory):
                continue
            try:
                own = replace(record, may_have_lost=False) if directory in whole else record
                replace_file(self._disk, f"{directory}/{REGISTRATION}", encode_lines([own.line()]), sync=True)
                written += 1
            except OSError as error:
                failure = error
        if failure is not None and not written:
            raise failure
