"""Checks histories of clients: sends, polls and transactions with values unique per key.

    python -m penstock.testing.histories FILE                        check a recorded history
    python -m penstock.testing.histories FILE --run 127.0.0.1:9092   record one on a broker, then check it

A history is a file of JSON lines (`history` describes them), so any client in any language can write one.
"""

from penstock.testing.histories.anomalies import KAFKA_ALLOWS, Anomaly, Kind
from penstock.testing.histories.checker import check, forbidden
from penstock.testing.histories.history import (
    CommittedOffset,
    Event,
    HistoryError,
    LastStable,
    Moved,
    Operation,
    Outcome,
    PartitionEnd,
    Poll,
    Replica,
    Send,
    load,
    parse,
    to_line,
)

__all__ = [
    "KAFKA_ALLOWS",
    "Anomaly",
    "CommittedOffset",
    "Event",
    "HistoryError",
    "Kind",
    "LastStable",
    "Moved",
    "Operation",
    "Outcome",
    "PartitionEnd",
    "Poll",
    "Replica",
    "Send",
    "check",
    "forbidden",
    "load",
    "parse",
    "to_line",
]
