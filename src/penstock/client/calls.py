"""Calls of librdkafka's admin client: futures become results, and errors become a `ClientError`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import ClientError, failure_of
from penstock.client.library import kafka_admin


class AdminCalls:
    """One admin connection. Every call returns its result or raises `ClientError`."""

    def __init__(self, connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX) -> None:
        connection.check()
        self.seconds_max = seconds_max
        self.bootstrap = connection.bootstrap
        try:
            self.client: Any = kafka_admin().AdminClient(connection.settings())
        except Exception as error:
            raise failure_of(error, "cannot use these client properties") from error

    def one(self, doing: str, call: Callable[..., dict[Any, Future[Any]]], wanted: Any, **options: Any) -> Any:
        """The result of a call for one resource."""
        found = self.all(doing, call, wanted, **options)
        assert len(found) == 1, f"{doing}: {len(found)} results"
        return next(iter(found.values()))

    def all(
        self, doing: str, call: Callable[..., dict[Any, Future[Any]]], wanted: Any, **options: Any
    ) -> dict[Any, Any]:
        """The results of a call for several resources; raises the first failure."""
        try:
            futures = call(wanted, request_timeout=self.seconds_max, **options)
            return {each: future.result(timeout=self.seconds_max * 2) for each, future in futures.items()}
        except TimeoutError:
            raise ClientError(f"{doing}: no response within {self.seconds_max:g} s") from None
        except Exception as error:
            raise failure_of(error, doing) from error

    def whole(self, doing: str, call: Callable[..., Future[Any]], **options: Any) -> Any:
        """The result of a call that names no resource."""

        def of_everything(_: None, **given: Any) -> dict[Any, Future[Any]]:
            return {None: call(**given)}

        return self.one(doing, of_everything, None, **options)
