"""A packet filter that cuts unmodified processes apart, in one direction or both.

    with PacketFilter() as packets:
        ... start brokers with the groups that packets.group(port) returns ...
        packets.cut(leader.port, follower.port)
        packets.heal()

iptables drops packets by their sender. Each broker runs with a group id of its own, so that the owner match recognises
what it sends. A reply goes to a port that the kernel chose, which does not say whose it is: the first packet of each
connection that a broker opens marks the connection with the broker's port, and replies are dropped by that mark.

Only TCP over loopback between the given ports is affected. The rules are in a chain that has this process in its name;
it is removed at the end, or by the next filter of any process if this one was killed.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from types import TracebackType
from typing import Self

from penstock.testing.processes import process_state

GROUP_MIN = 1_000_000
"""Groups are numbered by ports from here on, beyond those of users and services."""

TABLE = "mangle"
"""Its OUTPUT chain comes after connection tracking, and may drop."""

LOCK_SECONDS = 30
COMMAND_SECONDS_MAX = 60.0
CHAIN = re.compile(r"penstock-(\d+)-([0-9a-f]+)-\d+")
JUMP = ("-o", "lo", "-p", "tcp", "-j")
NUMBERS = itertools.count()


class FilterFailed(Exception):
    """iptables refused a rule; the message has its words."""


def why_not() -> str | None:
    """Why packets cannot be filtered here; None where they can."""
    if os.geteuid() != 0:
        return "dropping packets needs root"
    if shutil.which("iptables") is None:
        return "dropping packets needs iptables (on Debian: apt-get install iptables)"
    return _refusal()


@cache
def _refusal() -> str | None:
    """Why the kernel lacks a match; asked once, since it takes several commands."""
    try:
        with PacketFilter() as packets:
            packets.group(1)
            packets.cut(1, 2)
    except FilterFailed as refusal:
        return f"the kernel does not filter packets by owner and mark: {refusal}"
    return None


class PacketFilter:
    """Cuts between ports on which processes of this test listen."""

    def __init__(self) -> None:
        self._chain = chain_name(os.getpid(), next(NUMBERS))
        self._drops = f"{self._chain}d"
        self._cuts: set[tuple[int, int]] = set()

    @staticmethod
    def group_of(port: int) -> int:
        return GROUP_MIN + port

    def group(self, port: int) -> int:
        """The group with which to start the process that listens on a port; its connections are marked from here on."""
        group = self.group_of(port)
        opened = ("-p", "tcp", "--syn", "-m", "owner", "--gid-owner", str(group))
        _iptables("-A", self._chain, *opened, "-j", "CONNMARK", "--set-mark", str(port))
        return group

    def cut(self, source: int, target: int) -> None:
        """Drop what the process at one port sends to the process at another."""
        if (source, target) not in self._cuts:
            self._cuts.add((source, target))
            for rule in self._rules(source, target):
                _iptables("-A", self._drops, *rule)

    def cut_both(self, one: int, other: int) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def heal(self) -> None:
        """Let everything through again."""
        self._cuts.clear()
        _iptables("-F", self._drops)

    @property
    def packets_dropped(self) -> int:
        """Since the last `heal`."""
        lines = _iptables("-L", self._drops, "-v", "-x", "-n").splitlines()
        return sum(int(line.split()[0]) for line in lines if " DROP " in line)

    def _rules(self, source: int, target: int) -> tuple[tuple[str, ...], ...]:
        """What the source sends in connections that it opened, and in those that the target opened."""
        opened = ("-p", "tcp", "--dport", str(target), "-m", "owner", "--gid-owner", str(self.group_of(source)))
        replies = ("-p", "tcp", "--sport", str(source), "-m", "connmark", "--mark", str(target))
        return (*opened, "-j", "DROP"), (*replies, "-j", "DROP")

    def start(self) -> None:
        """Remove chains of processes that have ended, and begin an own one."""
        for chain in stale_chains(_iptables("-S")):
            remove_chain(chain)
        _iptables("-N", self._drops)
        _iptables("-N", self._chain)
        _iptables("-I", "OUTPUT", *JUMP, self._drops)
        # Before the drops: also a packet that is dropped marks its connection.
        _iptables("-I", "OUTPUT", *JUMP, self._chain)

    def close(self) -> None:
        remove_chain(self._chain)
        remove_chain(self._drops)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def chain_name(pid: int, number: int) -> str:
    """The chain of a process: its id, and its start, since ids are used again."""
    state = process_state(pid)
    assert state is not None, f"process {pid} has ended"
    return f"penstock-{pid}-{state.start_ticks:x}-{number}"


def stale_chains(rules: str) -> list[str]:
    """The chains of processes that have ended, in what `iptables -S` prints."""
    stale: list[str] = []
    for line in rules.splitlines():
        words = line.split()
        if words[:1] != ["-N"] or (named := CHAIN.match(words[1])) is None:
            continue
        state = process_state(int(named[1]))
        if state is None or state.start_ticks != int(named[2], 16):
            stale.append(words[1])
    return stale


def remove_chain(chain: str) -> None:
    """Remove a chain and the jump to it, as far as they are there."""
    for command in (("-D", "OUTPUT", *JUMP, chain), ("-F", chain), ("-X", chain)):
        _run(command)


def _iptables(*arguments: str) -> str:
    done = _run(arguments)
    if done.returncode:
        raise FilterFailed(f"iptables {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = ["iptables", "-w", str(LOCK_SECONDS), "-t", TABLE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False)
