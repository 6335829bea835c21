"""What answers a request: bytes now, bytes later, or a slice of a file that never passes through Python."""

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
"""What serving a frame gives, now or later. None: the protocol wants no response.

While a response waits, the requests behind it are served; `Connection.hold` and `Connection.run` keep them waiting.
"""


class CloseConnection(Exception):
    """The peer cannot be answered in the protocol; the message says why, for the log."""
