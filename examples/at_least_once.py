"""At least once: process, then commit. A crash can repeat a message and never loses one.

For work that can be repeated without harm: a row written by its key, a total that is set and not added to.

    penstock up
    python examples/at_least_once.py --topic orders --group billing
    python examples/at_least_once.py --bootstrap localhost:9092 --topic orders --group billing --ledger done.txt
"""

from __future__ import annotations

import argparse
import os

from confluent_kafka import Consumer, Message
from where import bootstrap_servers


def process(message: Message, ledger: str | None) -> None:
    """The work itself; here one line per message, on the disk when it returns."""
    line = (message.value() or b"").decode(errors="replace")
    if ledger is None:
        print(line, flush=True)
        return
    with open(ledger, "a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def run(consumer: Consumer, topic: str, ledger: str | None, count: int | None) -> None:
    consumer.subscribe([topic])
    done = 0
    while count is None or done < count:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            raise SystemExit(str(message.error()))
        process(message, ledger)
        # Only now: the next owner of this partition begins at the committed offset.
        consumer.commit(message, asynchronous=False)
        done += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="HOST:PORT; else $PENSTOCK_BOOTSTRAP, else localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--instance", help="group.instance.id: a restarted process keeps its partitions")
    parser.add_argument("--ledger", help="a file to write to instead of the screen")
    parser.add_argument("--count", type=int, help="end after so many messages")
    given = parser.parse_args()
    bootstrap = bootstrap_servers(given.bootstrap)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": given.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings | ({"group.instance.id": given.instance} if given.instance else {}))
    try:
        run(consumer, given.topic, given.ledger, given.count)
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
