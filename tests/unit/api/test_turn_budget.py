"""No request keeps the loop busy for longer than a turn's budget, however large it is.

Work is counted, not timed: every call of a function is worth the same time, and the clock that the budget is measured
with is that count. The result is therefore the same on any machine.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest
from tests.unit.api.api_world import NOW_MS, World, in_world
from tests.unit.eventual import settled

from penstock.api.api_versions import ApiVersions
from penstock.api.dispatch import Dispatcher
from penstock.api.registry import Registry
from penstock.config.broker import BrokerConfig
from penstock.config.describe import describe_broker
from penstock.model.clock import SystemClock
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import GroupIdNotFound, InvalidRecordState, UnknownServerError
from penstock.model.ids import Offset
from penstock.model.turns import TURN_BUDGET_S
from penstock.observe.counters import RequestCounters, ThrottleCounters
from penstock.shares.persister import SharePartitionState
from penstock.wire.api import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_partition_reassignments,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    share_fetch,
    txn_offset_commit,
    write_txn_markers,
)
from penstock.wire.api.table import TABLE
from penstock.wire.frame import decode_response_header, encode_request_header, response_is_flexible
from penstock.wire.records import Record, build_batch

CALL_S = 0.2e-6
"""The assumed time of a function call: about as long as on a slow machine."""

CALLS_PER_TURN_MAX = int(2 * TURN_BUDGET_S / CALL_S)
"""A turn may take 10 ms: its budget, the last step, and work that does not check the budget."""


class Calls:
    """Counts function calls, and is a clock that advances with them."""

    def __init__(self) -> None:
        self.count = 0

    def start(self) -> None:
        sys.setprofile(self._called)

    def stop(self) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    def monotonic(self) -> float:
        return 1.0 + self.count * CALL_S


class Meter:
    """Measures the most calls made in one turn of the loop."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._before = 0
        self._on = False
        self.most = 0
        self.turns = 0

    def __enter__(self) -> Meter:
        self._on = True
        self._calls.start()
        self._before = self._calls.count
        asyncio.get_running_loop().call_soon(self._turn)
        return self

    def __exit__(self, *error: object) -> None:
        self._calls.stop()
        self._on = False
        # The turn in which the last work was done has not ended; a request served at once has no other.
        self.most = max(self.most, self._calls.count - self._before)

    def _turn(self) -> None:
        self.most = max(self.most, self._calls.count - self._before)
        self._before = self._calls.count
        self.turns += 1
        if self._on:
            asyncio.get_running_loop().call_soon(self._turn)


def dispatcher(world: World) -> Dispatcher:
    def bug(name: str, error: BaseException) -> None:
        raise AssertionError(f"{name} failed") from error

    api_versions = ApiVersions(lambda _: [])
    return Dispatcher(
        registry=Registry(world.apis.values(), RequestCounters({}, {})),
        api_versions=api_versions,
        clock=world.parts.ground.clock,
        on_bug=bug,
        quotas=world.parts.ground.quotas,
        throttles=ThrottleCounters(),
        turns=world.parts.turns,
        threads=world.parts.ground.threads.executor,
    )


async def response(world: World, serve: Dispatcher, frame: bytes) -> bytes:
    """The whole response to a frame, as a connection would get it."""
    outcome = await settled(serve(world.connection, memoryview(bytearray(frame))))
    return b"".join(cast("list[bytes]", outcome))


def codec(key: int) -> Any:
    return importlib.import_module(f"penstock.wire.api.{TABLE[key].module}")


async def measured(world: World, calls: Calls, key: int, request: Any, version: int) -> Any:
    """The response to a request, and the assertion that no turn of the loop was too long."""
    frame = encode_request_header(key, version, 1, "test") + codec(key).encode_request(request, version)
    serve = dispatcher(world)
    with Meter(calls) as meter:
        body = await response(world, serve, frame)
    assert meter.most < CALLS_PER_TURN_MAX, f"{meter.most} calls in one of {meter.turns} turns"
    _, start = decode_response_header(body[4:], response_is_flexible(key, version))
    return codec(key).decode_response(memoryview(body[4:]), start, version)


async def make_topics(world: World, count: int, partitions: int = 1) -> None:
    for first in range(0, count, 500):
        made = await world.ask(
            19,
            create_topics.Request(
                topics=[
                    create_topics.CreatableTopic(name=f"t{at}", num_partitions=partitions, replication_factor=1)
                    for at in range(first, min(count, first + 500))
                ]
            ),
        )
        assert {topic.error_code for topic in made.topics} == {0}


async def make_coordinators(world: World) -> None:
    """Create the coordinators with a first FindCoordinator, and wait until they have loaded."""
    while True:
        await world.ask(10, find_coordinator.Request(key_type=0, coordinator_keys=["g"]))
        described = await world.ask(15, describe_groups.Request(groups=["g"]))
        if described.groups[0].error_code in (0, GroupIdNotFound.code):
            return
        await asyncio.sleep(0)


class Case:
    """A large valid request, the state that it needs, and the expected size of its response."""

    def __init__(
        self,
        key: int,
        version: int,
        request: Callable[[], Any],
        results: Callable[[Any], int],
        count: int,
        *,
        topics: int = 1,
        partitions: int = 1,
        groups: bool = False,
        used: bool = False,
    ) -> None:
        """With `groups` there are coordinators; with `used` every partition has been read before."""
        self.groups = groups
        self.used = used
        self.key = key
        self.version = version
        self.request = request
        self.results = results
        self.count = count
        self.topics = topics
        self.partitions = partitions

    def __repr__(self) -> str:
        return f"{TABLE[self.key].name}-v{self.version}"


def resource(kind: int, name: str) -> describe_configs.DescribeConfigsResource:
    return describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)


CASES = [
    Case(
        32,
        4,
        lambda: describe_configs.Request(resources=[resource(4, "1")] * 300, include_synonyms=True),
        lambda response: len(response.results),
        300,
    ),
    Case(
        32,
        1,
        lambda: describe_configs.Request(resources=[resource(2, f"t{at}") for at in range(400)]),
        lambda response: len(response.results),
        400,
        topics=400,
    ),
    Case(
        3,
        12,
        lambda: metadata.Request(topics=None),
        lambda response: len(response.topics),
        1_500,
        topics=1_500,
    ),
    Case(
        3,
        12,
        lambda: metadata.Request(topics=None),
        lambda response: len(response.topics[0].partitions),
        5_000,
        partitions=5_000,
    ),
    Case(
        3,
        9,
        lambda: metadata.Request(
            topics=[metadata.MetadataRequestTopic(name=f"absent{at}") for at in range(5_000)],
            allow_auto_topic_creation=False,
        ),
        lambda response: len(response.topics),
        5_000,
    ),
    Case(
        61,
        0,
        lambda: describe_producers.Request(
            topics=[describe_producers.TopicRequest(name="t0", partition_indexes=[0] * 5_000)]
        ),
        lambda response: len(response.topics[0].partitions),
        5_000,
    ),
    Case(
        21,
        2,
        lambda: delete_records.Request(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="t0",
                    partitions=[
                        delete_records.DeleteRecordsPartition(partition_index=at, offset=0) for at in range(2_000)
                    ],
                )
            ],
            timeout_ms=1000,
        ),
        lambda response: len(response.topics[0].partitions),
        2_000,
        partitions=2_000,
    ),
]


def fetch_of(partitions: int, session_epoch: int) -> fetch.Request:
    return fetch.Request(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=session_epoch,
        topics=[
            fetch.FetchTopic(
                topic="t0",
                partitions=[
                    fetch.FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1 << 20)
                    for at in range(partitions)
                ],
            )
        ],
    )


def fetched(response: fetch.Response) -> int:
    return len(response.responses[0].partitions)


LARGE_FETCHES = [
    Case(1, 7, lambda: fetch_of(3_000, session_epoch=-1), fetched, 3_000, partitions=3_000),
    Case(1, 12, lambda: fetch_of(3_000, session_epoch=0), fetched, 3_000, partitions=3_000),
]


MANY = 3_000

LARGE_LISTS = [
    Case(
        2,
        version,
        lambda: list_offsets.Request(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t0",
                    partitions=[
                        list_offsets.ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(MANY)
                    ],
                )
            ]
        ),
        lambda response: len(response.topics[0].partitions),
        MANY,
        partitions=MANY,
    )
    for version in (5, 10)
]
LARGE_QUESTIONS = [
    Case(
        23,
        4,
        lambda: offset_for_leader_epoch.Request(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic="t0",
                    partitions=[
                        offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
                        for _ in range(MANY)
                    ],
                )
            ]
        ),
        lambda response: len(response.topics[0].partitions),
        MANY,
    ),
    Case(
        9,
        9,
        lambda: offset_fetch.Request(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[offset_fetch.OffsetFetchRequestTopics(name="t0", partition_indexes=list(range(MANY)))],
                )
            ]
        ),
        lambda response: len(response.groups[0].topics[0].partitions),
        MANY,
        groups=True,
    ),
    Case(
        9,
        9,
        lambda: offset_fetch.Request(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(
                    group_id="g", topics=[offset_fetch.OffsetFetchRequestTopics(name="t0", partition_indexes=[0])]
                )
            ]
            * MANY
        ),
        lambda response: len(response.groups),
        MANY,
        groups=True,
    ),
    Case(
        15,
        5,
        lambda: describe_groups.Request(groups=[f"g{at % 1_000}" for at in range(MANY)]),
        lambda response: len(response.groups),
        MANY,
        groups=True,
    ),
    Case(
        69,
        1,
        lambda: consumer_group_describe.Request(group_ids=[f"g{at % 1_000}" for at in range(MANY)]),
        lambda response: len(response.groups),
        MANY,
        groups=True,
    ),
    Case(
        65,
        0,
        lambda: describe_transactions.Request(transactional_ids=[f"x{at % 1_000}" for at in range(MANY)]),
        lambda response: len(response.transaction_states),
        MANY,
    ),
    Case(
        10,
        5,
        lambda: find_coordinator.Request(key_type=0, coordinator_keys=[f"g{at}" for at in range(MANY)]),
        lambda response: len(response.coordinators),
        MANY,
        groups=True,
    ),
    Case(
        43,
        2,
        lambda: elect_leaders.Request(
            topic_partitions=[elect_leaders.TopicPartitions(topic="t0", partitions=list(range(MANY)))]
        ),
        lambda response: len(response.replica_election_results[0].partition_result),
        MANY,
    ),
    Case(
        43,
        2,
        lambda: elect_leaders.Request(topic_partitions=None),
        lambda response: len(response.replica_election_results),
        0,
        topics=1_000,
        partitions=20,
    ),
    Case(
        45,
        0,
        lambda: alter_partition_reassignments.Request(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name="t0",
                    partitions=[
                        alter_partition_reassignments.ReassignablePartition(partition_index=at, replicas=None)
                        for at in range(MANY)
                    ],
                )
            ]
        ),
        lambda response: len(response.responses[0].partitions),
        MANY,
    ),
    Case(
        35,
        4,
        lambda: describe_log_dirs.Request(topics=None),
        lambda response: sum(len(topic.partitions) for topic in response.results[0].topics if topic.name == "t0"),
        MANY,
        partitions=MANY,
        used=True,
    ),
    Case(
        75,
        0,
        lambda: describe_topic_partitions.Request(
            topics=[describe_topic_partitions.TopicRequest(name=f"absent{at}") for at in range(MANY)]
        ),
        lambda response: len(response.topics),
        MANY,
    ),
    Case(
        30,
        3,
        lambda: create_acls.Request(creations=[create_acls.AclCreation() for _ in range(MANY)]),
        lambda response: len(response.results),
        MANY,
    ),
]


RECORDS = bytes(build_batch([Record(offset=0, timestamp_ms=NOW_MS, key=None, value=b"v")]))

LARGE_CHANGES = [
    Case(
        0,
        9,
        lambda: produce.Request(
            acks=-1,
            timeout_ms=60_000,
            topic_data=[
                produce.TopicProduceData(
                    name="t0",
                    partition_data=[produce.PartitionProduceData(index=at, records=RECORDS) for at in range(1_000)],
                )
            ],
        ),
        lambda response: sum(not one.error_code for one in response.responses[0].partition_responses),
        1_000,
        partitions=1_000,
    ),
    Case(
        19,
        7,
        lambda: create_topics.Request(
            topics=[
                create_topics.CreatableTopic(name=f"new{at}", num_partitions=2, replication_factor=1)
                for at in range(1_000)
            ]
        ),
        lambda response: sum(not topic.error_code for topic in response.topics),
        1_000,
    ),
    Case(
        19,
        7,
        lambda: create_topics.Request(
            topics=[
                create_topics.CreatableTopic(name=f"new{at}", num_partitions=2, replication_factor=1)
                for at in range(1_000)
            ],
            validate_only=True,
        ),
        lambda response: sum(not topic.error_code for topic in response.topics),
        1_000,
    ),
    Case(
        20,
        6,
        lambda: delete_topics.Request(topics=[delete_topics.DeleteTopicState(name=f"t{at}") for at in range(1_000)]),
        lambda response: sum(not topic.error_code for topic in response.responses),
        1_000,
        topics=1_000,
    ),
    Case(
        44,
        1,
        lambda: incremental_alter_configs.Request(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name=f"t{at}",
                    configs=[incremental_alter_configs.AlterableConfig(name="retention.ms", value="1000")],
                )
                for at in range(500)
            ]
        ),
        lambda response: sum(not one.error_code for one in response.responses),
        500,
        topics=500,
    ),
]


COMMITTED = 1_000

LARGE_GROUP_CHANGES = [
    Case(
        8,
        9,
        lambda: offset_commit.Request(
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name="t0",
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(partition_index=at, committed_offset=1)
                        for at in range(COMMITTED)
                    ],
                )
            ],
        ),
        lambda response: sum(not one.error_code for one in response.topics[0].partitions),
        COMMITTED,
        partitions=COMMITTED,
        groups=True,
    ),
    Case(
        8,
        9,
        lambda: offset_commit.Request(
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name="t0",
                    partitions=[offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
                    * 100_000,
                )
            ],
        ),
        lambda response: sum(one.error_code == UnknownServerError.code for one in response.topics[0].partitions),
        100_000,
        groups=True,
    ),
    Case(
        42,
        2,
        lambda: delete_groups.Request(groups_names=[f"g{at}" for at in range(MANY)]),
        lambda response: len(response.results),
        MANY,
        groups=True,
    ),
    Case(
        47,
        0,
        lambda: offset_delete.Request(
            group_id="g",
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name="t0",
                    partitions=[
                        offset_delete.OffsetDeleteRequestPartition(partition_index=at) for at in range(COMMITTED)
                    ],
                )
            ],
        ),
        lambda response: response.error_code,
        69,
        partitions=COMMITTED,
        groups=True,
    ),
]


def added(transactional_id: str, topic: str, partitions: int) -> add_partitions_to_txn.AddPartitionsToTxnTransaction:
    return add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=1,
        topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=list(range(partitions)))],
    )


LARGE_TRANSACTIONS = [
    Case(
        24,
        5,
        lambda: add_partitions_to_txn.Request(transactions=[added(f"x{at}", "absent", 20) for at in range(2_000)]),
        lambda response: sum(len(one.topic_results[0].results_by_partition) for one in response.results_by_transaction),
        40_000,
        groups=True,
    ),
    Case(
        24,
        5,
        lambda: add_partitions_to_txn.Request(transactions=[added("x", "t0", 5_000)]),
        lambda response: len(response.results_by_transaction[0].topic_results[0].results_by_partition),
        5_000,
        partitions=5_000,
        groups=True,
    ),
    Case(
        24,
        3,
        lambda: add_partitions_to_txn.Request(
            v3_and_below_transactional_id="x", v3_and_below_topics=added("x", "t0", 5_000).topics
        ),
        lambda response: len(response.results_by_topic_v3_and_below[0].results_by_partition),
        5_000,
        partitions=5_000,
        groups=True,
    ),
]


def markers(producers: int, topic: str, indexes: list[int]) -> write_txn_markers.Request:
    return write_txn_markers.Request(
        markers=[
            write_txn_markers.WritableTxnMarker(
                producer_id=producer,
                transaction_result=True,
                topics=[write_txn_markers.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)],
            )
            for producer in range(producers)
        ]
    )


def marked(response: write_txn_markers.Response) -> int:
    return sum(len(topic.partitions) for marker in response.markers for topic in marker.topics)


LARGE_MARKERS = [
    Case(27, 1, lambda: markers(20, "t0", list(range(100))), marked, 2_000, partitions=100, groups=True),
    Case(27, 1, lambda: markers(100, "t0", [0] * 100), marked, 10_000, groups=True),
    Case(27, 1, lambda: markers(5_000, "absent", list(range(20))), marked, 100_000, groups=True),
    Case(27, 1, lambda: markers(1, "absent", list(range(200_000))), marked, 200_000, groups=True),
    Case(27, 1, lambda: markers(20_000, "absent", []), lambda response: len(response.markers), 20_000, groups=True),
]


def committed_in_transaction(topics: list[tuple[str, list[int]]]) -> txn_offset_commit.Request:
    return txn_offset_commit.Request(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1)
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ],
    )


LARGE_TRANSACTIONAL_COMMITS = [
    Case(
        28,
        3,
        lambda: committed_in_transaction([("absent", list(range(MANY))), *[("absent", [0])] * MANY]),
        lambda response: sum(len(topic.partitions) for topic in response.topics),
        2 * MANY,
        groups=True,
    ),
    Case(
        28,
        3,
        lambda: committed_in_transaction([("t0", [0] * 100_000)]),
        lambda response: len(response.topics[0].partitions),
        100_000,
        groups=True,
    ),
    Case(
        28,
        3,
        lambda: committed_in_transaction([("t0", list(range(COMMITTED)))]),
        lambda response: len(response.topics[0].partitions),
        COMMITTED,
        partitions=COMMITTED,
        groups=True,
    ),
]


def listed_offsets(version: int, indexes: list[int], timestamp: int, count: int, partitions: int) -> Case:
    return Case(
        2,
        version,
        lambda: list_offsets.Request(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t0",
                    partitions=[
                        list_offsets.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                        for index in indexes
                    ],
                )
            ]
        ),
        lambda response: len(response.topics[0].partitions),
        count,
        partitions=partitions,
    )


MORE_LISTED_OFFSETS = [
    listed_offsets(3, list(range(60_000)), -1, 60_000, 1),
    listed_offsets(10, [0] * 100_000, -1, 1, 1),
    listed_offsets(10, list(range(500)), 0, 500, 500),
    Case(
        2,
        10,
        lambda: list_offsets.Request(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=f"absent{at}", partitions=[list_offsets.ListOffsetsPartition(timestamp=-1)]
                )
                for at in range(60_000)
            ]
        ),
        lambda response: len(response.topics),
        60_000,
    ),
]


def quotas(count: int, *, remove: bool, name: str = "u") -> alter_client_quotas.Request:
    return alter_client_quotas.Request(
        entries=[
            alter_client_quotas.RequestEntryData(
                entity=[alter_client_quotas.EntityData(entity_type="user", entity_name=f"{name}{at}")],
                ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1000.0, remove=remove)],
            )
            for at in range(count)
        ]
    )


LARGE_QUOTA_CHANGES = [
    Case(49, 1, lambda: quotas(2_000, remove=False), lambda response: len(response.entries), 2_000),
    Case(49, 1, lambda: quotas(20_000, remove=True, name="absent"), lambda response: len(response.entries), 20_000),
]

LARGE_GROWTHS = [
    Case(
        37,
        3,
        lambda: create_partitions.Request(
            topics=[
                create_partitions.CreatePartitionsTopic(name=f"t{at}", count=2, assignments=None) for at in range(1_000)
            ]
        ),
        lambda response: sum(not one.error_code for one in response.results),
        1_000,
        topics=1_000,
    ),
    Case(
        37,
        3,
        lambda: create_partitions.Request(
            topics=[
                create_partitions.CreatePartitionsTopic(name=f"absent{at}", count=2, assignments=None)
                for at in range(20_000)
            ]
        ),
        lambda response: len(response.results),
        20_000,
    ),
]

LARGE_HEARTBEATS = [
    # A heartbeat is one decision about its group and takes one turn; the group's topics bound its size.
    Case(
        68,
        1,
        lambda: consumer_group_heartbeat.Request(
            group_id="c",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[f"t{at}" for at in range(500)],
            topic_partitions=[],
        ),
        lambda response: response.member_epoch > 0,
        True,
        topics=500,
        groups=True,
    ),
]


@pytest.mark.parametrize(
    "case",
    [
        *CASES,
        *LARGE_FETCHES,
        *LARGE_LISTS,
        *LARGE_QUESTIONS,
        *LARGE_CHANGES,
        *LARGE_GROUP_CHANGES,
        *LARGE_TRANSACTIONS,
        *LARGE_MARKERS,
        *LARGE_TRANSACTIONAL_COMMITS,
        *MORE_LISTED_OFFSETS,
        *LARGE_QUOTA_CHANGES,
        *LARGE_GROWTHS,
        *LARGE_HEARTBEATS,
    ],
    ids=repr,
)
def test_a_large_request_is_served_in_short_turns(case: Case, tmp_path: Path) -> None:
    calls = Calls()
    # Work that a broker does only once does not count.
    describe_broker(BrokerConfig())

    async def act(world: World) -> None:
        await make_topics(world, case.topics, case.partitions)
        if case.groups:
            await make_coordinators(world)
        if case.used:
            for partition in range(case.partitions):
                world.replicas.get("t0", partition)
        response = await measured(world, calls, case.key, case.request(), case.version)
        assert case.results(response) == case.count

    in_world(tmp_path, act, clock=calls)


def test_the_groups_of_one_coordinator_are_listed_in_short_turns(tmp_path: Path) -> None:
    calls = Calls()

    async def act(world: World) -> None:
        await make_topics(world, 1)
        await make_coordinators(world)
        # As if each had committed an offset: a group that has never had a member.
        groups = vars(world.parts.groups.of("g").shard())["_groups"]
        groups.update(dict.fromkeys([f"g{at}" for at in range(20_000)]))
        response = await measured(world, calls, 16, list_groups.Request(), 5)
        assert len(response.groups) == 20_000

    in_world(tmp_path, act, clock=calls)


class ReadyShares:
    """A share coordinator that answers at once."""

    def read(self, *_: object) -> Deferred[SharePartitionState]:
        found: Deferred[SharePartitionState] = Deferred()
        found.resolve(SharePartitionState(0, Offset(0), -1, ()))
        return found


def test_a_share_session_of_many_partitions_is_served_in_short_turns(tmp_path: Path) -> None:
    calls = Calls()
    many = 1_000

    def shared(acks: bool) -> list[share_fetch.FetchPartition]:
        kinds = [share_fetch.AcknowledgementBatch(acknowledge_types=[1])] if acks else []
        return [share_fetch.FetchPartition(partition_index=at, acknowledgement_batches=kinds) for at in range(many)]

    async def act(world: World) -> None:
        await make_topics(world, 1, many)
        world.parts.share_fetches.led.persister = cast("Any", ReadyShares())
        for partition in range(many):
            world.replicas.get("t0", partition)
        topic_id = world.catalog.image.topics["t0"].topic_id
        for epoch in (0, 1):
            topic = share_fetch.FetchTopic(topic_id=topic_id, partitions=shared(acks=epoch == 1))
            request = share_fetch.Request(
                group_id="g", member_id="m", share_session_epoch=epoch, max_records=1, topics=[topic]
            )
            response = await measured(world, calls, 78, request, 2)
            assert response.error_code == 0
            errors = [each.acknowledge_error_code for found in response.responses for each in found.partitions]
            assert errors == [InvalidRecordState.code] * (many if epoch else 0)

    in_world(tmp_path, act, clock=calls)
