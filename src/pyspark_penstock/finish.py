"""Batch writes whose driver died between its decision and the last commit: completed by the next one, or by hand.

    python -m pyspark_penstock.finish HOST:PORT [SINK_ID]

A streaming query needs none of it: it completes its own batch when it is started again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from penstock.wire.api import list_groups
from pyspark_penstock.ledger import Ledger, SinkNames
from pyspark_penstock.link import BrokerLink, LinkSettings, raise_for
from pyspark_penstock.txn_calls import commit_all
from pyspark_penstock.write_options import BATCH_SINK_PREFIX, LEDGER_TOPIC

LIST_GROUPS_VERSION_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A write that was decided, and how many of its transactions could not be committed any more."""

    sink: str
    transactions: int
    lost: int


def finish(link: BrokerLink, prefix: str = BATCH_SINK_PREFIX, ledger_topic: str = LEDGER_TOPIC) -> list[Finished]:
    """Complete every batch write with a name like this that was decided; the others time out to nothing.

    One that is being completed by its own driver at this moment is completed by both, to the same end.
    """
    done: list[Finished] = []
    for group in sorted(each for each in _groups(link) if each.startswith(prefix)):
        names = SinkNames(sink=group)
        ledger = Ledger(link, names, ledger_topic)
        state = ledger.read()
        if state is None or state.batch < 0:
            continue
        lost = commit_all(link, [names.producer(state.written_in, each) for each in state.written])
        ledger.forget()
        done.append(Finished(sink=group, transactions=len(state.written), lost=len(lost)))
    return done


def _groups(link: BrokerLink) -> list[str]:
    def attempt() -> list[str]:
        found: list[str] = []
        for address in link.brokers():
            answer = link.ask(address, list_groups, list_groups.Request(), LIST_GROUPS_VERSION_MAX)
            raise_for(answer.error_code, "the groups")
            found += [each.group_id for each in answer.groups]
        return found

    return link.patiently("the groups", attempt)


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        print("usage: python -m pyspark_penstock.finish HOST:PORT [SINK_ID]", file=sys.stderr)
        return 2
    prefix = f"{arguments[1]}-" if len(arguments) == 2 else BATCH_SINK_PREFIX
    with BrokerLink(LinkSettings(bootstrap=arguments[0])) as link:
        done = finish(link, prefix)
    for each in done:
        trouble = f", {each.lost} were aborted before" if each.lost else ""
        print(f"{each.sink}: {each.transactions} transactions committed{trouble}")
    if not done:
        print("nothing to finish")
    return 1 if any(each.lost for each in done) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
