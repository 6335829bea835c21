"""Count the source files, classes and functions that one request passes through in the broker.

    python tools/request_walks.py [--files]

A broker runs in this process, a client in a thread of it, and every Python call on the broker's loop between a request
and its response is noted, but for metrics, wiring and the wire codec. Each request is sent several times, and only
calls that all of its walks share count: maintenance and the listener's checks, once a second, do not.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from types import FrameType
from typing import Any

from penstock.broker.descriptors import divide, raise_limit
from penstock.broker.process import BACKGROUND_THREADS_MIN, arguments, settings
from penstock.broker.wiring import Broker
from penstock.client.connection import Connection
from penstock.client.wire_calls import WireCalls
from penstock.metadata.embedded import EmbeddedSource
from penstock.model import clock
from penstock.model.batch import TRANSACTIONAL_FLAG
from penstock.model.threads import ThreadPool
from penstock.net.sockets import SocketNetwork
from penstock.observe.log import LogFormat, configure, logger
from penstock.storage.disk import RealDisk
from penstock.testing.processes import LOOPBACK, free_port, port_responds
from penstock.wire.api import (
    add_partitions_to_txn,
    consumer_group_heartbeat,
    create_topics,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    join_group,
    produce,
)
from penstock.wire.records import RecordBatchBuilder

SOURCE = str(Path(clock.__file__).parents[1]) + "/"
BESIDE = ("broker/", "client/", "observe/", "wire/")
"""Modules that do not count: wiring, this program's own client, metrics, and the codec, part of which is compiled."""

SUBSCRIPTION = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"

ROUNDS = 4
"""Walks of each request, of which the common part counts."""

SETTLE_S = 0.3
"""Time for the work after a response: markers, watchers, timers."""


class Walk:
    """The functions that ran between two moments."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.classes: set[str] = set()
        self.functions: set[str] = set()
        self.recording = False

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.recording or event != "call":
            return
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return
        file = code.co_filename.removeprefix(SOURCE)
        if file.startswith(BESIDE):
            return
        self.files.add(file)
        self.functions.add(f"{file}:{code.co_qualname}")
        owner = code.co_qualname.split(".")[0]
        if f"{owner}.{code.co_name}" == code.co_qualname:
            self.classes.add(f"{file}:{owner}")

    def taken(self) -> "Walk":
        """The functions recorded since the last call."""
        found = Walk()
        found.files, self.files = self.files, set()
        found.classes, self.classes = self.classes, set()
        found.functions, self.functions = self.functions, set()
        return found

    def without(self, other: "Walk") -> "Walk":
        rest = Walk()
        rest.files = self.files - other.files
        rest.classes = self.classes - other.classes
        rest.functions = self.functions - other.functions
        return rest

    def common(self, other: "Walk") -> "Walk":
        both = Walk()
        both.files = self.files & other.files
        both.classes = self.classes & other.classes
        both.functions = self.functions & other.functions
        return both

    def joined(self, other: "Walk") -> "Walk":
        both = Walk()
        both.files = self.files | other.files
        both.classes = self.classes | other.classes
        both.functions = self.functions | other.functions
        return both


class Client:
    """One connection, which records the broker's walk for each request."""

    def __init__(self, walk: Walk, port: int) -> None:
        self.calls = WireCalls(Connection(bootstrap=f"{LOOPBACK}:{port}"))
        self.walk = walk
        self.port = port

    def call(self, api: Any, version: int, request: Any) -> tuple[Any, Walk]:
        self.walk.taken()
        self.walk.recording = True
        response = self.send(api, version, request)
        time.sleep(SETTLE_S)
        self.walk.recording = False
        return response, self.walk.taken()

    def send(self, api: Any, version: int, request: Any) -> Any:
        return self.calls.ask("walk", (LOOPBACK, self.port), api, version, request)

    def call_until_served(self, api: Any, version: int, request: Any) -> tuple[Any, Walk]:
        """Retry until the coordinator is loaded."""
        while True:
            response, walk = self.call(api, version, request)
            if response.error_code == 0:
                return response, walk


def batch(producer_id: int = -1, epoch: int = -1) -> bytes:
    builder = RecordBatchBuilder()
    builder.add(int(time.time() * 1000), b"key", b"value")
    if producer_id < 0:
        return bytes(builder.build())
    return bytes(
        builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, attributes=TRANSACTIONAL_FLAG)
    )


def produce_request(records: bytes, transactional_id: str | None = None) -> Any:
    partition = produce.PartitionProduceData(index=0, records=records)
    topic = produce.TopicProduceData(name="orders", partition_data=[partition])
    return produce.Request(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic])


def fetch_request(offset: int) -> Any:
    partition = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = fetch.FetchTopic(topic="orders", partitions=[partition])
    return fetch.Request(max_wait_ms=5000, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def heartbeat_request(group: str, member_epoch: int, **more: Any) -> Any:
    return consumer_group_heartbeat.Request(group_id=group, member_id="m", member_epoch=member_epoch, **more)


def walks(walk: Walk, port: int) -> dict[str, Walk]:
    client = Client(walk, port)
    topic = create_topics.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    client.call(create_topics, 5, create_topics.Request(topics=[topic], timeout_ms=10_000))
    find = find_coordinator.Request(key="warm", key_type=0)
    client.call(find_coordinator, 3, find)
    client.calls.coordinator("warm")
    # The first request of each kind also opens files and loads coordinators, which does not count.
    each_request(client, "warm")
    rounds = [each_request(client, f"walked-{number}") for number in range(ROUNDS)]
    return {name: reduce(Walk.common, (found[name] for found in rounds)) for name in rounds[0]}


def each_request(client: Client, name: str) -> dict[str, Walk]:
    found: dict[str, Walk] = {}
    produced, found["produce"] = client.call(produce, 9, produce_request(batch()))
    next_offset = produced.responses[0].partition_responses[0].base_offset + 1
    found["long-poll fetch"] = long_poll(client, next_offset, found["produce"])
    join = heartbeat_request(
        name, 0, rebalance_timeout_ms=10_000, subscribed_topic_names=["orders"], topic_partitions=[]
    )
    response, found["KIP-848 heartbeat that joins"] = client.call_until_served(consumer_group_heartbeat, 1, join)
    _, found["KIP-848 heartbeat without news"] = client.call(
        consumer_group_heartbeat, 1, heartbeat_request(name, response.member_epoch)
    )
    found["classic join"] = classic_join(client, f"{name}-classic")
    found["EndTxn"] = end_of_transaction(client, name)
    return found


def long_poll(client: Client, offset: int, produced: Walk) -> Walk:
    """A fetch that waits, and what a produce does for it that it does not do without."""
    waiting, walk = Client(client.walk, client.port), client.walk
    poll = threading.Thread(target=lambda: waiting.send(fetch, 12, fetch_request(offset)))
    walk.taken()
    walk.recording = True
    poll.start()
    time.sleep(SETTLE_S)
    walk.recording = False
    parked = walk.taken()
    _, both = client.call(produce, 9, produce_request(batch()))
    poll.join()
    return parked.joined(both.without(produced))


def classic_join(client: Client, group: str) -> Walk:
    protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
    wanted: dict[str, Any] = {"group_id": group, "protocol_type": "consumer", "protocols": protocols}
    timeouts = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    response, _ = client.call(join_group, 5, join_group.Request(**wanted, **timeouts))
    request = join_group.Request(**wanted, **timeouts, member_id=response.member_id)
    return client.call(join_group, 5, request)[1]


def end_of_transaction(client: Client, name: str) -> Walk:
    init = init_producer_id.Request(
        transactional_id=name, transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1
    )
    response, _ = client.call_until_served(init_producer_id, 4, init)
    producer_id, epoch = response.producer_id, response.producer_epoch
    add = add_partitions_to_txn.Request(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name="orders", partitions=[0])],
    )
    client.call(add_partitions_to_txn, 3, add)
    client.call(produce, 9, produce_request(batch(producer_id, epoch), name))
    end = end_txn.Request(transactional_id=name, committed=True, producer_id=producer_id, producer_epoch=epoch)
    response, walk = client.call(end_txn, 3, end)
    assert response.error_code == 0, f"EndTxn: error {response.error_code}"
    return walk


def table(found: dict[str, Walk]) -> Iterable[str]:
    yield "| request | files | classes | functions |"
    yield "|---|---|---|---|"
    for name, walk in found.items():
        yield f"| {name} | {len(walk.files)} | {len(walk.classes)} | {len(walk.functions)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", action="store_true", help="list the files and classes of each walk")
    listed = parser.parse_args().files
    configure(level="error", log_format=LogFormat.TEXT, stream=sys.stderr)
    walk = Walk()
    with tempfile.TemporaryDirectory() as data:
        port = free_port()
        flags = ["--listen", f"{LOOPBACK}:{port}", "--data", data]
        for name in ("offsets.topic.num.partitions", "transaction.state.log.num.partitions"):
            flags += ["--set", f"{name}=1"]
        found = asyncio.run(walked(walk, port, settings(arguments(flags))))
    print("\n".join(table(found)))
    if listed:
        for name, each in found.items():
            print(f"\n{name}:", *sorted(each.files), "", *sorted(each.classes), sep="\n  ")


def wait_for_listener(port: int, serving: "asyncio.Task[None]") -> None:
    while not port_responds(port) and not serving.done():
        time.sleep(0.02)


async def walked(walk: Walk, port: int, config: Any) -> dict[str, Walk]:
    """Serve on a port until every request, sent by a thread, has been walked."""
    stop = asyncio.Event()
    broker = Broker(
        config,
        disk=RealDisk(),
        threads=ThreadPool(BACKGROUND_THREADS_MIN),
        network=SocketNetwork(),
        store=EmbeddedSource(Path(config.data_directories[0])),
        clock=clock.SystemClock(),
        randomness=clock.SystemRandomness(),
        log=logger("walks"),
        descriptors=divide(raise_limit(), log_files_wanted=config.log_files_open_max),
    )
    serving = asyncio.create_task(broker.serve(stop))
    await asyncio.to_thread(wait_for_listener, port, serving)
    sys.setprofile(walk.note)
    try:
        return await asyncio.to_thread(walks, walk, port)
    finally:
        sys.setprofile(None)
        stop.set()
        await serving


if __name__ == "__main__":
    main()
