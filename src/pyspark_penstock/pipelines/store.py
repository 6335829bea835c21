"""Files of a table, on a local disk or at an address of Arrow's file systems: s3://, gs://, hdfs://."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

_fs: Any = import_module("pyarrow.fs")

SCHEME_MARK = "://"
LOCAL_SCHEMES = ("file:",)
HADOOP_S3_SCHEMES = ("s3a://", "s3n://")
"""Hadoop's schemes for S3, which Spark's checkpoints use."""
CONDITIONAL_PROTOCOLS = frozenset({"memory", "file", "local", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""File systems of fsspec that create an object only if it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file of a store: its path below the root, its size, and its modification time, if it is known."""

    path: str
    size: int
    written_ms: int | None = None


@dataclass(slots=True)
class Store:
    """A folder of files. Only its address is sent to executors; every process opens the file system itself."""

    root: str
    _opened: tuple[Any, str] | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return Store, (self.root,)

    @classmethod
    def at(cls, where: str) -> Store:
        """The store at a path or address; relative paths become absolute."""
        if where.startswith(LOCAL_SCHEMES):
            where = where.split(":", 1)[1]
            where = "/" + where.lstrip("/")
        if where.startswith(HADOOP_S3_SCHEMES):
            where = f"s3{SCHEME_MARK}{where.partition(SCHEME_MARK)[2]}"
        return cls(where if SCHEME_MARK in where else str(Path(where).expanduser().resolve()))

    @property
    def is_local(self) -> bool:
        return SCHEME_MARK not in self.root

    @property
    def files(self) -> Any:
        """Arrow's file system."""
        return self._open()[0]

    def full(self, path: str) -> str:
        """The path as the file system names it."""
        base = self._open()[1]
        return f"{base}/{path}" if path else base

    def uri(self, path: str) -> str:
        """The path as other programs name it."""
        return f"{self.root.rstrip('/')}/{path}" if path else self.root

    def relative(self, uri: str) -> str:
        """The path below the root, of an address, a full path or a path below the root."""
        text = uri.split(":", 1)[1] if uri.startswith(LOCAL_SCHEMES) else uri
        if uri.startswith(LOCAL_SCHEMES):
            text = "/" + text.lstrip("/")
        for base in (self.root.rstrip("/"), self._open()[1]):
            if text.startswith(base + "/"):
                return text[len(base) + 1 :]
        return text

    def _open(self) -> tuple[Any, str]:
        if self._opened is None:
            if self.is_local:
                self._opened = _fs.LocalFileSystem(), self.root
            else:
                files, base = _fs.FileSystem.from_uri(self.root)
                self._opened = files, base.rstrip("/")
        return self._opened

    # Reading

    def exists(self, path: str) -> bool:
        return bool(self.files.get_file_info(self.full(path)).type != _fs.FileType.NotFound)

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if it does not exist."""
        try:
            with self.files.open_input_stream(self.full(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def read_json(self, path: str) -> Any:
        raw = self.read(path)
        return None if raw is None else json.loads(raw)

    def list(self, path: str = "", suffix: str = "") -> Iterator[Entry]:
        """Every file below a folder, in the order of their paths; nothing if the folder does not exist."""
        selector = _fs.FileSelector(self.full(path), recursive=True, allow_not_found=True)
        base = self.full("") + "/"
        found = [each for each in self.files.get_file_info(selector) if each.type == _fs.FileType.File]
        for each in sorted(found, key=lambda info: info.path):
            if each.path.endswith(suffix):
                written_ms = None if each.mtime_ns is None else each.mtime_ns // 1_000_000
                yield Entry(path=each.path.removeprefix(base), size=each.size, written_ms=written_ms)

    # Writing

    def make_parent(self, path: str) -> None:
        self.files.create_dir(self.full(path).rpartition("/")[0], recursive=True)

    def write_json(self, path: str, value: Any) -> None:
        """Replace a file atomically: a reader sees the old content or the new one."""
        self.make_parent(path)
        # Object stores publish only complete files; on disks a rename does the same.
        draft = f"{path}.draft" if self.is_local else path
        with self.files.open_output_stream(self.full(draft)) as stream:
            stream.write(json.dumps(value, separators=(",", ":")).encode())
        if self.is_local:
            self.settle(draft)
            self.files.move(self.full(draft), self.full(path))
            self.settle(path.rpartition("/")[0])

    @property
    def creates_once(self) -> bool:
        """Whether `create_json` fails for all writers but one.

        Arrow's own file systems for S3 and Google's storage cannot; those of fsspec (``fsspec+s3://``) can.
        """
        return self.is_local or self._fsspec() is not None

    def _fsspec(self) -> Any:
        """The fsspec file system below Arrow's, if it can create objects conditionally."""
        handler = getattr(self.files, "handler", None)
        found = getattr(handler, "fs", None)
        if found is None:
            return None
        names: Any = found.protocol
        return found if CONDITIONAL_PROTOCOLS.intersection([names] if isinstance(names, str) else names) else None

    def create_json(self, path: str, value: Any) -> bool:
        """Create a file atomically; False if it exists, and then it stays unchanged."""
        self.make_parent(path)
        data = json.dumps(value, separators=(",", ":")).encode()
        if self.is_local:
            return self._create_local(self.full(path), data)
        conditional = self._fsspec()
        if conditional is not None:
            try:
                conditional.pipe_file(self.full(path), data, mode="create")
            except FileExistsError:
                return False
            return True
        if self.exists(path):
            return False
        with self.files.open_output_stream(self.full(path)) as stream:
            stream.write(data)
        return True

    def _create_local(self, full: str, data: bytes) -> bool:
        """Hard-link a complete temporary file, which fails if the name exists; without links, open it exclusively."""
        folder, _, name = full.rpartition("/")
        draft = f"{folder}/.{name}.{os.getpid()}-{threading.get_ident()}"
        try:
            _write_local(draft, data, "wb")
            try:
                os.link(draft, full)
            except FileExistsError:
                return False
            except OSError:
                _write_local(full, data, "xb")
        except FileExistsError:
            return False
        finally:
            os.unlink(draft)
        _settle(folder)
        return True

    def settle(self, path: str) -> None:
        """Fsync a file, or the names in a folder; object stores need none."""
        if self.is_local:
            _settle(self.full(path))

    def move(self, source: str, target: str) -> None:
        """Move a file; another process may have moved it already."""
        self.make_parent(target)
        try:
            self.files.move(self.full(source), self.full(target))
        except FileNotFoundError:
            if not self.exists(target):
                raise

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        try:
            self.files.delete_file(self.full(path))
        except FileNotFoundError:
            return

    def delete_folder(self, path: str) -> None:
        try:
            self.files.delete_dir(self.full(path))
        except FileNotFoundError:
            return


def _write_local(full: str, data: bytes, mode: str) -> None:
    with open(full, mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _settle(full: str) -> None:
    handle = os.open(full, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
