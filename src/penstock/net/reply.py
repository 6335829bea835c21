"""Responses: bytes now or later, or a range of a file that is sent without passing through Python."""

from typing import Protocol, runtime_checkable

from penstock.model.deferred import Eventual


@runtime_checkable
class FileRange(Protocol):
    """Bytes of an open file, to be sent by the kernel where the transport can. The file is open while it lives."""

    position: int

    def __len__(self) -> int: ...

    def fileno(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the file, for a transport that cannot send them by descriptor."""
        ...


Buffer = bytes | bytearray | memoryview | FileRange
Frame = list[Buffer]
"""A whole response with its length prefix, as the pieces to send one after another."""

Outcome = Eventual[Frame | None]
"""The response to a frame, now or later; None where the protocol wants none.

While a response waits, the requests behind it are served; `Connection.hold` and `Connection.run` keep them waiting.
"""


class CloseConnection(Exception):
    """The protocol has no response for this; the connection is closed, and the message says why in the log."""
