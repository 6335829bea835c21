"""Asks a leader where its log begins and ends."""

from penstock.model.deferred import Deferred
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.generated_errors import UnknownServerError
from penstock.model.ids import BrokerId, Offset, TopicPartition
from penstock.partition.follower import FetchFrom
from penstock.replication.peers import Peers, Purpose
from penstock.wire.api import list_offsets as earliest
from penstock.wire.api import offset_for_leader_epoch as epoch_end

EARLIEST = -2


def ask_bounds(
    peers: Peers, sent: FetchFrom, tp: TopicPartition, *, broker_id: BrokerId, timeout_ms: float
) -> Deferred[tuple[Offset, Offset]]:
    """Log start and log end at the leader, in the leader epoch of a fetch; fails with a `BrokerError` or unheard."""
    start = earliest.ListOffsetsPartition(
        partition_index=tp.partition, current_leader_epoch=sent.leader_epoch, timestamp=EARLIEST
    )
    ask_start = earliest.Request(
        replica_id=broker_id, topics=[earliest.ListOffsetsTopic(name=tp.topic, partitions=[start])]
    )
    # The leader's own epoch ends where its log does, committed or not.
    end = epoch_end.OffsetForLeaderPartition(
        partition=tp.partition, current_leader_epoch=sent.leader_epoch, leader_epoch=sent.leader_epoch
    )
    ask_end = epoch_end.Request(
        replica_id=broker_id, topics=[epoch_end.OffsetForLeaderTopic(topic=tp.topic, partitions=[end])]
    )

    def then_end(response: earliest.Response) -> Deferred[tuple[Offset, Offset]]:
        [topic] = response.topics
        [found] = topic.partitions
        log_start = checked(found.error_code, found.offset)
        sent_end: Deferred[epoch_end.Response] = peers.send(
            sent.leader, Purpose.FETCH, epoch_end, ask_end, timeout_ms=timeout_ms
        )
        return sent_end.then(lambda ended: (log_start, log_end_in(ended)))

    asked: Deferred[earliest.Response] = peers.send(
        sent.leader, Purpose.FETCH, earliest, ask_start, timeout_ms=timeout_ms
    )
    return asked.then(then_end)


def log_end_in(response: epoch_end.Response) -> Offset:
    [topic] = response.topics
    [found] = topic.partitions
    return checked(found.error_code, found.end_offset)


def checked(error_code: int, found: int) -> Offset:
    if error_code or found < 0:
        raise ERRORS_BY_CODE.get(error_code, UnknownServerError)()
    return Offset(found)
