"""The packet filter cuts what one process sends to another, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import packet_filter
from penstock.testing.packet_filter import PacketFilter, stale_chains
from penstock.testing.processes import Child, free_ports, port_responds

pytestmark = pytest.mark.needs("packet-filter")

SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    connection.sendall(b"hello")
    connection.close()
"""
CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1.0)
connection.settimeout(1.0)
print(connection.recv(5).decode())
"""


class Served:
    """A server, and clients in groups of other ports."""

    def __init__(self, packets: PacketFilter, folder: Path) -> None:
        self.packets = packets
        self.port, self.other, self.third = free_ports(3)
        self.groups = {port: packets.group(port) for port in (self.port, self.other, self.third)}
        command = [sys.executable, "-c", SERVER, str(self.port)]
        self.child = Child(command, log=folder / "log", group=self.groups[self.port])
        self.child.wait_until(lambda: port_responds(self.port), what="service", seconds_max=30.0)

    def greets(self, client: int) -> bool:
        """Whether a client in the group of a port gets what the server sends."""
        command = [sys.executable, "-c", CLIENT, str(self.port)]
        group = self.groups[client]
        done = subprocess.run(command, group=group, extra_groups=[], capture_output=True, text=True, check=False)
        return done.stdout == "hello\n"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with PacketFilter() as packets:
        server = Served(packets, tmp_path)
        with server.child:
            yield server


def test_requests_of_one_process_are_dropped(served: Served) -> None:
    assert served.greets(served.other)

    served.packets.cut(served.other, served.port)

    assert not served.greets(served.other)
    assert served.packets.packets_dropped > 0
    assert served.greets(served.third)
    served.packets.heal()
    assert served.packets.packets_dropped == 0
    assert served.greets(served.other)


def test_replies_to_one_process_are_dropped(served: Served) -> None:
    served.packets.cut(served.port, served.other)

    assert not served.greets(served.other)
    assert served.greets(served.third)
    served.packets.heal()
    assert served.greets(served.other)


def test_no_rule_is_left_at_the_end(served: Served) -> None:
    served.packets.cut_both(served.port, served.other)
    chains = [line for line in rules() if f"penstock-{os.getpid()}-" in line]
    assert len(chains) > 6

    served.packets.close()

    assert [line for line in rules() if f"penstock-{os.getpid()}-" in line] == []
    assert served.greets(served.other)


def test_rules_of_a_process_that_was_killed_are_removed_by_the_next_filter() -> None:
    program = (
        "import os, signal\n"
        "from penstock.testing.packet_filter import PacketFilter\n"
        "packets = PacketFilter()\n"
        "packets.start()\n"
        "packets.cut(1, 2)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as killed:
        assert killed.wait(60) < 0
    left = [line for line in rules() if f"penstock-{killed.pid}-" in line]
    assert left
    assert stale_chains("\n".join(left))

    with PacketFilter():
        assert [line for line in rules() if f"penstock-{killed.pid}-" in line] == []


def test_chains_of_living_processes_and_of_others_are_kept() -> None:
    own = packet_filter.chain_name(os.getpid(), 7)
    assert stale_chains(f"-P OUTPUT ACCEPT\n-N {own}\n-N {own}d\n-N DOCKER\n-A OUTPUT -j {own}\n") == []
    assert stale_chains(f"-N penstock-{os.getpid()}-0-1\n") == [f"penstock-{os.getpid()}-0-1"]


def rules() -> list[str]:
    command = ["iptables", "-w", "30", "-t", packet_filter.TABLE, "-S"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
