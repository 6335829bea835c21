"""A consumer of kafka-python with a rack, as a process: it leaves sockets of failed connections to its exit.

python rack_reader_program.py BOOTSTRAP TOPIC RACK TIMEOUT_MS METADATA_AGE_MS
"""

from __future__ import annotations

import sys
from typing import Any

import kafka


def main(bootstrap: str, topic: str, rack: str, timeout_ms: str, metadata_age_ms: str) -> None:
    """Print the values of partition 0 from its start, a line each, until it is killed."""
    consumer: Any = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_rack=rack,
        group_id=None,
        auto_offset_reset="none",
        request_timeout_ms=int(timeout_ms),
        metadata_max_age_ms=int(metadata_age_ms),
    )
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    while True:
        for batch in consumer.poll(timeout_ms=200).values():
            for record in batch:
                print(record.value.decode())
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
