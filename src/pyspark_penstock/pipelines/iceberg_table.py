"""An Iceberg table: tasks write its files, and one transaction adds them with the batch and the offsets as properties.

By default the catalog is a file beside the tables; another one is found by its name in `.pyiceberg.yaml` or in the
environment, as pyiceberg does.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib import import_module
from typing import Any

from pyspark_penstock.lake import (
    PIP_LAKE,
    Batch,
    DataFile,
    Expired,
    FormatMissing,
    Held,
    LakeError,
    LastBatch,
    Layout,
    check_offsets,
    commit_again,
    partitioned_otherwise,
)
from pyspark_penstock.offsets import Place
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.data_files import file_stem, folder_in
from pyspark_penstock.pipelines.store import Store

CATALOG_FILE = "catalog.sqlite"
CATALOG_NAME = "penstock"
NAME_DEFAULT = "penstock.archive"
BATCHES = "penstock.batch."
IDENTITIES = "penstock.batch-identity."
SOURCES = "penstock.batch-offsets."
OFFSETS = "penstock.offsets."
TOPIC_IDS = "penstock.topic."
OWN_RETRIES = "commit.retry.num-retries"
DATA, METADATA = "data", "metadata"
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


def _pyiceberg(module: str) -> Any:
    try:
        return import_module(f"pyiceberg.{module}")
    except ModuleNotFoundError as error:
        raise FormatMissing(f"Iceberg tables need the package {error.name}: {PIP_LAKE}") from None


class IcebergTable:
    """See `LakeTable`."""

    def __init__(self, warehouse: Store, *, name: str = "", catalog: str = "") -> None:
        self._name = name or NAME_DEFAULT
        if self._name.count(".") < 1:
            raise LakeError(f"an Iceberg table is named NAMESPACE.TABLE, not {self._name!r}")
        self._catalog = self._own_catalog(warehouse) if not catalog else _pyiceberg("catalog").load_catalog(catalog)
        # A catalog keeps connections to its database; Python 3.13 and later warn of unclosed ones.
        weakref.finalize(self, self._catalog.close)
        self._exceptions: Any = _pyiceberg("exceptions")
        self._opened: Any = None
        self._store: Store | None = None
        self._partition_by: tuple[str, ...] = ()

    @staticmethod
    def _own_catalog(warehouse: Store) -> Any:
        if not warehouse.is_local:
            raise LakeError(
                f"Iceberg tables at {warehouse.root} need a catalog: name one of pyiceberg's with --catalog"
            )
        sql = _pyiceberg("catalog.sql")
        warehouse.make_parent(CATALOG_FILE)
        address = f"sqlite:///{warehouse.full(CATALOG_FILE)}"
        return sql.SqlCatalog(CATALOG_NAME, uri=address, warehouse=f"file://{warehouse.root}")

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = Store.at(self._table().location())
        return self._store

    def _table(self) -> Any:
        """The newest version of the table; LakeError if it does not exist."""
        if self._opened is not None:
            return self._opened.refresh()
        try:
            self._opened = self._catalog.load_table(self._name)
        except (self._exceptions.NoSuchTableError, self._exceptions.NoSuchNamespaceError):
            raise LakeError(f"the catalog has no Iceberg table {self._name}") from None
        return self._opened

    def exists(self) -> bool:
        try:
            self._table()
        except LakeError:
            return False
        return True

    def prepare(self, schema: Any, partition_by: Sequence[str]) -> None:
        self._partition_by = tuple(partition_by)
        if not self.exists():
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            with self._catalog.create_table_transaction(self._name, schema=schema) as made, made.update_spec() as spec:
                for column in partition_by:
                    spec.add_identity(column)
            return
        table = self._table()
        held_by = tuple(each.name for each in table.spec().fields)
        if held_by != self._partition_by:
            raise partitioned_otherwise(self._name, held_by, partition_by)
        if not schemas.has_all(self.schema(), schema):
            with table.update_schema() as update:
                update.union_by_name(schemas.merged(self.schema(), schema))

    def schema(self) -> Any:
        return _plain_schema(self._table().schema().as_arrow())

    def last_batch(self, writer: str) -> LastBatch | None:
        properties: dict[str, str] = self._table().properties if self.exists() else {}
        found = properties.get(BATCHES + writer)
        if found is None:
            return None
        return LastBatch(
            number=int(found),
            identity=properties.get(IDENTITIES + writer, ""),
            offsets=properties.get(SOURCES + writer, ""),
        )

    def held(self) -> Held:
        return _held(self._table().properties) if self.exists() else Held()

    def layout(self, batch: Batch) -> Layout:
        return Layout(
            store=self.store,
            folder=DATA,
            partition_by=self._partition_by,
            keeps_partition_columns=True,
            values_in_paths=False,
        )

    def commit(self, batch: Batch, files: Sequence[DataFile], added: Held) -> None:
        store = self.store

        def change(transaction: Any) -> None:
            # The check and the commit use the same version: the catalog refuses the commit if there is a newer one.
            held = _held(transaction.table_metadata.properties)
            check_offsets(files, held)
            joined = held.joined(added)
            ends: dict[str, dict[str, int]] = {}
            for (topic, partition), end in sorted(joined.offsets.items()):
                ends.setdefault(topic, {})[str(partition)] = end
            properties = {OFFSETS + topic: json.dumps(found) for topic, found in ends.items()}
            properties |= {TOPIC_IDS + topic: found for topic, found in joined.topic_ids.items()}
            properties |= {
                BATCHES + batch.writer: str(batch.number),
                IDENTITIES + batch.writer: batch.identity,
                SOURCES + batch.writer: batch.offsets,
            }
            if files:
                transaction.add_files([store.uri(each.path) for each in files])
            transaction.set_properties(properties)

        def is_done() -> bool:
            last = self.last_batch(batch.writer)
            return last is not None and last.is_of(batch)

        self._commit(change, is_done)

    def _commit(self, change: Callable[[Any], None], is_done: Callable[[], bool]) -> None:
        def once() -> None:
            table = self._table()
            # pyiceberg's own retry would apply the change to a version that was not checked. This changes only the copy
            # in memory.
            table.metadata.properties[OWN_RETRIES] = "0"
            with table.transaction() as transaction:
                change(transaction)

        errors = self._exceptions
        commit_again(once, is_done, (errors.CommitFailedException, errors.CommitStateUnknownException))

    def sweep(self, batch: Batch, files: Sequence[DataFile]) -> None:
        committed = {each.path for each in files}
        layout = self.layout(batch)
        for folder in {folder_in(layout, each.values) for each in files}:
            for entry in self.store.list(folder, ".parquet"):
                name = entry.path.rpartition("/")[2]
                if name.startswith(file_stem(batch)) and entry.path not in committed:
                    self.store.delete(entry.path)

    def files(self) -> list[DataFile]:
        table = self._table()
        names = [each.name for each in table.spec().fields]
        kinds = [table.schema().find_type(each.source_id) for each in table.spec().fields]
        found: list[DataFile] = []
        for task in table.scan().plan_files():
            if task.delete_files:
                raise LakeError(f"{self._name} has files of deleted rows, which are not read here")
            path = self.store.relative(task.file.file_path)
            found.append(
                DataFile(
                    path=path,
                    size=task.file.file_size_in_bytes,
                    rows=task.file.record_count,
                    values={
                        name: _text(value, kind)
                        for name, kind, value in zip(names, kinds, task.file.partition, strict=True)
                    },
                )
            )
        return sorted(found, key=lambda each: each.path)

    def replace(self, old: Sequence[DataFile], new: DataFile) -> None:
        gone = {each.path for each in old}

        def change(transaction: Any) -> None:
            table = self._table()
            removed = [
                task.file for task in table.scan().plan_files() if self.store.relative(task.file.file_path) in gone
            ]
            if len(removed) != len(gone):
                raise LakeError(f"{self._name} changed while its small files were merged")
            io_pyarrow = _pyiceberg("io.pyarrow")
            made = io_pyarrow.parquet_files_to_data_files(
                table.io, transaction.table_metadata, iter([self.store.uri(new.path)])
            )
            with transaction.update_snapshot().overwrite() as snapshot:
                for each in removed:
                    snapshot.delete_data_file(each)
                for each in made:
                    snapshot.append_data_file(each)

        self._commit(change, is_done=lambda: False)

    def expire(self, before_ms: int, *, dry_run: bool) -> Expired:
        """Delete old files that no remaining snapshot needs, including those of failed batches."""
        table = self._table()
        heads = {each.snapshot_id for each in table.metadata.refs.values()}
        old = {
            each.snapshot_id
            for each in table.metadata.snapshots
            if each.timestamp_ms < before_ms and each.snapshot_id not in heads
        }
        if old and not dry_run:
            self._forget(old)
            table = self._table()
        used = self._used(table, without=old)
        store = self.store
        gone = tuple(
            entry.path
            for folder in (DATA, METADATA)
            for entry in store.list(folder)
            if entry.path not in used and entry.written_ms is not None and entry.written_ms < before_ms
        )
        if not dry_run:
            for path in gone:
                store.delete(path)
        return Expired(versions=len(old), files=tuple(path for path in gone if path.startswith(f"{DATA}/")))

    def _forget(self, snapshots: set[int]) -> None:
        updates = _pyiceberg("table.update.snapshot")

        def change(transaction: Any) -> None:
            updates.ExpireSnapshots(transaction).by_ids(sorted(snapshots)).commit()

        self._commit(change, is_done=lambda: False)

    def _used(self, table: Any, *, without: set[int]) -> set[str]:
        """The paths of all files that the table's snapshots need, except for some snapshots."""
        paths = {table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)}
        read: set[str] = set()
        for snapshot in table.metadata.snapshots:
            if snapshot.snapshot_id in without:
                continue
            paths.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                if manifest.manifest_path not in read:
                    read.add(manifest.manifest_path)
                    paths |= {each.data_file.file_path for each in manifest.fetch_manifest_entry(table.io)}
        store = self.store
        return {store.relative(each) for each in paths | read}


def _held(properties: Mapping[str, str]) -> Held:
    ends: dict[Place, int] = {}
    for name, text in properties.items():
        if name.startswith(OFFSETS):
            found: dict[str, int] = json.loads(text)
            ends |= {(name.removeprefix(OFFSETS), int(partition)): end for partition, end in found.items()}
    ids = {name.removeprefix(TOPIC_IDS): text for name, text in properties.items() if name.startswith(TOPIC_IDS)}
    return Held(offsets=ends, topic_ids=ids)


def _text(value: Any, kind: Any) -> str | None:
    """A partition's value as text, as in the other formats."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if str(kind) == "date" and isinstance(value, int):
        return str(date.fromordinal(EPOCH_ORDINAL + value))
    return str(value)


def _plain_schema(schema: Any) -> Any:
    """Without the ids that Iceberg gives to fields."""
    return schema.remove_metadata()
