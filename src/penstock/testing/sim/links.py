"""A simulated client's way to the brokers: who leads, who coordinates, connections, retries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from enum import IntEnum
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.testing.sim.client import Disconnected, SimClient
from penstock.testing.sim.clock import SimClock
from penstock.testing.sim.node import Node
from penstock.testing.sim.recording import Recording
from penstock.wire.api import find_coordinator, metadata

if TYPE_CHECKING:
    from penstock.testing.sim.world import World

Reign = Callable[[str, str, int], int | None]
"""The leader epoch in which the broker on a host leads a partition and knows it; None where it does not."""

Address = tuple[str, int]

REQUEST_S = 3.0
"""How long a client waits for a response."""
CONNECT_S = 2.0
BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 0.4

METADATA_VERSION = 12
FIND_COORDINATOR_VERSION = 4
NO_EPOCH = -1
GROUP_KEY = 0
TRANSACTION_KEY = 1


class Code(IntEnum):
    """The errors of Kafka that these clients tell apart."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_ALREADY_EXISTS = 36
    INVALID_REPLICA_ASSIGNMENT = 39
    NOT_CONTROLLER = 41
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    CONCURRENT_TRANSACTIONS = 51
    KAFKA_STORAGE_ERROR = 56
    INVALID_REPLICATION_FACTOR = 38
    UNKNOWN_PRODUCER_ID = 59
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    NO_REASSIGNMENT_IN_PROGRESS = 85
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    FENCED_MEMBER_EPOCH = 110
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120


ELSEWHERE = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
    }
)
"""Ask again, perhaps another broker. The request was not carried out, see `PERHAPS_KEPT`."""

PERHAPS_KEPT = frozenset({Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE})
"""Also what a write gets whose broker appended it and was deposed: the next leader may have it, or not."""

UNDECIDED = frozenset({Code.REQUEST_TIMED_OUT, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Code.KAFKA_STORAGE_ERROR})
"""The request may have been carried out, or may be later."""


class NotSent(Disconnected):
    """No broker could be asked: the request was certainly not carried out."""


class Link:
    """What one life of a client node knows of the cluster, and its connections. It has one request at a time."""

    def __init__(
        self,
        world: World,
        node: Node,
        brokers: Sequence[Address],
        recording: Recording,
        reign: Reign | None = None,
    ) -> None:
        """`reign` tells a leader from a broker that was deposed and does not know it yet."""
        self.world = world
        self._reign = reign
        self.name = node.name
        self.recording = recording
        self.clock = SimClock(world)
        self.random: random.Random = world.stream(f"{node.name}, life {node.life.number}")
        self._network = world.fabric.at(node.life)
        self._bootstrap = list(brokers)
        self._connections: dict[Address, SimClient] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._leader_epochs: dict[tuple[str, int], int] = {}
        """The newest that this client has heard of: what brokers say of older ones is late."""
        self._topic_ids: dict[str, bytes] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    # Requests

    async def ask(
        self, address: Address, api: ModuleType, version: int, request: Any, *, timeout_s: float = REQUEST_S
    ) -> Any:
        """The response; `NotSent` or `Disconnected` where there is none."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            try:
                connection = await SimClient.open(self._network, *address, client_id=self.name, timeout_s=CONNECT_S)
            except Disconnected as error:
                self.forget()
                raise NotSent(str(error)) from None
            self._connections[address] = connection
        try:
            response = await connection.ask(api, version, request, timeout_s=timeout_s)
        except Disconnected:
            self.forget()
            raise
        self.world.counts["requests"] += 1
        return response

    async def ask_coordinator(
        self, key_type: int, key: str, api: ModuleType, version: int, request: Any, *, timeout_s: float = REQUEST_S
    ) -> Any:
        address = await self.coordinator(key_type, key)
        return await self.ask(address, api, version, request, timeout_s=timeout_s)

    async def ask_reigning(
        self, address: Address, place: tuple[str, int], api: ModuleType, version: int, request: Any
    ) -> Any:
        """The response of a broker that led a partition all the time; `NotSent` where it did not.

        A deposed leader may respond from what it last knew, as in Apache Kafka. What it says is not wrong but late, and
        would be taken for a step back.
        """
        epoch = self.reign_of(address, place)
        response = await self.ask(address, api, version, request)
        if not self.reigned(address, place, epoch):
            self.forget()
            raise NotSent(f"{address[0]} does not lead {place[0]}-{place[1]}")
        return response

    def reign_of(self, address: Address, place: tuple[str, int]) -> int | None:
        """The leader epoch in which a broker leads a partition now, if it does and that can be told."""
        return None if self._reign is None else self._reign(address[0], *place)

    def reigned(self, address: Address, place: tuple[str, int], epoch: int | None) -> bool:
        """Whether a broker has led a partition ever since `epoch` was its `reign_of`."""
        return self._reign is None or (epoch is not None and self.reign_of(address, place) == epoch)

    async def backoff(self) -> None:
        """Wait before a retry."""
        await asyncio.sleep(self.random.uniform(BACKOFF_MIN_S, BACKOFF_MAX_S))

    def forget(self) -> None:
        """Look leaders and coordinators up again before they are asked again."""
        self._leaders.clear()
        self._coordinators.clear()

    # Who is who

    async def leader(self, topic: str, index: int) -> Address:
        """The leader of a partition; `NotSent` where none is known."""
        if (topic, index) not in self._leaders:
            await self._refresh(topic)
        try:
            return self._brokers[self._leaders[topic, index]]
        except KeyError:
            self._leaders.pop((topic, index), None)
            raise NotSent(f"{topic}-{index} has no leader") from None

    def leader_epoch(self, topic: str, index: int) -> int:
        """The newest leader epoch of a partition that this client knows, or -1."""
        return self._leader_epochs.get((topic, index), NO_EPOCH)

    def learn(self, topic: str, index: int, leader: int, leader_epoch: int) -> None:
        """Believe who leads a partition, unless it is older news."""
        if leader_epoch >= self.leader_epoch(topic, index):
            self._leaders[topic, index] = leader
            self._leader_epochs[topic, index] = leader_epoch

    def learn_address(self, broker_id: int, address: Address) -> None:
        """Believe where a broker is."""
        self._brokers[broker_id] = address

    def address_of(self, broker_id: int) -> Address | None:
        """Where a broker is, as far as this client knows."""
        return self._brokers.get(broker_id)

    async def topic_id(self, topic: str) -> bytes:
        if topic not in self._topic_ids:
            await self._refresh(topic)
        try:
            return self._topic_ids[topic]
        except KeyError:
            raise NotSent(f"no topic {topic}") from None

    async def coordinator(self, key_type: int, key: str) -> Address:
        """The coordinator of a group or transactional id; `NotSent` where none is known."""
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        request = find_coordinator.Request(key_type=key_type, coordinator_keys=[key])
        try:
            response = await self.ask(self.any_broker(), find_coordinator, FIND_COORDINATOR_VERSION, request)
        except Disconnected as error:
            raise NotSent(str(error)) from None
        [found] = response.coordinators
        if found.error_code:
            raise NotSent(f"no coordinator of {key}: {found.error_code}")
        address = self._coordinators[key_type, key] = (found.host, found.port)
        return address

    def any_broker(self) -> Address:
        return self.random.choice(self._bootstrap)

    async def _refresh(self, topic: str) -> None:
        wanted = metadata.MetadataRequestTopic(name=topic)
        request = metadata.Request(topics=[wanted], allow_auto_topic_creation=False)
        try:
            response = await self.ask(self.any_broker(), metadata, METADATA_VERSION, request)
        except Disconnected as error:
            raise NotSent(str(error)) from None
        self._brokers |= {each.node_id: (each.host, each.port) for each in response.brokers}
        for each in response.topics:
            if not each.error_code:
                self._topic_ids[topic] = each.topic_id
                for partition in each.partitions:
                    if not partition.error_code:
                        self.learn(topic, partition.partition_index, partition.leader_id, partition.leader_epoch)

    def unexpected(self, request: str, code: int, *, key: str = "") -> None:
        """Note an error that no broker may respond with here, unless the partition `key` may have lost records."""
        name = ERRORS_BY_CODE[code].__name__ if code in ERRORS_BY_CODE else code
        self.recording.finding(f"{self.name}: {request} got {name}", key=key)
