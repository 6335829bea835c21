"""An Iceberg table: tasks write its files, and one transaction adds them with the batch and the offsets as properties.

Without a catalog of your own, one is kept in a file beside the tables; with one, it is found as pyiceberg finds it, by
its name in `.pyiceberg.yaml` or in the environment.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from pyspark_penstock.lake import PIP_LAKE, Batch, DataFile, FormatMissing, LakeError, Layout, check_offsets
from pyspark_penstock.offsets import Place
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.data_files import file_stem, folder_of, values_of
from pyspark_penstock.pipelines.store import Store

CATALOG_FILE = "catalog.sqlite"
CATALOG_NAME = "penstock"
NAME_DEFAULT = "penstock.archive"
BATCHES = "penstock.batch."
OFFSETS = "penstock.offsets."
DATA = "data"
COMMIT_TRIES_MAX = 5


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
        # A catalog keeps connections to its database; from Python 3.13 on one that nobody closes is warned of.
        weakref.finalize(self, self._catalog.close)
        self._exceptions: Any = _pyiceberg("exceptions")
        self._opened: Any = None
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
        return Store.at(self._table().location())

    def _table(self) -> Any:
        """The newest version of the table; LakeError where there is none."""
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
            raise LakeError(f"{self._name} is partitioned by {', '.join(held_by)}, not by {', '.join(partition_by)}")
        if not schemas.has_all(self.schema(), schema):
            with table.update_schema() as update:
                update.union_by_name(schemas.merged(self.schema(), schema))

    def schema(self) -> Any:
        return _plain_schema(self._table().schema().as_arrow())

    def last_batch(self, writer: str) -> int | None:
        found = self._table().properties.get(BATCHES + writer) if self.exists() else None
        return None if found is None else int(found)

    def offsets(self) -> dict[Place, int]:
        if not self.exists():
            return {}
        ends: dict[Place, int] = {}
        for name, text in self._table().properties.items():
            if name.startswith(OFFSETS):
                found: dict[str, int] = json.loads(text)
                ends |= {(name.removeprefix(OFFSETS), int(partition)): end for partition, end in found.items()}
        return ends

    def layout(self, batch: Batch) -> Layout:
        return Layout(store=self.store, folder=DATA, partition_by=self._partition_by, keeps_partition_columns=True)

    def commit(self, batch: Batch, files: Sequence[DataFile], offsets: Mapping[Place, int]) -> None:
        def change(transaction: Any) -> None:
            held = self.offsets()
            check_offsets(files, held)
            ends: dict[str, dict[str, int]] = {}
            for (topic, partition), end in sorted((held | dict(offsets)).items()):
                ends.setdefault(topic, {})[str(partition)] = end
            properties = {OFFSETS + topic: json.dumps(found) for topic, found in ends.items()}
            if files:
                transaction.add_files([self.store.uri(each.path) for each in files])
            transaction.set_properties({BATCHES + batch.writer: str(batch.number), **properties})

        self._commit(change, is_done=lambda: self.last_batch(batch.writer) == batch.number)

    def _commit(self, change: Callable[[Any], None], is_done: Callable[[], bool]) -> None:
        """Again where somebody else was faster; a commit whose answer was lost may be in already."""
        for left in reversed(range(COMMIT_TRIES_MAX)):
            try:
                with self._table().transaction() as transaction:
                    change(transaction)
            except (self._exceptions.CommitFailedException, self._exceptions.CommitStateUnknownException):
                if is_done():
                    return
                if not left:
                    raise
            else:
                return

    def sweep(self, batch: Batch, files: Sequence[DataFile]) -> None:
        committed = {each.path for each in files}
        for folder in {f"{DATA}/{folder_of(each.values)}" for each in files}:
            for entry in self.store.list(folder, ".parquet"):
                name = entry.path.rpartition("/")[2]
                if name.startswith(file_stem(batch)) and entry.path not in committed:
                    self.store.delete(entry.path)

    def files(self) -> list[DataFile]:
        names = [each.name for each in self._table().spec().fields]
        found: list[DataFile] = []
        for task in self._table().scan().plan_files():
            if task.delete_files:
                raise LakeError(f"{self._name} has files of deleted rows, which are not read here")
            path = self.store.relative(task.file.file_path)
            found.append(
                DataFile(
                    path=path,
                    size=task.file.file_size_in_bytes,
                    rows=task.file.record_count,
                    values={name: values_of(path).get(name) for name in names},
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


def _plain_schema(schema: Any) -> Any:
    """Without the ids that Iceberg gives to fields."""
    return schema.remove_metadata()
