"""`--processes 2` against one process: one-record requests, the work in which one process is busy all the time.

Both have two topics whose leaders are spread over the processes, and two load programs with half of the connections
each.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.client_program import run_client
from bench.cluster import leader_of
from bench.comparison import costed, counted, together
from bench.samples import KAFKA, PENSTOCK, Sample
from bench.sides import Contender, Side, turns
from bench.works import Sizes
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import Deadline, ProcessFailed, free_ports_in_a_row

PART = "processes"
PROCESSES = (1, 2)
TOPICS_MAX = 20
"""Topics that are created until two of them have their leaders in different processes."""
CLIENTS = 2
CONNECTIONS = 8
READY_S_MAX = 60.0
REQUEST_BYTES = 100

Say = Callable[[str], None]


class Several(PenstockProcess):
    """Brokers of one host under one parent, on consecutive ports."""

    def __init__(self, processes: int, folder: Path, python: Path) -> None:
        super().__init__(
            data=folder / "data",
            port=free_ports_in_a_row(processes),
            settings={"metrics.listener": ""},
            arguments=("--processes", str(processes)),
            within=folder,
        )
        self._python = python

    @property
    def command(self) -> tuple[str, ...]:
        return (str(self._python), *super().command[1:])


def measure_several(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    """The same load on one process and on two, alternating."""
    if PART not in parts:
        return
    chosen = [contender for contender in contenders if contender.name != KAFKA]
    for number, (contender, processes) in turns([(each, n) for each in chosen for n in PROCESSES], sizes.rounds):
        assert contender.python is not None, "a penstock runs with the Python it is installed for"
        with started(processes, contender.python, data) as side:
            topics = spread_topics(side, processes)
            load(side, topics, sizes.request_seconds)
            values = load(side, topics, sizes.request_seconds)
        yield from counted(Sample(work=f"{PART}-{processes}", side=PENSTOCK, round=number, values=values), say)


@contextlib.contextmanager
def started(processes: int, python: Path, data_root: Path) -> Iterator[Side]:
    data_root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{PART}-{processes}-", dir=data_root))
    broker = Several(processes, folder, python)
    side = Side(name=PENSTOCK, broker=broker, data_root=data_root)
    try:
        side.start()
        deadline = Deadline(READY_S_MAX)
        while side.brokers() < processes:
            if deadline.passed:
                raise ProcessFailed(f"not all of {processes} brokers are live\n{broker.tail()}")
        yield side
    finally:
        broker.close()
        shutil.rmtree(folder, ignore_errors=True)


def spread_topics(side: Side, processes: int) -> list[tuple[str, str]]:
    """Two topics, each with the address of its leader; in different processes where there are two."""
    found: dict[str, tuple[str, str]] = {}
    for number in range(TOPICS_MAX):
        topic = f"bench-{PART}-{number}"
        side.create_topics([topic], partitions=1)
        _, address = leader_of(side, topic)
        found.setdefault(address if processes > 1 else topic, (topic, address))
        if len(found) == CLIENTS:
            return list(found.values())
    raise ProcessFailed(f"{TOPICS_MAX} topics have their leaders in one process")


def load(side: Side, topics: Sequence[tuple[str, str]], seconds: int) -> dict[str, float]:
    """A load program for each topic, all at once, and the cost of the brokers."""
    shape = ("--connections", str(CONNECTIONS // CLIENTS), "--in-flight", "8", "--seconds", str(seconds))

    def one(topic_at: tuple[str, str]) -> dict[str, float]:
        topic, bootstrap = topic_at
        return run_client("requests", bootstrap, topic, *shape, "--size", str(REQUEST_BYTES))

    with ThreadPoolExecutor(CLIENTS) as at_once:
        return costed(side, lambda: together(list(at_once.map(one, topics))))
