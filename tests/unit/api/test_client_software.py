"""The client software's name and version in ApiVersions, for the metric of connections by client."""

from __future__ import annotations

import asyncio
import socket

import pytest
from api_world import NOW_MS, connection_on

from penstock.api.api_versions import SOFTWARE_CHARS_MAX, ApiVersions
from penstock.api.registry import RequestContext
from penstock.net.connection import SOFTWARE_UNKNOWN
from penstock.wire.api import api_versions


def software_after(version: int, name: str, software_version: str) -> tuple[str, str]:
    """The software of a connection after an ApiVersions request."""

    async def ask() -> tuple[str, str]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            connection = connection_on(ours)
            request = api_versions.Request(client_software_name=name, client_software_version=software_version)
            ApiVersions(lambda _: []).handle(RequestContext(connection, 18, version, 1, "test", NOW_MS), request)
            return connection.software

    return asyncio.run(ask())


def test_a_connection_is_known_by_its_client_software() -> None:
    assert software_after(3, "librdkafka", "2.5.0") == ("librdkafka", "2.5.0")


@pytest.mark.parametrize(("version", "name"), [(2, ""), (3, "two words")])
def test_a_client_without_a_software_name_is_unknown(version: int, name: str) -> None:
    assert software_after(version, name, "1.0") == SOFTWARE_UNKNOWN


def test_a_long_name_is_truncated() -> None:
    assert software_after(3, "a" * 1000, "1" * 1000) == ("a" * SOFTWARE_CHARS_MAX, "1" * SOFTWARE_CHARS_MAX)
