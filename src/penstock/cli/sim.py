"""`penstock sim`: whole brokers and their clients in one process, with faults drawn from a seed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import repeat
from multiprocessing import get_context
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failure import Failure
from penstock.cli.options import OutputFormat, OutputOption
from penstock.cli.output import Number, counted, note, progress, show_table

if TYPE_CHECKING:
    from penstock.testing.sim.ablations import Ablation
    from penstock.testing.sim.run import Verdict

app = typer.Typer(
    help="Simulate brokers and clients with faults, each run from a seed; no broker needed.",
    no_args_is_help=True,
    add_completion=False,
)

EXIT_ANOMALY = 1
DISK_CHANGES = frozenset(
    {
        "append", "create", "link", "lock", "make_directory", "remove_tree", "rename", "sync", "sync_directory",
        "truncate", "unlink", "write",
    }
)  # fmt: skip
"""What a replay calls changes of a disk."""
SEEDS_FOR_EVENTS = 10
"""A run of so many seeds of a cluster sees everything rare."""
BROKERS_MIN = {"schedules": 3, "tides": 3}
"""What is simulated on clusters only."""
SHOWN_MAX = 5
"""Anomalies of one seed that a table shows."""

AblateOption = Annotated[
    str | None,
    typer.Option("--ablate", metavar="RULE", help="Take a rule out of the broker; the simulator should notice."),
]
BrokersOption = Annotated[
    int, typer.Option("--brokers", "-b", min=1, max=100, help="Brokers of the simulated cluster.")
]
QueuesOption = Annotated[bool, typer.Option("--queues", help="Have share groups as well.")]
LettersOption = Annotated[
    bool,
    typer.Option("--letters", help="Have a share group in order of keys, with backoff and dead letters, as well."),
]
SchedulesOption = Annotated[
    bool, typer.Option("--schedules", help="Have a topic of schedules as well; needs 3 brokers.")
]
TidesOption = Annotated[
    bool, typer.Option("--tides", help="Have a topic that shrinks and grows as well; needs 3 brokers.")
]
ViewsOption = Annotated[bool, typer.Option("--views", help="Have filtered views as well.")]
SecondsOption = Annotated[float, typer.Option("--seconds", min=1, max=86_400, help="Simulated seconds with faults.")]


@app.command()
def run(
    seeds: Annotated[int, typer.Option("--seeds", "-n", min=1, help="How many.")] = 20,
    first_seed: Annotated[int, typer.Option("--first-seed", min=0, help="The first of them.")] = 1,
    brokers: BrokersOption = 1,
    queues: QueuesOption = False,
    letters: LettersOption = False,
    schedules: SchedulesOption = False,
    tides: TidesOption = False,
    views: ViewsOption = False,
    seconds: SecondsOption = 60.0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0 is one per core.")] = 0,
    ablate: AblateOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Run seeds and judge what their clients saw. Exits with 1 if one of them shows an anomaly."""
    ablation_of(ablate)
    extras = extras_of(brokers, queues=queues, letters=letters, schedules=schedules, tides=tides, views=views)
    wanted = range(first_seed, first_seed + seeds)
    verdicts: list[Verdict] = []
    with progress("simulating", seeds, unit="seeds", show=output is OutputFormat.TABLE) as bar:
        for verdict in run_all(wanted, brokers, seconds, ablate, jobs or os.cpu_count() or 1, extras):
            verdicts.append(verdict)
            if output is OutputFormat.JSON:
                print(verdict.line(), flush=True)
            bar.advance(len(verdicts), "")
    bad = [verdict for verdict in verdicts if not verdict.ok]
    unseen = events_missing(verdicts)
    for event in unseen:
        note(f"no {event} in {len(verdicts)} seeds")
    if output is OutputFormat.TABLE:
        show(verdicts)
        note(f"seen: {seen(verdicts)}")
        note(f"{counted(len(bad), 'seed')} with anomalies" if bad else "no anomalies")
        if bad:
            rule = "" if ablate is None else f" --ablate {ablate}"
            cluster = "" if brokers == 1 else f" --brokers {brokers}"
            more = "".join(f" --{extra}" for extra in extras)
            note(f"see what happened: penstock sim replay {bad[0].seed}{cluster}{more}{rule}")
    if bad or unseen:
        raise typer.Exit(EXIT_ANOMALY)


@app.command()
def replay(
    seed: Annotated[int, typer.Argument(metavar="SEED", min=0, help="The seed to run again.")],
    brokers: BrokersOption = 1,
    queues: QueuesOption = False,
    letters: LettersOption = False,
    schedules: SchedulesOption = False,
    tides: TidesOption = False,
    views: ViewsOption = False,
    seconds: SecondsOption = 60.0,
    ablate: AblateOption = None,
    every_message: Annotated[bool, typer.Option("--all", help="Show every message and every disk write, too.")] = False,
) -> None:
    """Run a seed again and show what happened: time, node, event. Exits with 1 if it shows an anomaly."""
    from penstock.testing.sim.run import Simulation

    extras = extras_of(brokers, queues=queues, letters=letters, schedules=schedules, tides=tides, views=views)
    more: dict[str, Any] = dict.fromkeys(extras, True)
    simulation = Simulation(seed=seed, brokers=brokers, duration_s=seconds, recorded=True, **more)
    verdict = simulation.run(ablation_of(ablate))
    for line in simulation.lines if every_message else events_of(simulation.lines):
        print(line)
    print(verdict.line())
    if not verdict.ok:
        raise typer.Exit(EXIT_ANOMALY)


def events_of(lines: Iterable[str]) -> Iterator[str]:
    """The lines without messages, disk writes and connections: those are most of them."""
    for line in lines:
        _, _, text = line.partition(" ")
        subject, _, rest = text.partition(" ")
        if subject != "connection" and rest.partition(" ")[0] not in DISK_CHANGES:
            yield line


def ablation_of(rule: str | None) -> Ablation:
    """What takes a rule out."""
    from penstock.testing.sim.ablations import ABLATIONS
    from penstock.testing.sim.cluster_ablations import CLUSTER_ABLATIONS
    from penstock.testing.sim.queue_ablations import LETTER_ABLATIONS, QUEUE_ABLATIONS
    from penstock.testing.sim.views import VIEW_ABLATIONS

    if rule is None:
        return nullcontext
    rules = ABLATIONS | CLUSTER_ABLATIONS | QUEUE_ABLATIONS | LETTER_ABLATIONS | VIEW_ABLATIONS
    if rule not in rules:
        raise Failure(f"no rule {rule}", f"rules: {', '.join(rules)}")
    return rules[rule]


def extras_of(brokers: int, **chosen: bool) -> tuple[str, ...]:
    """What a simulation has besides the workloads of every seed."""
    extras = tuple(name for name, is_chosen in chosen.items() if is_chosen)
    for extra in extras:
        if brokers < BROKERS_MIN.get(extra, 1):
            raise Failure(
                f"--{extra} needs {BROKERS_MIN[extra]} brokers or more", f"add --brokers {BROKERS_MIN[extra]}"
            )
    return extras


def run_one(seed: int, brokers: int, seconds: float, ablate: str | None, extras: tuple[str, ...] = ()) -> Verdict:
    """One seed, in any process."""
    from penstock.testing.sim.run import Simulation

    more: dict[str, Any] = dict.fromkeys(extras, True)
    return Simulation(seed=seed, brokers=brokers, duration_s=seconds, **more).run(ablation_of(ablate))


def run_all(
    seeds: range, brokers: int, seconds: float, ablate: str | None, jobs: int, extras: tuple[str, ...] = ()
) -> Iterator[Verdict]:
    """The verdicts in the order of the seeds, from so many processes."""
    if min(jobs, len(seeds)) == 1:
        yield from map(partial(run_one, brokers=brokers, seconds=seconds, ablate=ablate, extras=extras), seeds)
        return
    with ProcessPoolExecutor(min(jobs, len(seeds)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(run_one, seeds, repeat(brokers), repeat(seconds), repeat(ablate), repeat(extras))


def seen(verdicts: list[Verdict]) -> str:
    """How often all seeds together saw each rare event."""
    totals: Counter[str] = Counter()
    for verdict in verdicts:
        totals.update(verdict.events)
    return ", ".join(f"{event} {count}" for event, count in totals.items())


def events_missing(verdicts: list[Verdict]) -> list[str]:
    """What none of many seeds of a cluster saw, and one of them should have."""
    from penstock.testing.sim.cluster import EVENTS_OF_RUNS

    clusters = [verdict for verdict in verdicts if verdict.brokers > 1]
    if len(clusters) < SEEDS_FOR_EVENTS:
        return []
    return [event for event in EVENTS_OF_RUNS if not any(verdict.events[event] for verdict in clusters)]


def show(verdicts: list[Verdict]) -> None:
    """One row per seed, and what was wrong."""
    columns = ("SEED", Number("OPERATIONS"), Number("FAULTS"), "TRACE", "VERDICT")
    rows = [
        (
            verdict.seed,
            sum(verdict.operations.values()),
            sum(verdict.faults.values()),
            verdict.trace_hash,
            "ok" if verdict.ok else f"anomalies: {len(verdict.anomalies)}",
        )
        for verdict in verdicts
    ]
    show_table(columns, rows)
    for verdict in verdicts:
        for anomaly in verdict.anomalies[:SHOWN_MAX]:
            print(f"seed {verdict.seed}: {anomaly}")
        if len(verdict.anomalies) > SHOWN_MAX:
            print(f"seed {verdict.seed}: and {len(verdict.anomalies) - SHOWN_MAX} more")
