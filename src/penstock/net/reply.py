"""What answers a request: bytes now, bytes later, or a slice of a file that never passes through Python."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class FileRange(Protocol):
    """Bytes of an open file, to be sent by the kernel. Whoever made it keeps the file open while it lives."""

    position: int

    def __len__(self) -> int: ...

    def fileno(self) -> int: ...


Buffer = bytes | bytearray | memoryview | FileRange
Frame = list[Buffer]
"""A whole response with its length prefix, as the pieces to send one after another."""


class Pending:
    """A response that waits, while the requests behind it go on being worked at.

    Use it when the request's effects are done and only the reply has to wait: a long poll, an acknowledgement that
    waits for the disk. Its maker calls `resolve` or `fail` once; a connection that closes first calls `on_abandon`.
    """

    __slots__ = ("_failed", "_failure", "_response", "_sink", "on_abandon")

    def __init__(self, on_abandon: Callable[[], None] | None = None) -> None:
        self.on_abandon = on_abandon
        self._sink: Callable[[Any], None] | None = None
        self._failed: Callable[[Exception], None] | None = None
        self._response: Any = None
        self._failure: Exception | None = None

    def resolve(self, response: Any) -> None:
        """Give the response; after that nothing is left to abandon."""
        assert response is not None, "a pending answer resolves to something"
        self.on_abandon = None
        sink = self._sink
        if sink is None:
            self._response = response
        else:
            self._sink = None
            sink(response)

    def fail(self, error: Exception) -> None:
        """Report that a bug kept the response from being made: the connection that waits for it closes."""
        self.on_abandon = None
        failed = self._failed
        if failed is None:
            self._failure = error
        else:
            self._sink = self._failed = None
            failed(error)

    def attempt(self, work: Callable[[], None]) -> None:
        """Call what resolves this, and `fail` where it raises: its caller serves other connections as well."""
        try:
            work()
        except Exception as error:
            self.fail(error)

    def deliver_to(self, sink: Callable[[Any], None], failed: Callable[[Exception], None] | None = None) -> None:
        """Pass the response to `sink`, or the bug that prevented it to `failed`: at once if it is there already."""
        if self._response is not None:
            sink(self._response)
        elif self._failure is not None and failed is not None:
            failed(self._failure)
        else:
            self._sink, self._failed = sink, failed

    def abandon(self) -> None:
        """Nobody waits any more: let go of whatever would have resolved this."""
        self._sink = self._failed = None
        callback, self.on_abandon = self.on_abandon, None
        if callback is not None:
            callback()


class PendingFrame:
    """A pending response together with how its bytes are made."""

    __slots__ = ("encode", "pending")

    def __init__(self, pending: Pending, encode: Callable[[Any], "Frame | FrameLater"]) -> None:
        """`encode` gives the frame, or what makes it in later turns of the loop."""
        self.pending = pending
        self.encode = encode


FrameLater = Coroutine[Any, Any, Frame | PendingFrame | None]
Outcome = Frame | PendingFrame | FrameLater | None
"""What serving a frame gives. None: the protocol wants no response. A coroutine holds the connection until it ends."""


class CloseConnection(Exception):
    """The peer cannot be answered in the protocol; the message says why, for the log."""
