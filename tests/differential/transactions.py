"""Transactional producers for the scenarios: bodies of their requests, and transactions."""

from __future__ import annotations

import dataclasses
from typing import Any

from .batches import TRANSACTIONAL, batch
from .requests import fetch_body, fetch_partition, fetch_topic, produce_many
from .script import Body, Run, Topic

FIND, INIT, ADD, ADD_OFFSETS, END, LIST = (
    ("find_coordinator", 3),
    ("init_producer_id", 5),
    ("add_partitions_to_txn", 3),
    ("add_offsets_to_txn", 4),
    ("end_txn", 4),
    ("list_transactions", 1),
)
"""APIs and versions of preparatory requests: those of clients before transaction version 2."""

PRODUCE_VERSION_1 = 11
PRODUCE_VERSION_2 = 12
"""The first version of Produce that adds its partitions to the transaction."""
END_VERSION_2 = 5
"""The first version of EndTxn that bumps the epoch with every transaction."""
READ_COMMITTED = 1
TIMEOUT_MS = 60_000
SEGMENT_MS_FOREVER = str(10**15)
ONGOING, AT_REST = "Ongoing", ("Empty", "CompleteCommit", "CompleteAbort")
NOT_YET = ("coordinator_not_available", "coordinator_load_in_progress", "not_coordinator", "concurrent_transactions")


def init_body(name: str | None, **fields: Any) -> Body:
    return {
        "transactional_id": name,
        "transaction_timeout": TIMEOUT_MS,
        "producer_id": -1,
        "producer_epoch": -1,
    } | fields


@dataclasses.dataclass(slots=True, kw_only=True)
class Transactor:
    """A transactional producer: its ids and epoch, and its next sequence in each partition."""

    run: Run
    name: str
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)

    def who(self, **fields: Any) -> Body:
        """The fields that all requests of a transaction have."""
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        } | fields

    def took(self, response: dict[str, Any]) -> dict[str, Any]:
        """Note the producer id and epoch of a response that has them."""
        if response.get("error_code") == "none" and response.get("producer_id", -1) >= 0:
            self.producer_id, self.epoch = response["producer_id"], response["producer_epoch"]
            self.run.tokens.producer_id(self.producer_id)
            self.sequences.clear()
        return response

    def init(self, **fields: Any) -> None:
        """Initialize the producer: earlier ones are fenced and an open transaction is aborted."""

        def given() -> dict[str, Any] | None:
            response = self.run.do(*INIT, init_body(self.name, **fields))
            assert response["error_code"] in ("none", *NOT_YET), response
            return response if response["error_code"] == "none" else None

        self.took(self.run.until(f"a producer id for {self.name}", given))

    def add(self, topic: Topic, *partitions: int) -> None:
        response = self.run.do(*ADD, add_body(self, (topic.name, list(partitions or (0,)))))
        for part in response["results_by_topic_v3_and_below"][0]["results_by_partition"]:
            assert part["partition_error_code"] == "none", part

    def records(self, topic: Topic, *values: bytes, partition: int = 0, **fields: Any) -> bytes:
        place = topic.name, partition
        sequence = self.sequences.get(place, 0)
        self.sequences[place] = sequence + len(values)
        made: dict[str, Any] = {
            "attributes": TRANSACTIONAL,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
        }
        return batch(*values, **made | fields)

    def produce_body(self, topic: Topic, *values: bytes, partitions: tuple[int, ...] = (0,), **fields: Any) -> Body:
        parts = [(topic, index, self.records(topic, *values, partition=index, **fields)) for index in partitions]
        return produce_many(list(parts)) | {"transactional_id": self.name}

    def write(self, topic: Topic, *values: bytes, partitions: tuple[int, ...] = (0,)) -> None:
        """Write to partitions that were added before, and check that it is accepted."""
        body = self.produce_body(topic, *values or (b"value",), partitions=partitions)
        response = self.run.do("produce", PRODUCE_VERSION_1, body)
        for part in response["responses"][0]["partition_responses"]:
            assert part["error_code"] == "none", part

    def wrote(self, topic: Topic, *values: bytes, partitions: tuple[int, ...] = (0,)) -> None:
        """Add partitions and write to them."""
        self.add(topic, *partitions)
        self.write(topic, *values, partitions=partitions)

    def end(self, *, commit: bool, version: int = END[1]) -> None:
        response = self.took(self.run.do(END[0], version, self.who(committed=commit)))
        assert response["error_code"] == "none", response
        self.settle()

    def settle(self) -> None:
        """Wait until every marker of the last transaction is written."""
        self.run.until(f"{self.name} at rest", lambda: state_of(self.run, self.name) in AT_REST)


def ledger(run: Run, token: str = "a", *, partitions: int = 1, **configs: str) -> Topic:
    """A topic of one segment: markers have the broker's time, which is years after the script's."""
    return run.topic(token, partitions=partitions, segment_ms=SEGMENT_MS_FOREVER, **configs)


def transactor(run: Run, token: str = "x", *, ready: bool = True) -> Transactor:
    """A transactional id whose coordinator is ready, by default with a producer id."""
    name = run.name(token)

    def is_ready() -> bool:
        if run.do(*FIND, {"key": name, "key_type": 1})["error_code"] != "none":
            return False
        # A broker that has just started waits for its first producer ids.
        if run.do(*INIT, init_body(None))["error_code"] != "none":
            return False
        (found,) = run.do("describe_transactions", 0, {"transactional_ids": [name]})["transaction_states"]
        return found["error_code"] not in NOT_YET

    run.until(f"a coordinator of {name}", is_ready)
    made = Transactor(run=run, name=name)
    if ready:
        made.init()
    return made


def state_of(run: Run, name: str) -> str | None:
    for found in run.do(*LIST, {"duration_filter": -1})["transaction_states"]:
        if found["transactional_id"] == name:
            return str(found["transaction_state"])
    return None


def add_body(who: Transactor, *topics: tuple[str, list[int]], **fields: Any) -> Body:
    """Topics by name with partitions, in the client's form and in the brokers'."""
    listed = [{"name": name, "partitions": partitions} for name, partitions in topics]
    single = who.who(topics=listed, verify_only=False) | fields
    return {
        "v3_and_below_transactional_id": single["transactional_id"],
        "v3_and_below_producer_id": single["producer_id"],
        "v3_and_below_producer_epoch": single["producer_epoch"],
        "v3_and_below_topics": single["topics"],
        "transactions": [single],
    }


def committed_log(run: Run, label: str, topic: Topic, partition: int = 0) -> None:
    """Record a read_committed fetch: the last stable offset, the batches, the aborted transactions."""
    body = fetch_body(fetch_topic(topic, fetch_partition(0, partition=partition)), isolation_level=READ_COMMITTED)
    run.ask(label, body, api="fetch", version=11)
