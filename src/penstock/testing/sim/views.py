"""Filtered views while brokers fail: readers of views beside those of their parents, and a check of what they saw.

What a reader gets is compared with its parent as it is read at the end: of every range that a reader went through, it
has the records that pass, each once, at their offsets and in their order, and no others (V4, V5). At the end each view
is read to where its parent ends (V1, V2), with the outcomes of all transactions (V3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.model.batch import BatchHeader
from penstock.model.topic import VIEW_FILTER, VIEW_OF
from penstock.testing.sim.ablations import Ablation, replaced
from penstock.testing.sim.actors import Worker
from penstock.testing.sim.consumers import Fetcher, Seen
from penstock.testing.sim.links import Link
from penstock.testing.sim.plan import EVENTS, LEDGER, Plan, Topic, rack_name
from penstock.testing.sim.recording import key_of
from penstock.views.look import Look
from penstock.wire.records import iter_batches

WHERE = "value RLIKE '^[0-9]*[037] '"
PARENTS = {Topic(name=f"{parent.name}-view", partitions=parent.partitions): parent for parent in (EVENTS, LEDGER)}


def passes(value: int) -> bool:
    """The filter, once more and by hand."""
    return value % 10 in (0, 3, 7)


def view_configs(parent: Topic) -> dict[str, str]:
    return {VIEW_OF: parent.name, VIEW_FILTER: WHERE}


Span = tuple[int, int, list[tuple[int, int]]]
"""Where a reader began, where it was last, and what it saw in between."""


class Gallery:
    """What readers of views saw, by the key of the parent's partition."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, Span]] = []
        """Reader, partition and span."""
        self.records = 0

    def check(self, parents: Seen) -> Iterator[tuple[str, str]]:
        """What readers saw otherwise than their parents are now: partition and finding."""
        for reader, key, (start, end, seen) in self.spans:
            wanted = [(at, value) for at, value in parents[key] if start <= at < end and passes(value)]
            if seen != wanted:
                more, less = sorted(set(seen) - set(wanted)), sorted(set(wanted) - set(seen))
                what = f"too much {more[:5]}, too little {less[:5]}"
                yield key, f"{reader} read the view of {key} from {start} to {end}: {what}"


class ViewReader:
    """Reads a view from its beginning, as `Reader` reads a topic."""

    def __init__(
        self, link: Link, plan: Plan, gallery: Gallery, *, view: Topic, committed: bool, sessions: bool, rack: str = ""
    ) -> None:
        self._link = link
        self._plan = plan
        self._gallery = gallery
        self._view = view
        # What a reader has read and is gone is a finding of the parent's readers.
        self._fetcher = Fetcher(link, committed=committed, sessions=sessions, lossy=True, rack=rack)

    async def run(self) -> None:
        positions = self._fetcher.positions = {(self._view.name, index): 0 for index in range(self._view.partitions)}
        spans: dict[tuple[str, int], int] = {}
        while not self._plan.stopping:
            before = dict(positions)
            seen = await self._fetcher.poll()
            for place, at in positions.items():
                found = list(seen.get(key_of(*place), ()))
                if at < before[place]:
                    # It was sent back: what it reads from there is another span.
                    spans.pop(place, None)
                elif at > before[place]:
                    self._add(spans, place, before[place], at, found)
            await asyncio.sleep(self._link.random.random() * 0.1 / self._plan.pace)

    def _add(
        self,
        spans: dict[tuple[str, int], int],
        place: tuple[str, int],
        start: int,
        end: int,
        found: list[tuple[int, int]],
    ) -> None:
        gallery, key = self._gallery, key_of(PARENTS[self._view].name, place[1])
        gallery.records += len(found)
        number = spans.get(place)
        if number is None:
            spans[place] = len(gallery.spans)
            gallery.spans.append((self._link.name, key, (start, end, found)))
        else:
            reader, _, (first, _, earlier) = gallery.spans[number]
            gallery.spans[number] = (reader, key, (first, end, earlier + found))


def view_workers(plan: Plan, gallery: Gallery) -> dict[str, Callable[[Link], Worker]]:
    """What makes the worker of each reader."""
    events, ledger = PARENTS
    rack = rack_name(2) if plan.replicated else ""
    return {
        "view-1": lambda link: ViewReader(link, plan, gallery, view=events, committed=False, sessions=True),
        "view-2": lambda link: ViewReader(link, plan, gallery, view=ledger, committed=True, sessions=False, rack=rack),
        "view-3": lambda link: ViewReader(link, plan, gallery, view=ledger, committed=True, sessions=True),
    }


# Rules of views, each with a way to take it out


@contextmanager
def last_run() -> Generator[None]:
    """V1: an answer ends at what passed last."""

    def parts(look: Any) -> bytes:
        return b"".join(look._parts)

    with replaced(Look, "records", parts):
        yield


@contextmanager
def advance_batches() -> Generator[None]:
    """V2: nothing is sent in the place of batches of which none pass."""

    def pass_over(look: Look, header: BatchHeader, after: int = -1) -> None:
        """Send nothing."""

    with replaced(Look, "_pass_over", pass_over):
        yield


@contextmanager
def markers() -> Generator[None]:
    """V3: an advance batch stands for markers too."""
    send = Look.__dict__["_send"]

    def send_data(look: Any, batch: bytes) -> None:
        [(_, header)] = iter_batches(batch)
        if header.is_control:
            look._pass_over(header)
        else:
            send(look, batch)

    with replaced(Look, "_send", send_data):
        yield


@contextmanager
def records_that_pass() -> Generator[None]:
    """V4: of a batch with several records that pass only the first is sent."""
    matching = Look.__dict__["_matching"]

    def first(look: Look, among: range) -> Iterator[int]:
        return iter(list(matching(look, among))[:1])

    with replaced(Look, "_matching", first):
        yield


@contextmanager
def agreement() -> Generator[None]:
    """V5: what passes depends on where the reader began."""
    matching = Look.__dict__["_matching"]

    def depends(look: Any, among: range) -> Iterator[int]:
        return (at for at in matching(look, among) if (look._row.offset - look.begin) % 5 != 4)

    with replaced(Look, "_matching", depends):
        yield


VIEW_ABLATIONS: dict[str, Ablation] = {
    "V1-last-run": last_run,
    "V2-advance-batches": advance_batches,
    "V3-markers": markers,
    "V4-records-that-pass": records_that_pass,
    "V5-agreement": agreement,
}
"""By the name that `penstock sim run --views --ablate` has for it."""
