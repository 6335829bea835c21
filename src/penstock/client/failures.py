"""What can go wrong between a client and a broker, in words a person can act on."""

from __future__ import annotations

from typing import Any

from penstock.client.library import kafka


class ClientError(Exception):
    """A broker or the way to it said no. `code` is the protocol's, or librdkafka's own (negative), or None."""

    def __init__(self, message: str, *, code: int | None = None, name: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.hint = hint


class Unreachable(ClientError):
    """No address of the bootstrap list accepts a connection."""


def failure(error: Any, doing: str) -> ClientError:
    """The library's error as ours: what was tried, then what the broker answered."""
    said = error.str().rstrip(".")
    return ClientError(f"{doing}: {said}", code=error.code(), name=error.name())


def failure_of(error: BaseException, doing: str) -> ClientError:
    """The same for what the library raises: a KafkaException holds its KafkaError as the first argument."""
    library = kafka()
    if isinstance(error, library.KafkaException) and error.args and isinstance(error.args[0], library.KafkaError):
        return failure(error.args[0], doing)
    return ClientError(f"{doing}: {error}")
