"""Changes that a broker asks of the controller, wherever that is."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from penstock.controller.controller import Controller
from penstock.controller.isr import IsrChange
from penstock.controller.topics import NewTopic
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import MetadataImage
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotController, RequestTimedOut, UnknownServerError
from penstock.model.ids import NO_BROKER, NO_BROKER_EPOCH, BrokerEpoch, BrokerId, TopicId
from penstock.model.topic import LeaderRecoveryState, TopicState
from penstock.replication.controller_channel import ControllerChannel
from penstock.replication.controller_requests import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, EMPTIED, RESUMED
from penstock.replication.peers import Purpose
from penstock.replication.request_versions import forwarded_versions
from penstock.wire import envelope
from penstock.wire.api import allocate_producer_ids, alter_partition, assign_replicas_to_dirs, broker_heartbeat
from penstock.wire.api import create_topics as made
from penstock.wire.frame import decode_response_header, encode_request_header, response_is_flexible

IMAGE_WAIT_S = 5.0
"""How long a response waits until this broker's metadata has what the controller did for it."""


PROPOSAL_TIMEOUT_MS = 5_000
"""Of an ISR proposal, which is sent again: an acknowledgement may wait for it."""


class ControllerClient:
    """The controller's operations that brokers need themselves, with the interface that the controller has."""

    def __init__(
        self, *, broker_id: BrokerId, controller: Controller, catalog: Catalog, channel: ControllerChannel
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._catalog = catalog
        self._channel = channel

    @property
    def image(self) -> MetadataImage:
        return self._catalog.image

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """Of this broker's registration."""
        registered = self.image.brokers.get(self._broker_id)
        return NO_BROKER_EPOCH if registered is None else registered.epoch

    async def create_topics(self, topics: Sequence[NewTopic]) -> tuple[TopicState | BrokerError, ...]:
        """Create topics; this broker's metadata has them when this returns.

        It does not wait for a suspended metadata store: requests of many clients may need the same topic.
        """
        if self._controller.is_active:
            return await self._controller.create_topics(topics, wait_ms=0)
        request = made.Request(topics=[creatable(topic) for topic in topics], timeout_ms=0)
        try:
            response: made.Response = await self._forwarded(made, request)
        except NotController:
            if not self._channel.is_here:
                raise
            return await self._controller.create_topics(topics, wait_ms=0)
        results = {each.name: each for each in response.topics}
        return tuple(self._created(topic.name, results.get(topic.name)) for topic in topics)

    def _created(self, name: str, result: made.CreatableTopicResult | None) -> TopicState | BrokerError:
        if result is not None and result.error_code:
            return error_of(result.error_code, result.error_message)
        found = self.image.topics.get(name)
        return UnknownServerError() if found is None else found

    async def claim_producer_ids(self) -> range:
        """Allocate a block of producer ids."""
        if self._controller.is_active:
            return await self._controller.claim_producer_ids()
        request = allocate_producer_ids.Request(broker_id=self._broker_id, broker_epoch=self.broker_epoch)
        # Where the outcome is unknown, another block is allocated: the ids of the first are never used.
        response: allocate_producer_ids.Response = await self._channel.send(
            allocate_producer_ids, request, repeatable=True
        )
        if response.error_code:
            raise error_of(response.error_code)
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> tuple[BrokerError | None, ...]:
        """Propose ISRs of partitions that this broker leads; the refusal of each.

        Raises a `BrokerError` where all of them are refused, or no controller was found.
        """
        topics: dict[TopicId, alter_partition.RequestTopicData] = {}
        for change in changes:
            topic = topics.setdefault(change.topic_id, alter_partition.RequestTopicData(topic_id=change.topic_id))
            topic.partitions.append(
                alter_partition.RequestPartitionData(
                    partition_index=change.partition,
                    leader_epoch=change.leader_epoch,
                    partition_epoch=change.partition_epoch,
                    leader_recovery_state=reported(change),
                    new_isr_with_epochs=[
                        alter_partition.BrokerState(broker_id=member, broker_epoch=epoch)
                        for member, epoch in members_of(change)
                    ],
                )
            )
        request = alter_partition.Request(
            broker_id=self._broker_id, broker_epoch=self.broker_epoch, topics=list(topics.values())
        )
        response: alter_partition.Response = await self._channel.send(
            alter_partition, request, repeatable=True, timeout_ms=PROPOSAL_TIMEOUT_MS
        )
        if response.error_code:
            raise error_of(response.error_code)
        codes = {
            (topic.topic_id, found.partition_index): found.error_code
            for topic in response.topics
            for found in topic.partitions
        }
        refusals: list[BrokerError | None] = []
        for change in changes:
            # A partition that the response leaves out was not decided on.
            code = codes.get((change.topic_id, change.partition), RequestTimedOut.code)
            refusals.append(error_of(code) if code else None)
        return tuple(refusals)

    async def replicas_failed(self, partitions: Mapping[tuple[TopicId, int], bool]) -> None:
        """Have replicas of this broker leave their ISRs, because their logs failed; with whether each is damaged."""
        topics: dict[bytes, dict[TopicId, assign_replicas_to_dirs.RequestTopicData]] = {}
        for (topic_id, index), damaged in partitions.items():
            directory = topics.setdefault(DIRECTORY_UNASSIGNED if damaged else DIRECTORY_LOST, {})
            topic = directory.setdefault(topic_id, assign_replicas_to_dirs.RequestTopicData(topic_id=topic_id))
            topic.partitions.append(assign_replicas_to_dirs.RequestPartitionData(partition_index=index))
        request = assign_replicas_to_dirs.Request(
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            directories=[
                assign_replicas_to_dirs.RequestDirectoryData(id_=directory, topics=list(found.values()))
                for directory, found in topics.items()
            ],
        )
        response: assign_replicas_to_dirs.Response = await self._channel.send(
            assign_replicas_to_dirs, request, repeatable=True
        )
        if response.error_code:
            raise error_of(response.error_code)

    async def shut_down(self, *, timeout_ms: float) -> bool:
        """Ask for this broker's leaderships to be moved away; whether it may stop now.

        This broker's metadata then has what the controller could move.
        """
        request = broker_heartbeat.Request(
            broker_id=self._broker_id, broker_epoch=self.broker_epoch, want_shut_down=True
        )
        response: broker_heartbeat.Response
        if self._channel.is_here:
            response = await self._channel.send(broker_heartbeat, request, repeatable=True, timeout_ms=timeout_ms)
        else:
            response = await self._forwarded(broker_heartbeat, request, timeout_ms)
        if response.error_code:
            raise error_of(response.error_code)
        return response.should_shut_down

    async def _forwarded(self, api: ModuleType, request: Any, timeout_ms: float | None = None) -> Any:
        """The controller's response to a request of this broker."""
        version = forwarded_versions(self._catalog.image.level)[api.API_KEY]
        header = encode_request_header(api.API_KEY, version, 0, f"broker-{self._broker_id}")
        data = await self.forward(header + api.encode_request(request, version), host=b"", timeout_ms=timeout_ms)
        _, body = decode_response_header(data, response_is_flexible(api.API_KEY, version))
        return api.decode_response(data, body, version)

    async def forward(self, frame: bytes, *, host: bytes, timeout_ms: float | None = None) -> bytes:
        """The controller's response to a request, each with its header. `host` is the address of the client.

        This broker's metadata has the effect of the request when this returns, or is late.
        """
        request = envelope.Request(request_data=frame, request_principal=None, client_host_address=host)
        response: envelope.Response = await self._channel.send(
            envelope, request, repeatable=False, timeout_ms=timeout_ms, purpose=Purpose.FORWARDING
        )
        if response.error_code or response.response_data is None:
            raise error_of(response.error_code)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._catalog.at_least(response.number), IMAGE_WAIT_S)
        return response.response_data


def reported(change: IsrChange) -> int:
    """What the leader of a partition reports with its proposal, in the place of the leader recovery state."""
    if change.emptied >= 0:
        return EMPTIED
    return RESUMED if change.resumed else LeaderRecoveryState.RECOVERED


def members_of(change: IsrChange) -> tuple[tuple[BrokerId, int], ...]:
    """The proposed members with their epochs, and where an empty log ends, see `EMPTIED`."""
    return change.isr if change.emptied < 0 else (*change.isr, (NO_BROKER, change.emptied))


def creatable(topic: NewTopic) -> made.CreatableTopic:
    return made.CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            made.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments
        ],
        configs=[made.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
    )


def error_of(code: int, message: str | None = None) -> BrokerError:
    return ERRORS_BY_CODE.get(code, UnknownServerError)(*(() if message is None else (message,)))
