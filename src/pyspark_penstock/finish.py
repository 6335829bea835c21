"""Completes batch writes whose driver died between its decision and the last commit: by the next write, or by hand.

    python -m pyspark_penstock.finish HOST:PORT [SINK_ID]
    python -m pyspark_penstock.finish HOST:PORT --forget NAME

Writes with the option ledgerTopic need ``--ledger-topic TOPIC`` at the end.

A write that can no longer be completed, because brokers aborted one of its transactions after its timeout, is partly
committed. Its state is kept: each run of this command lists it and exits with 1, and each later batch write warns of
it, until ``--forget``. A streaming query does not need this: it completes its own batch when it is started again.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from penstock.model.errors import BrokerError
from penstock.wire.api import list_groups
from pyspark_penstock.errors import PenstockRuntimeError
from pyspark_penstock.link import BrokerLink, LinkSettings, raise_for
from pyspark_penstock.sink_state import Outcome, SinkNames, SinkState
from pyspark_penstock.sink_store import SinkStore
from pyspark_penstock.txn_calls import commit_all
from pyspark_penstock.write_options import BATCH_SINK_PREFIX, LEDGER_TOPIC

LIST_GROUPS_VERSION_MAX = 4
USAGE = "usage: python -m pyspark_penstock.finish HOST:PORT [SINK_ID | --forget NAME] [--ledger-topic TOPIC]"

_RUN = re.compile(r"[0-9a-f]{32}")
"""The end of the name of a batch write's sink: other sinks, whose names may begin alike, are not touched."""


class PartlyWritten(UserWarning):
    """A batch write of an earlier driver is partly committed, or may be, and cannot be completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A decided write, and the tasks whose transactions can no longer be committed."""

    sink: str
    transactions: int
    output: str = ""
    rows: int = 0
    lost: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    """Tasks whose transactions the brokers have forgotten: they may be committed."""
    ledger_topic: str = LEDGER_TOPIC


def finish(link: BrokerLink, prefix: str = BATCH_SINK_PREFIX, ledger_topic: str = LEDGER_TOPIC) -> list[Finished]:
    """Complete every decided batch write whose name has this prefix; the transactions of the others time out.

    A write may be completed by its own driver at the same time, with the same result.
    """
    done: list[Finished] = []
    for group in sorted(each for each in _groups(link) if each.startswith(prefix)):
        if not _RUN.fullmatch(group.removeprefix(prefix)):
            continue
        names = SinkNames(sink=group)
        store = SinkStore(link, names, ledger_topic)
        # A pending decision belongs to its driver, or times out.
        is_settled, state = store.read_if_stable()
        if not is_settled or state is None or state.decided is None or state.query != group:
            continue
        outcome = _outcome(link, names, state)
        if outcome.lost:
            store.update(_losing(outcome.lost))
        elif not outcome.unknown:
            store.forget()
        decided = state.decided
        rows = 0 if decided.content is None else decided.content.rows
        done.append(
            Finished(
                sink=group,
                transactions=len(decided.written),
                output=decided.output,
                rows=rows,
                lost=outcome.lost,
                unknown=outcome.unknown,
                ledger_topic=ledger_topic,
            )
        )
    return done


def _losing(lost: tuple[int, ...]) -> Callable[[SinkState | None], SinkState | None]:
    return lambda now: None if now is None else replace(now, lost=lost)


def _outcome(link: BrokerLink, names: SinkNames, state: SinkState) -> Outcome:
    """Commit the decided transactions; those known to be lost stay lost when the brokers forget them."""
    assert state.decided is not None, "nothing is decided"
    tasks = {names.producer(state.decided.generation, each): each.task for each in state.decided.written}
    commits = commit_all(link, list(tasks))
    lost = {*state.lost, *(tasks[each] for each in commits.lost)}
    unknown = {tasks[each] for each in commits.unknown} - lost
    return Outcome(lost=tuple(sorted(lost)), unknown=tuple(sorted(unknown)))


def _is_broken(link: BrokerLink, names: SinkNames, state: SinkState) -> bool:
    if state.decided is None:
        return False
    outcome = _outcome(link, names, state)
    return bool(outcome.lost or outcome.unknown)


def unfinished(done: Iterable[Finished]) -> list[Finished]:
    """The writes that are partly committed, or may be."""
    return [each for each in done if each.lost or each.unknown]


def warn_of(broken: Finished) -> None:
    """Warn of a partly committed write, in the log of the driver that found it."""
    warnings.warn(description(broken), PartlyWritten, stacklevel=2)


def finish_after_write(link: BrokerLink, prefix: str, ledger_topic: str) -> None:
    """Complete earlier writes, and warn of those that cannot be: the calling write is committed and must not fail."""
    try:
        for broken in unfinished(finish(link, prefix, ledger_topic)):
            warn_of(broken)
    except (BrokerError, PenstockRuntimeError) as error:
        warnings.warn(f"earlier batch writes could not be looked for: {error}", UserWarning, stacklevel=2)


def description(broken: Finished) -> str:
    what = f"an earlier batch write of {broken.rows} rows to {broken.output or 'unknown topics'}"
    forget = f"then forget the write: python -m pyspark_penstock.finish HOST:PORT --forget {broken.sink}"
    if broken.ledger_topic != LEDGER_TOPIC:
        forget += f" --ledger-topic {broken.ledger_topic}"
    forgotten = (
        f"the brokers have forgotten the transactions of tasks {list(broken.unknown)} of {broken.transactions}"
        " (transactional.id.expiration.ms)"
    )
    if not broken.lost:
        return (
            f"{what} was decided, its driver died before it had committed everything, and {forgotten}: whether their"
            f" rows are committed is unknown. Look, write again what is missing, {forget}"
        )
    too = f", and {forgotten}" if broken.unknown else ""
    return (
        f"{what} is partly committed: the transactions of tasks {list(broken.lost)} of {broken.transactions} were"
        f" aborted after the write was decided{too}; its driver is gone. Write those rows again, {forget}"
    )


def _groups(link: BrokerLink) -> list[str]:
    def attempt() -> list[str]:
        found: list[str] = []
        for address in link.brokers():
            response = link.call(address, list_groups, list_groups.Request(), LIST_GROUPS_VERSION_MAX)
            raise_for(response.error_code, "the groups")
            found += [each.group_id for each in response.groups]
        return found

    return link.retrying("the groups", attempt)


def main(arguments: list[str]) -> int:
    ledger_topic = LEDGER_TOPIC
    if arguments[-2:-1] == ["--ledger-topic"]:
        *arguments, _, ledger_topic = arguments
    match arguments:
        case [bootstrap, "--forget", name]:
            with BrokerLink(LinkSettings(bootstrap=bootstrap)) as link:
                store = SinkStore(link, SinkNames(sink=name), ledger_topic)
                state = store.read()
                if state is None or not _is_broken(link, SinkNames(sink=name), state):
                    print(f"{name} is not a partly committed write", file=sys.stderr)
                    return 1
                store.forget()
            print(f"{name}: forgotten")
            return 0
        case [bootstrap, *rest] if len(rest) <= 1 and not any(each.startswith("-") for each in rest):
            prefix = f"{rest[0]}-" if rest else BATCH_SINK_PREFIX
        case _:
            print(USAGE, file=sys.stderr)
            return 2
    with BrokerLink(LinkSettings(bootstrap=bootstrap)) as link:
        done = finish(link, prefix, ledger_topic)
    for each in done:
        print(description(each) if unfinished([each]) else f"{each.sink}: {each.transactions} transactions committed")
    if not done:
        print("nothing to finish")
    return 1 if unfinished(done) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
