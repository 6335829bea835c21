"""Errors of the client, with messages that a user can act on."""

from __future__ import annotations

from typing import Any

from penstock.client.library import kafka


class ClientError(Exception):
    """A request failed. `code` is the protocol's, or librdkafka's own (negative), or None."""

    def __init__(self, message: str, *, code: int | None = None, name: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.hint = hint


class Unreachable(ClientError):
    """No address of the bootstrap list accepts a connection."""


def failure(error: Any, doing: str) -> ClientError:
    """A `ClientError` for librdkafka's error: what was tried, then the error's message."""
    message = error.str().rstrip(".")
    return ClientError(f"{doing}: {message}", code=error.code(), name=error.name())


def failure_of(error: BaseException, doing: str) -> ClientError:
    """The same for an exception of librdkafka: the first argument of a KafkaException is its KafkaError."""
    library = kafka()
    if isinstance(error, library.KafkaException) and error.args and isinstance(error.args[0], library.KafkaError):
        return failure(error.args[0], doing)
    return ClientError(f"{doing}: {error}")
