"""A filtered view against the same filter in a client: `python -m bench.views`.

Both readers are confluent-kafka in this process and read one topic of 1 KB JSON records, of which one in a hundred
passes. The filtering reader decodes each record with orjson (or msgspec, where that is not installed).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing.broker_process import PenstockProcess

try:
    from orjson import loads

    DECODER = "orjson"
except ImportError:
    from msgspec.json import decode as loads

    DECODER = "msgspec"

WHERE = "value.country = 'FR' AND value.amount < 40"
TEXT_WHERE = "value.kind = 'refund'"
CODECS = ("none", "lz4", "zstd")


def order(number: int) -> bytes:
    """One in four is from France, one in 25 of any country costs less than 40, one in a hundred is a refund."""
    record = {
        "id": number,
        "country": ("FR", "DE", "US", "IT")[number % 4],
        "amount": number // 4 % 25 * 40 + number % 40,
        "kind": "refund" if number % 100 == 7 else "sale",
        "customer": {"id": number % 9973, "tags": [f"tag-{number % 17}", f"tag-{number % 13}"]},
        "lines": [{"sku": f"sku-{(number * at) % 7919}", "count": at, "price": at * 1.25} for at in range(1, 15)],
    }
    text = json.dumps(record).encode()
    return text + b" " * max(0, 1_000 - len(text))


def fill(bootstrap: str, topic: str, records: int, codec: str) -> None:
    values = [order(number) for number in range(min(records, 20_000))]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % len(values)])
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def read(bootstrap: str, topic: str, end: int, passes: Callable[[bytes], bool]) -> int:
    """How many records pass on the way to the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    found = 0
    while consumer.position([place])[0].offset < end:
        for message in consumer.consume(5_000, 0.05):
            found += message.error() is None and passes(message.value() or b"")
    consumer.close()
    return found


def by_two_members(value: bytes) -> bool:
    found = loads(value)
    return found["country"] == "FR" and found["amount"] < 40


def by_text(value: bytes) -> bool:
    return bool(loads(value)["kind"] == "refund")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    records: int = parser.parse_args().records
    print(f"{records:,} records of 1 KB; the client decodes with {DECODER}")
    print(f"{'codec':6}{'reader':>26}{'passed':>9}{'records/s':>12}{'own CPU s':>11}{'broker CPU s':>14}")
    for codec in CODECS:
        with PenstockProcess() as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            views = {"view, two members": WHERE, "view, a text": TEXT_WHERE}
            wanted = [NewTopic("orders", num_partitions=1)]
            admin.create_topics(wanted)["orders"].result()
            names = {what: f"view-{at}" for at, what in enumerate(views)}
            for what, where in views.items():
                view = NewTopic(names[what], config={"view.of": "orders", "view.filter": where})
                admin.create_topics([view])[names[what]].result()
            fill(broker.bootstrap, "orders", records, codec)
            readers: list[tuple[str, str, Callable[[bytes], bool]]] = [
                ("client, two members", "orders", by_two_members),
                ("view, two members", names["view, two members"], lambda _: True),
                ("client, a text", "orders", by_text),
                ("view, a text", names["view, a text"], lambda _: True),
            ]
            for what, topic, passes in readers:
                began, own, its = time.monotonic(), time.process_time(), cpu_seconds(broker.pid)
                found = read(broker.bootstrap, topic, records, passes)
                seconds = time.monotonic() - began
                row = f"{codec:6}{what:>26}{found:>9,}{records / seconds:>12,.0f}"
                print(f"{row}{time.process_time() - own:>11.2f}{cpu_seconds(broker.pid) - its:>14.2f}", flush=True)


if __name__ == "__main__":
    main()
