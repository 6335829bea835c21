"""A group member as a separate process, which can be stopped by signals: prints events as JSON lines.

python member_program.py BOOTSTRAP GROUP TOPIC PROTOCOL
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException


def say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def main(bootstrap: str, group: str, topic: str, protocol: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": 2000, "heartbeat.interval.ms": 200}
    consumer = Consumer(settings)
    consumer.subscribe(
        [topic],
        on_assign=lambda _, parts: say("assigned", partitions=[part.partition for part in parts]),
        on_revoke=lambda _, parts: say("revoked", partitions=[part.partition for part in parts]),
        on_lost=lambda _, parts: say("lost", partitions=[part.partition for part in parts]),
    )
    while True:
        for message in consumer.consume(50, 0.05):
            if message.error() is not None:
                continue
            say("read", partition=message.partition(), offset=message.offset(), value=message.value().decode())
            with suppress(KafkaException):
                consumer.commit(message, asynchronous=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
