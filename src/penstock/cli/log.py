"""`penstock log`: segment files, offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.adopt import adopt
from penstock.cli.failure import Failure
from penstock.cli.options import OutputFormat, OutputOption, YesOption
from penstock.cli.output import bytes_text, counted, json_text, note, progress, say, show_done, show_json

if TYPE_CHECKING:
    from penstock.cli.segment_file import Batch, Checked

app = typer.Typer(
    help="Inspect and verify segment files, turn lost ones into topics; no broker needed.",
    no_args_is_help=True,
    add_completion=False,
)


app.command()(adopt)


@app.command()
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", exists=True, help="*.log, *.index, *.timeindex, *.txnindex, or a directory."),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show each record, and not only each batch.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show batches, records and index entries of segment files. With -o json, one object per line."""
    from penstock.cli.segment_file import Bad, log_files

    try:
        for path in (file for each in files for file in (log_files(each) if each.is_dir() else [each])):
            if output is OutputFormat.TABLE:
                say(str(path))
            for row in rows_of(path, records):
                say(json_text(row) if output is OutputFormat.JSON else row_text(row))
    except Bad as bad:
        raise Failure(
            str(bad), "the batches before it are shown above; `penstock log verify` checks the rest"
        ) from None


@app.command()
def verify(
    path: Annotated[
        Path, typer.Argument(metavar="FILE|DIRECTORY", exists=True, help="A segment, a partition or a data directory.")
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check every checksum, record, offset and index entry, and that no segment is missing.

    Exit code 1 with the first bad byte of each bad file.
    """
    from penstock.cli.missing_files import check_order, missing_faults
    from penstock.cli.segment_file import LOG, Bad, log_files, verify_segment

    files = log_files(path)
    bad: list[Bad] = list(missing_faults(path)) if path.is_dir() else []
    if not (files or bad) or any(file.suffix != LOG for file in files):
        raise Failure(
            f"{path} is not a segment: its name does not end in {LOG}", "indexes are checked with their segment"
        )
    good: list[Checked] = []
    before: Checked | None = None
    with progress("checking", sum(file.stat().st_size for file in files), unit="bytes") as bar:
        for file in files:
            try:
                previous, before = before, None
                found = before = verify_segment(file)
                check_order(previous, found)
                good.append(found)
            except Bad as error:
                # Without its traceback, which would keep the file mapped.
                bad.append(Bad(error.path, error.position, error.what))
            bar.advance(sum(each.bytes for each in good))
    if output is OutputFormat.JSON:
        show_json(verdict_json(good, bad))
    else:
        note(
            f"{len(good)} of {counted(len(files), 'segment')} good: "
            f"{counted(sum(each.batches for each in good), 'batch')}, "
            f"{counted(sum(each.records for each in good), 'record')}, {bytes_text(sum(each.bytes for each in good))}"
        )
    if bad:
        raise Failure(
            str(bad[0]),
            "a start after an unclean stop truncates a damaged end by itself; damage before it needs a replica",
            more=[str(each) for each in bad[1:]],
        )


@app.command("accept-loss")
def accept_loss(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", exists=True, file_okay=False, help="The directory of the partition.")
    ],
    yes: YesOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Accept the loss of records whose files are gone, so that the next start serves the rest of the partition."""
    from penstock.cli.confirm import confirm
    from penstock.storage.completeness import NOTE, give_up, missing_in, read_note
    from penstock.storage.disk import RealDisk
    from penstock.storage.notes import NoteDamaged

    disk, path = RealDisk(), str(directory)
    try:
        expected = read_note(disk, path)
    except NoteDamaged as damage:
        raise Failure(
            f"{path}/{NOTE} is damaged: {damage}", "remove it: the next start then serves what is there"
        ) from damage
    missing = [] if expected is None else missing_in(disk, path, expected)
    if expected is None or not missing:
        raise Failure(f"no start has found files missing in {path}", "a broker serves what it finds there")
    confirm(f"give up {counted(len(missing), 'segment')} of {path} for good?", yes)
    give_up(disk, path)
    show_done(
        output,
        f"the next start of the broker serves {directory.name} without them, and goes on at offset {expected.log_end}",
        {"directory": path, "missing": missing, "log_end": expected.log_end},
    )


def verdict_json(good: list[Checked], bad: list[Any]) -> dict[str, Any]:
    return {
        "good": [
            {
                "file": str(each.path),
                "batches": each.batches,
                "records": each.records,
                "bytes": each.bytes,
                "start": each.start,
                "next_offset": each.next_offset,
            }
            for each in good
        ],
        "bad": [{"file": str(each.path), "position": each.position, "what": each.what} for each in bad],
    }


def rows_of(path: Path, records: bool) -> Iterator[dict[str, Any]]:
    """The rows of one file, by its kind."""
    from penstock.cli import segment_file as files

    with files.mapped(path) as data:
        match path.suffix:
            case files.LOG:
                for batch in files.batches(path, data):
                    yield batch_row(batch)
                    if records:
                        yield from record_rows(path, batch)
            case files.INDEX:
                base = files.base_offset_of(path)
                for _, relative, position in files.index_entries(path, data, files.INDEX_ENTRY):
                    yield {"offset": base + relative, "position": position}
            case files.TIME_INDEX:
                base = files.base_offset_of(path)
                for _, timestamp_ms, relative in files.index_entries(path, data, files.TIME_ENTRY):
                    yield {"timestamp": timestamp_ms, "offset": base + relative}
            case files.TXN_INDEX:
                from penstock.cli.txn_index_file import txn_entries

                yield from (entry._asdict() for _, entry in txn_entries(path, data))
            case _:
                raise Failure(f"{path} is not a segment file", f"known are {', '.join(files.KNOWN)}")


def batch_row(batch: Batch) -> dict[str, Any]:
    from penstock.wire.records import crc_ok

    header = batch.header
    return {
        "position": batch.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size,
        "codec": batch.codec,
        "leader_epoch": header.leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "log_append_time" if header.is_log_append_time else "create_time",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc_ok": crc_ok(batch.data, 0, header),
    }


def record_rows(path: Path, batch: Batch) -> Iterator[dict[str, Any]]:
    from penstock.cli.formats import json_bytes
    from penstock.cli.segment_file import UNREADABLE, Bad
    from penstock.wire.records import iter_records

    try:
        for record in iter_records(batch.data):
            yield {
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                **json_bytes("key", record.key),
                **json_bytes("value", record.value),
                "headers": [{"name": name, **json_bytes("value", value)} for name, value in record.headers],
            }
    except UNREADABLE as error:
        raise Bad(path, batch.position, f"the records at offset {batch.header.base_offset}: {error}") from error


def row_text(row: dict[str, Any]) -> str:
    """`name value` pairs; a record is indented below its batch."""
    indent = "  " if "base_offset" in row else "    "
    return indent + "  ".join(f"{name} {_shown(value)}" for name, value in row.items())


def _shown(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "yes" if value else "no"
        case str() | list():
            return json.dumps(value, ensure_ascii=False) if not isinstance(value, str) or " " in value else value
        case _:
            return str(value)
