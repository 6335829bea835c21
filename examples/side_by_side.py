"""The three kinds of delivery side by side: each is killed (-9) repeatedly; lost and duplicated messages are counted.

    penstock up
    python examples/side_by_side.py
    python examples/side_by_side.py --bootstrap localhost:9092 --messages 2000 --kills 10 --seed 7

It creates its own topics, and runs at_most_once.py, at_least_once.py and read_process_write.py from this folder on the
same messages. The first two write a line per message to a file; the results of the third are messages again.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from where import bootstrap_servers

FOLDER = Path(__file__).parent
SECONDS_MAX = 120.0
LIFE_SECONDS_MAX = 0.5
"""How long a process lives at most from its first result to its kill."""


def make_topics(bootstrap: str, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(SECONDS_MAX)


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number))
    if producer.flush(SECONDS_MAX):
        raise SystemExit(f"{topic} could not be filled")


def in_file(path: Path) -> Counter[int]:
    """The messages in the lines of a file; the last line may be incomplete."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return Counter(int(line) for line in text.splitlines() if line)


def in_topic(bootstrap: str, topic: str) -> Counter[int]:
    """The committed messages of a topic, read from its beginning to its end."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: Counter[int] = Counter()
    try:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = reader.poll(SECONDS_MAX)
            if message is None:
                raise SystemExit(f"no response about {topic}")
            error = message.error()
            if error is None:
                found[int(message.value() or b"")] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        reader.close()


class Position:
    """The position of a group in partition 0 of a topic."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        self._place = TopicPartition(topic, 0)

    def now(self) -> int:
        return max(0, int(self._reader.committed([self._place], SECONDS_MAX)[0].offset))

    def close(self) -> None:
        self._reader.close()


def wait_until(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not ready():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} took longer than {SECONDS_MAX:g} s")
        time.sleep(0.02)


def run_killed(command: list[str], position: Position, count: int, kills: int, chance: random.Random) -> None:
    """Run a program until its group is at the end; kill it several times, each time after it has made progress."""
    for left in range(kills, -1, -1):
        before = position.now()
        process = subprocess.Popen(command)
        try:
            if left:
                wait_until(lambda: position.now() != before or before == count, "the first result after a kill")  # noqa: B023
                time.sleep(chance.random() * LIFE_SECONDS_MAX)
            else:
                wait_until(lambda: position.now() >= count, "the rest of the work")
        finally:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="HOST:PORT; else $PENSTOCK_BOOTSTRAP, else localhost:9092")
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=5, help="of each program")
    parser.add_argument("--seed", type=int, default=1, help="the moments of the kills are drawn from it")
    given = parser.parse_args()
    bootstrap = bootstrap_servers(given.bootstrap)
    run = uuid.uuid4().hex[:8]
    source, target = f"side-by-side-{run}", f"side-by-side-results-{run}"
    make_topics(bootstrap, [source, target])
    fill(bootstrap, source, given.messages)
    print(f"{given.messages} messages, {given.kills} kills each\n\n{'':24}{'lost':>8}{'doubled':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("at_most_once", "at_least_once", "read_process_write"):
            group, ledger = f"{name}-{run}", Path(folder) / name
            if name == "read_process_write":
                own = ["--source", source, "--target", target, "--name", group, "--batch", "10"]
            else:
                own = ["--topic", source, "--ledger", str(ledger)]
            shared = ["--bootstrap", bootstrap, "--group", group, "--instance", "one"]
            command = [sys.executable, str(FOLDER / f"{name}.py"), *shared, *own]
            position = Position(bootstrap, group, source)
            run_killed(command, position, given.messages, given.kills, random.Random(given.seed))
            position.close()
            done = in_topic(bootstrap, target) if name == "read_process_write" else in_file(ledger)
            lost = sum(done[number] == 0 for number in range(given.messages))
            doubled = sum(times > 1 for times in done.values())
            print(f"{name:24}{lost:>8}{doubled:>10}", flush=True)


if __name__ == "__main__":
    main()
