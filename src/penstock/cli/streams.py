"""Prepares the standard streams, which may be closed, full, or in an encoding that lacks a character."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

STDIN, STDOUT, STDERR = 0, 1, 2
STREAM_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.ENXIO})
"""Errors of a write to a full disk, a disconnected terminal or a closed descriptor."""


def prepare_streams() -> None:
    """Open closed streams, and escape characters that an encoding lacks.

    The next file or socket would reuse a closed descriptor, and get the output meant for the user. As in other tools, a
    read of stdin or a write to stdout then fails; only stderr is dropped.
    """
    for descriptor, mode in ((STDIN, os.O_WRONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_RDWR)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, mode)
            assert opened == descriptor, f"{opened} is not {descriptor}, the lowest that is free"
    sys.stdin = sys.stdin or _text(STDIN, "r")
    sys.stdout = sys.stdout or _text(STDOUT, "w")
    sys.stderr = sys.stderr or _text(STDERR, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def abandon_stdout() -> None:
    """Discard unwritten output: Python would retry, and report an error, when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


@contextmanager
def stderr_to(path: Path) -> Generator[None]:
    """Redirect stderr to a file. A process that is started inside keeps writing there."""
    sys.stderr.flush()
    kept = os.dup(STDERR)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, STDERR)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, STDERR)
        os.close(kept)
        os.close(target)


def stream_fault(error: OSError) -> str:
    """The message for an error of a file or stream."""
    reason = (error.strerror or str(error)).lower()
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {reason}"
    return f"cannot read stdin or write to stdout: {reason}" if error.errno in STREAM_FAULTS else reason


def _text(descriptor: int, mode: str) -> TextIO:
    raw = io.FileIO(descriptor, mode, closefd=False)
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, encoding="utf-8")
