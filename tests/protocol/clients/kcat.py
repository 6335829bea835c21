"""kcat, the command line of librdkafka; Debian's is built on a release several years older than confluent-kafka's.

It takes keys, headers and values on the command line or line by line, and prints what it reads as JSON: text only.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from protocol.clients import abilities as can
from protocol.clients.abilities import SECONDS_MAX, Record


def kcat(bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
    command = ["kcat", "-b", bootstrap, "-m", "50", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def read_to_end(bootstrap: str, topic: str, *arguments: str) -> bytes:
    """What kcat prints of partition 0."""
    fast = ("-X", "fetch.wait.max.ms=50", "-X", "check.crcs=true")
    return kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", *fast, *arguments)


def options(settings: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(chain.from_iterable(("-X", f"{key}={value}") for key, value in settings.items()))


def to_record(printed: Mapping[str, Any]) -> Record:
    headers = iter(printed.get("headers", ()))
    return Record(
        value=None if printed["payload"] is None else printed["payload"].encode(),
        key=None if printed["key"] is None else printed["key"].encode(),
        headers=tuple((name, value.encode()) for name, value in zip(headers, headers, strict=True)),
        timestamp_ms=printed["ts"] if printed["tstype"] == "create" else None,
        partition=printed["partition"],
        offset=printed["offset"],
    )


class Kcat(can.TunesDelivery, can.Consumes, can.ReadsInGroup):
    codecs = can.CODECS
    shows_offsets = False
    group_protocols = ("range",)

    def __init__(self, bootstrap: str, **settings: str) -> None:
        self._bootstrap = bootstrap
        self._options = options(settings)

    def produce(
        self, topic: str, records: Sequence[Record], delivery: can.Delivery = can.BY_DEFAULT
    ) -> list[int | None]:
        chosen = {
            "compression.codec": delivery.codec,
            "linger.ms": delivery.linger_ms,
            "acks": delivery.acks,
            "enable.idempotence": None if delivery.idempotent is None else str(delivery.idempotent).lower(),
            "batch.size": delivery.batch_bytes,
        }
        given = options({key: str(value) for key, value in chosen.items() if value is not None})
        # Headers on the command line are those of every line.
        [headers] = {record.headers for record in records}
        given += tuple(chain.from_iterable(("-H", f"{name}={value.decode()}") for name, value in headers))
        lines = [record.value or b"" for record in records]
        if records[0].key is not None:
            given += ("-K", ":", "-Z")  # an empty value becomes a null
            lines = [(record.key or b"") + b":" + (record.value or b"") for record in records]
        to = ("-P", "-t", topic, "-p", "0")
        kcat(self._bootstrap, *to, *self._options, *given, stdin=b"".join(line + b"\n" for line in lines))
        return [None] * len(records)

    def consume(self, topic: str, count: int, *, start: int = 0) -> list[Record]:
        printed = read_to_end(self._bootstrap, topic, "-J", "-o", str(start), *self._options)
        return [to_record(json.loads(line)) for line in printed.splitlines()]

    def read_in_group(self, group: str, topic: str, count: int, protocol: can.GroupProtocol) -> list[bytes]:
        first = options({"auto.offset.reset": "earliest", "partition.assignment.strategy": protocol})
        return kcat(self._bootstrap, "-q", "-c", str(count), *first, "-G", group, topic).split()
