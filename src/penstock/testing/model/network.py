"""The network of the model: requests and responses between brokers, each delivered by a step of the schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition
from penstock.partition.leader import IsrProposal

if TYPE_CHECKING:
    from penstock.testing.model.process import Process


@dataclass(frozen=True, slots=True)
class IsrRequest:
    """A leader's request to change an ISR (AlterPartition)."""

    tp: TopicPartition
    broker_epoch: BrokerEpoch
    proposal: IsrProposal


@dataclass(frozen=True, slots=True)
class FailedReplica:
    """A broker's word that the log of a replica failed, and in which leader epoch: it may fail again later."""

    tp: TopicPartition
    broker_epoch: BrokerEpoch
    leader_epoch: LeaderEpoch
    keeps_records: bool


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A broker's wish to hand over its leaderships before it stops."""

    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class Message:
    """A request, or with `response` the response to one, on one connection of one life of the client."""

    purpose: str
    client: BrokerId
    life: int
    server: BrokerId
    generation: int
    response: bool
    body: Any

    @property
    def channel(self) -> tuple[str, BrokerId, int, BrokerId, int, bool]:
        """Messages of one channel keep their order."""
        return self.purpose, self.client, self.life, self.server, self.generation, self.response

    @property
    def sender(self) -> BrokerId:
        return self.server if self.response else self.client

    @property
    def receiver(self) -> BrokerId:
        return self.client if self.response else self.server


class Network:
    """Messages under way, and the directions in which pairs of brokers are cut off."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.cuts: set[tuple[BrokerId, BrokerId]] = set()

    def send(self, purpose: str, client: Process, server: BrokerId, body: Any) -> None:
        """Send a request on the client's current connection for this purpose."""
        generation = client.generations.get((purpose, server), 0)
        self.messages.append(Message(purpose, client.broker_id, client.life, server, generation, False, body))

    def respond(self, request: Message, body: Any) -> None:
        self.messages.append(
            Message(request.purpose, request.client, request.life, request.server, request.generation, True, body)
        )

    def next(self, number: int) -> Message | None:
        """The message that a number chooses: the oldest of its channel, unless its way is cut."""
        if not self.messages:
            return None
        channel = self.messages[number % len(self.messages)].channel
        message = next(each for each in self.messages if each.channel == channel)
        return None if (message.sender, message.receiver) in self.cuts else message

    def remove(self, message: Message) -> None:
        self.messages = [each for each in self.messages if each is not message]

    def reset(self, client: Process, purpose: str, server: BrokerId, *, requests_lost: bool) -> None:
        """Break a connection: the client receives nothing more of it, and the server perhaps what is under way."""
        client.generations[purpose, server] = client.generations.get((purpose, server), 0) + 1
        self.messages = [
            each
            for each in self.messages
            if not (
                (each.purpose, each.client, each.server) == (purpose, client.broker_id, server)
                and (each.response or requests_lost)
            )
        ]

    def drop_responses_to(self, process: Process) -> None:
        """A process is gone: what it has sent may still be received, and responses to it are not."""
        gone = process.broker_id
        self.messages = [each for each in self.messages if not (each.response and gone == each.client)]
