import socket
from typing import Any

import pytest

from penstock.broker.process import Refused, arguments, settings

ADDRESSES = {
    "localhost": ["127.0.0.1", "::1"],
    "127.evil.example": ["192.0.2.1"],
    "both.example": ["127.0.0.1", "192.0.2.1"],
    "mine.example": ["127.0.0.5"],
}


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that knows these names; addresses are left to the real one."""
    real = socket.getaddrinfo

    def known(host: str | None, port: int, *rest: Any, **options: Any) -> list[Any]:
        if host == "unknown.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [row for address in ADDRESSES.get(str(host), [host]) for row in real(address, port, *rest, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", known)


@pytest.mark.parametrize("listen", ["localhost:1", "127.0.0.1:1", "127.1:1", "[::1]:1", "mine.example:1"])
def test_a_listener_that_only_this_machine_reaches_needs_no_leave(listen: str) -> None:
    assert settings(arguments(["--listen", listen])).endpoints


@pytest.mark.parametrize("listen", [":1", "0.0.0.0:1", "[::]:1", "127.evil.example:1", "both.example:1", "192.0.2.1:1"])
def test_a_listener_that_others_reach_is_refused_whatever_its_name_begins_with(listen: str) -> None:
    with pytest.raises(Refused, match="can be reached from other machines"):
        settings(arguments(["--listen", listen]))
    assert settings(arguments(["--listen", listen, "--insecure-listen"])).endpoints


def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(Refused, match=r"cannot find an address of unknown\.example"):
        settings(arguments(["--listen", "unknown.example:1"]))


@pytest.mark.parametrize("data", ["a,b", " a", "a ", ""])
def test_data_is_one_directory(data: str) -> None:
    with pytest.raises(Refused, match=r"is not one directory: say --set log\.dirs=DIR,DIR"):
        settings(arguments(["--data", data]))
    assert settings(arguments(["--set", "log.dirs=a,b"])).data_directories == ("a", "b")
