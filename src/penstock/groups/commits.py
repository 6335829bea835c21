"""The steps of OffsetCommit, TxnOffsetCommit and OffsetDelete, once the group has validated the request."""

from collections.abc import Callable

from penstock.coordinator.step import Response, Step, Ticket
from penstock.groups.commands import (
    ALL_COMMITTED,
    DEFAULT_RETENTION_MS,
    CommitOffsets,
    CommitReply,
    CommitTxnOffsets,
    DeleteOffsets,
    DeleteOffsetsReply,
    Failure,
)
from penstock.groups.events import NO_EXPIRY_MS, OffsetCommitted, OffsetForgotten, TxnOffsetPending
from penstock.groups.group import CommitValidation
from penstock.groups.offset_store import OffsetStore
from penstock.model.generated_errors import (
    GroupSubscribedToTopic,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
)


def metadata_fits(metadata: str, length_max: int) -> bool:
    """Whether a commit's metadata is short enough. Kafka counts UTF-16 units, not bytes on the wire."""
    if 2 * len(metadata) <= length_max:
        return True
    return len(metadata.encode("utf-16-le", "surrogatepass")) <= 2 * length_max


def commit(
    command: CommitOffsets, validation: CommitValidation, metadata_length_max: int, ticket: Ticket, now_ms: int
) -> Step:
    """Commit every entry whose metadata fits. An entry that fails the member's check fails the whole request."""
    group = command.group
    check, timer = validation
    expire_ms = NO_EXPIRY_MS if command.retention_ms == DEFAULT_RETENTION_MS else now_ms + command.retention_ms
    events: list[OffsetCommitted] = []
    failures: dict[int, Failure] = {}
    for index, entry in enumerate(command.entries):
        topic, partition, offset, leader_epoch, metadata, topic_id = entry
        if metadata and not metadata_fits(metadata, metadata_length_max):
            failures[index] = OffsetMetadataTooLarge
            continue
        if check is not None:
            error = check(topic, topic_id, partition)
            if error is not None:
                return Step(responses=(Response(ticket, error),))
        events.append(
            OffsetCommitted(group, topic, partition, offset, leader_epoch, metadata, now_ms, expire_ms, topic_id)
        )
    return Step(
        events=tuple(events),
        responses=(Response(ticket, CommitReply(failures) if failures else ALL_COMMITTED),),
        timers=() if timer is None else (timer,),
    )


def commit_in_txn(
    command: CommitTxnOffsets, validation: CommitValidation, metadata_length_max: int, ticket: Ticket, now_ms: int
) -> Step:
    """Keep the entries pending until the transaction ends."""
    step = commit(command.commit, validation, metadata_length_max, ticket, now_ms)
    if isinstance(step.responses[0].reply, StaleMemberEpoch):
        # TxnOffsetCommit has no error for member epochs: a stale one is a generation.
        return Step(responses=(Response(ticket, IllegalGeneration()),))
    pending = tuple(
        TxnOffsetPending(command.producer_id, command.producer_epoch, event)
        for event in step.events
        if isinstance(event, OffsetCommitted)
    )
    return Step(events=pending, responses=step.responses)


def delete_offsets(
    command: DeleteOffsets, subscribed_to: Callable[[str], bool], store: OffsetStore, ticket: Ticket
) -> Step:
    """Delete offsets in topics that no member subscribes to. Deleting an offset that was never committed succeeds."""
    events: dict[OffsetForgotten, None] = {}
    failures: dict[int, Failure] = {}
    for index, (topic, partition) in enumerate(command.partitions):
        if subscribed_to(topic):
            failures[index] = GroupSubscribedToTopic
        elif store.has(command.group, topic, partition):
            events[OffsetForgotten(command.group, topic, partition)] = None
    return Step(events=tuple(events), responses=(Response(ticket, DeleteOffsetsReply(failures)),))
