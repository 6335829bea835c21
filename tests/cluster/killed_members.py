"""Members of a share group as processes that are killed, each with a successor, and the history that they print."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.testing.histories.deliveries import (
    FINAL,
    Acknowledged,
    Acknowledgement,
    Deliveries,
    Delivery,
    End,
    Place,
)
from penstock.testing.processes import Child

PROGRAM = Path(__file__).parent / "share_member_program.py"


class Client(NamedTuple):
    """A program that is a member of a share group with some client."""

    name: str
    command: Sequence[str]


CONFLUENT = Client("confluent", (sys.executable, str(PROGRAM)))


class Members:
    """Member processes, each killed one with a successor, and what they said.

    The command of a client is followed by the servers, the group, the topic, a name, and the arguments.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        folder: Path,
        clients: Sequence[Client],
        arguments: Sequence[str] = (),
    ) -> None:
        self._where = (bootstrap, group, topic)
        self._folder = folder
        self._clients = clients
        self._arguments = arguments
        self.logs: list[Path] = []
        self.ended: list[str] = []
        """What members said that ended before they were killed."""
        self._killed: list[Child] = []
        self._children = [self._start(number) for number in range(len(clients))]

    def _start(self, number: int) -> Child:
        client = self._clients[number]
        name = f"{client.name}-{len(self.logs)}"
        self.logs.append(self._folder / name)
        return Child([*client.command, *self._where, name, *self._arguments], log=self.logs[-1])

    def kill(self, number: int) -> None:
        """Kill a member, which says nothing more, and start another."""
        self._kill(self._children[number])
        self._children[number] = self._start(number)

    def kill_all(self) -> None:
        for child in self._children:
            self._kill(child)

    def _kill(self, child: Child) -> None:
        if not child.alive and child not in self._killed:
            self.ended.append(f"{child.log.name} ended with status {child.exit_status}:\n{child.tail()}")
        self._killed.append(child)
        child.kill()

    def count(self, event: str, client: Client | None = None) -> int:
        """How often members have said something, or those with a client."""
        logs = [log for log in self.logs if client is None or log.name.startswith(f"{client.name}-")]
        return sum(log.read_text().count(f'"event": "{event}"') for log in logs)


def whole_lines(log: Path) -> list[dict[str, Any]]:
    """What a member said, without a last line that its death cut off."""
    lines = log.read_text().rpartition("\n")[0].splitlines()
    return [json.loads(line) for line in lines if line[:1] == "{"]


def history_of(logs: Sequence[Path]) -> Deliveries:
    """What the processes said; the outcome of an acknowledgement without a response is unknown.

    A client may have fetched what it returns long before, and waited with it while another member's turn came. So a
    delivery counts from its poll on only if the broker confirmed its acknowledgement, which shows that it was valid.
    """
    history = Deliveries()
    for log in logs:
        delivered: defaultdict[Place, list[dict[str, Any]]] = defaultdict(list)
        under_way: dict[Place, tuple[float, str]] = {}
        confirmed: set[int] = set()
        for line in whole_lines(log):
            if line["event"] == "delivered":
                delivered[place_of(line)].append(line)
                continue
            for each in line["records"]:
                place = place_of(each)
                if line["event"] == "acknowledges":
                    if place in under_way:
                        sent_at, kind = under_way[place]
                        history.acknowledged.append(acknowledgement(log.name, place, kind, sent_at, None))
                    under_way[place] = line["at"], each["kind"]
                    continue
                if place not in under_way:
                    # The client returned the record twice at once.
                    continue
                sent_at, kind = under_way.pop(place)
                confirmed.add(id(delivered[place][-1]))
                history.acknowledged.append(acknowledgement(log.name, place, kind, sent_at, line["at"]))
        history.acknowledged += [
            acknowledgement(log.name, place, kind, sent_at, None) for place, (sent_at, kind) in under_way.items()
        ]
        history.delivered += [
            delivery(log.name, place, line, sent_at=line["sent_at"] if id(line) in confirmed else 0.0)
            for place, lines in delivered.items()
            for line in lines
        ]
    return history


def place_of(line: dict[str, Any]) -> Place:
    return str(line["partition"]), line["offset"]


def delivery(member: str, place: Place, line: dict[str, Any], *, sent_at: float) -> Delivery:
    key, offset = place
    return Delivery(
        member=member,
        key=key,
        offset=offset,
        value=line["value"],
        count=line["count"],
        sent_at=sent_at,
        at=line["at"],
    )


def acknowledgement(member: str, place: Place, kind: str, sent_at: float, at: float | None) -> Acknowledged:
    key, offset = place
    return Acknowledged(member=member, key=key, offset=offset, kind=Acknowledgement(kind), sent_at=sent_at, at=at)


def accepted_or_dead(history: Deliveries, end: End) -> list[str]:
    """Describe the records that are neither accepted nor dead letters, or both, or were finished twice."""
    dead = end.dead or {}
    accepts = [each for each in history.acknowledged if each.kind is Acknowledgement.ACCEPT]
    maybe = {each.place for each in accepts}
    surely = {each.place for each in accepts if each.at is not None}
    finished = Counter(each.place for each in history.acknowledged if each.kind in FINAL and each.at is not None)
    return [
        *(f"{place} is neither accepted nor dead" for place in end.log if place not in maybe and place not in dead),
        *(f"{place} was accepted, and is dead" for place in surely if place in dead),
        *(f"{place} was finished {count} times" for place, count in finished.items() if count > 1),
    ]
