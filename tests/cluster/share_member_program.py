"""A member of a share group as a separate process, which can be killed: prints what happens as JSON lines.

python share_member_program.py BOOTSTRAP GROUP TOPIC NAME [RELEASED REJECTED]

It accepts most records, releases one of ten deliveries, or the given shares, and says so before and after each
acknowledgement.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

KINDS = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
RELEASED = 0.1
WORK_SECONDS = 0.01


def say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, "at": time.monotonic(), **facts}), flush=True)


def main(bootstrap: str, group: str, topic: str, name: str, released: str = str(RELEASED), rejected: str = "0") -> None:
    randomness = random.Random(name)
    shares = (1 - float(released) - float(rejected), float(released), float(rejected))
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": 10,
        "log_level": 0,
    }
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])
        while True:
            sent_at = time.monotonic()
            messages = [message for message in consumer.poll(0.5) if message.error() is None]
            chosen: list[dict[str, Any]] = []
            for message in messages:
                where = {"partition": message.partition(), "offset": message.offset()}
                say("delivered", value=int(message.value()), count=message.delivery_count(), sent_at=sent_at, **where)
                [kind] = randomness.choices(KINDS, shares)
                consumer.acknowledge(message, kind)
                chosen.append({**where, "kind": kind.name.lower()})
                time.sleep(WORK_SECONDS)
            if chosen:
                say("acknowledges", records=chosen)
                try:
                    errors = consumer.commit_sync(10.0)
                except KafkaException:
                    continue
                good = [place.partition for place, error in errors.items() if error is None]
                say("acknowledged", records=[each for each in chosen if each["partition"] in good])


if __name__ == "__main__":
    main(*sys.argv[1:])
