"""The benchmark's own C client, small: librdkafka in four modes, and raw one-record requests."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from bench.client_program import LoadFailed, build, run_client
from bench.groups import await_coordinators
from bench.sides import Side
from bench.transactions import await_coordinator

from penstock.testing.broker_process import PenstockProcess
from protocol.group_members import committed

pytestmark = [pytest.mark.needs("librdkafka-headers", "make"), pytest.mark.xdist_group("load-program")]


@pytest.fixture(scope="module", autouse=True)
def _program() -> None:
    build()


@pytest.fixture
def topic(broker: PenstockProcess) -> str:
    name = f"load-{uuid.uuid4()}"
    Side(name="penstock", broker=broker, data_root=broker.data).create_topics([name], partitions=3)
    return name


@pytest.mark.parametrize(
    "arguments",
    [
        ("--acks", "1"),
        ("--acks", "0"),
        ("--acks", "all"),
        ("--compression", "lz4"),
        ("--compression", "zstd"),
        ("--compression", "snappy"),
        ("--compression", "gzip"),
        ("--idempotent",),
        ("--batch-bytes", "1000", "--linger-ms", "0"),
    ],
    ids=" ".join,
)
def test_everything_produced_is_consumed(broker: PenstockProcess, topic: str, arguments: tuple[str, ...]) -> None:
    spread = ("--partitions", "3")
    sent = run_client("produce", broker.bootstrap, topic, "--messages", "6000", "--size", "100", *spread, *arguments)
    assert sent["messages"] == 6000

    # One message went to each partition before the clock started.
    read = run_client("consume", broker.bootstrap, topic, "--messages", "6003", *spread)

    assert read["messages"] == 6003
    assert read["bytes"] == 6003 * 100


def test_messages_travel_end_to_end_while_they_are_sent(broker: PenstockProcess, topic: str) -> None:
    values = run_client(
        "latency", broker.bootstrap, topic, "--rate", "500", "--seconds", "0.5", "--warmup-seconds", "0.1"
    )
    assert values["messages"] == 250
    assert 0 < values["ms_p50"] <= values["ms_p99"] <= values["ms_max"]


@pytest.mark.parametrize(("connections", "in_flight"), [(1, 1), (8, 8)])
def test_one_record_requests_are_all_stored(
    broker: PenstockProcess, topic: str, connections: int, in_flight: int
) -> None:
    counts = ("--connections", str(connections), "--in-flight", str(in_flight))
    sent = run_client("requests", broker.bootstrap, topic, *counts, "--seconds", "1", "--size", "100")
    read = run_client("consume", broker.bootstrap, topic, "--messages", f"{sent['messages']:.0f}")
    assert read["messages"] == sent["messages"]


def test_a_request_to_a_topic_that_is_missing_is_refused_by_its_code(broker: PenstockProcess) -> None:
    with pytest.raises(LoadFailed, match="refused with error code 3"):
        run_client("requests", broker.bootstrap, f"missing-{uuid.uuid4()}", "--seconds", "1")


@pytest.mark.parametrize(("connections", "in_flight"), [(1, 1), (4, 16)])
def test_commits_are_all_stored(broker: PenstockProcess, topic: str, connections: int, in_flight: int) -> None:
    groups = [f"bench-commits-{number:04}" for number in range(connections)]
    asyncio.run(await_coordinators(broker.bootstrap, groups))
    counts = ("--connections", str(connections), "--in-flight", str(in_flight))

    sent = run_client("commits", broker.bootstrap, topic, *counts, "--seconds", "1")

    kept = [committed(broker, group, topic, 1)[0] for group in groups]
    assert sum(offset + 1 for offset in kept) == sent["messages"]


TRANSACTIONS = 6
RECORDS = 10


@pytest.mark.parametrize("mode", ["exchanges", "transactions"])
@pytest.mark.parametrize("half_aborted", [False, True], ids=["all committed", "half aborted"])
def test_only_what_transactions_committed_is_consumed(
    broker: PenstockProcess, topic: str, mode: str, half_aborted: bool
) -> None:
    asyncio.run(await_coordinator(broker.bootstrap))
    spread = ("--partitions", "3")
    counts = ("--messages", str(TRANSACTIONS * RECORDS), "--per-transaction", str(RECORDS))
    sent = run_client(mode, broker.bootstrap, topic, *counts, *spread, *(("--half-aborted",) if half_aborted else ()))
    assert sent["transactions"] == TRANSACTIONS

    # One more was committed before the clock started.
    committed = RECORDS * (1 + (TRANSACTIONS // 2 if half_aborted else TRANSACTIONS))
    read = run_client("consume", broker.bootstrap, topic, "--messages", str(committed), *spread)
    assert read["messages"] == committed


def test_records_of_an_exchange_without_a_transaction_are_plain(broker: PenstockProcess, topic: str) -> None:
    counts = ("--messages", "12000", "--per-transaction", "6000")
    run_client("exchanges", broker.bootstrap, topic, *counts, "--plain")

    read = run_client("consume", broker.bootstrap, topic, "--messages", "18000")

    assert read["messages"] == 18_000
