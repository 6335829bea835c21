"""A sink's state at the brokers: a committed offset of a group named after the sink, the document in its metadata.

The state changes only in transactions of one transactional id, so of two runs that change it one is fenced, and a
reader with `require_stable` sees no change that may still be undone. A document that is longer than the metadata of one
offset is split into pieces, the metadata of further partitions of one topic that has no records.

The completion of a batch is a plain commit of a further offset, one request without a transaction: it is never undone.
Each generation has a partition of its own for it, so that a driver that resumes after another has taken over cannot
overwrite the note of its successor.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.model.generated_errors import (
    GroupIdNotFound,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTransactionTimeout,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from penstock.wire.api import (
    create_partitions,
    create_topics,
    delete_groups,
    offset_commit,
    offset_fetch,
    txn_offset_commit,
)
from pyspark_penstock.batch_identity import BatchOffsets
from pyspark_penstock.link import BrokerLink, raise_for
from pyspark_penstock.sink_state import Content, Decided, SinkError, SinkNames, SinkState, Written
from pyspark_penstock.txn_calls import REPLACED, Producer, add_group, end_transaction, init_producer, is_known

PARTITIONS = 32
PARTITIONS_MAX = 128
"""The number of partitions to which the topic grows for a batch of very many tasks."""
MARKS_FROM, MARKS_END = 24, 32
"""Partitions whose offsets are the complete batch of a generation; the others hold pieces of the document."""
PIECE_PARTITIONS = (*range(MARKS_FROM), *range(MARKS_END, PARTITIONS_MAX))
PIECE_CHARACTERS = 4_000
"""The size of a piece in the metadata of one offset; brokers allow 4,096 bytes by default."""
DOCUMENT_VERSION = 2
TASK_HASH_END = 1 << 32
"""A task's sum of hashes is kept modulo this: it is compared only with the same task's."""
TASKS_MAX = 100_000
"""The most tasks that are certain to fit into the state of a batch."""
OFFSET_FETCH_VERSION_MAX = 7
OFFSET_COMMIT_VERSION_MAX = 8
TXN_OFFSET_COMMIT_VERSION_MAX = 3
LEDGER_TIMEOUTS_MS = (60_000, 10_000, 1_000)
"""Timeouts of a change of the state, which takes milliseconds: the first that brokers allow
(`transaction.max.timeout.ms`)."""
UPDATE_TRIES_MAX = 50
SETTLE_TRIES = 100
SETTLE_PAUSE_SECONDS = 0.01
"""Brokers apply the end of a transaction within milliseconds; after a second its driver is dead."""
TOPIC_TIMEOUT_MS = 30_000
REPLICAS_DEFAULT = -1


class TooManyTasks(SinkError):
    """A batch has more tasks than the state of a sink can name."""


def too_many_tasks(tasks: int) -> TooManyTasks:
    return TooManyTasks(
        f"a batch of {tasks} tasks is more than the state of a sink can name ({TASKS_MAX}): coalesce the table before"
        " writing it"
    )


# The document


def encode_state(state: SinkState) -> list[str]:
    """The state as pieces that fit into the metadata of offsets; the first has their number.

    A batch of very many tasks is stored without the content of each: its transactions can be committed, but not written
    again one by one.
    """
    pieces = _pieces(state)
    if len(pieces) > len(PIECE_PARTITIONS) and state.decided is not None:
        short = tuple(replace(each, content=None) for each in state.decided.written)
        pieces = _pieces(replace(state, decided=replace(state.decided, written=short)))
    if len(pieces) > len(PIECE_PARTITIONS):
        raise too_many_tasks(0 if state.decided is None else len(state.decided.written))
    return pieces


def _pieces(state: SinkState) -> list[str]:
    packed = base64.b64encode(zlib.compress(json.dumps(_document(state), separators=(",", ":")).encode())).decode()
    pieces = [packed[at : at + PIECE_CHARACTERS] for at in range(0, len(packed), PIECE_CHARACTERS)]
    return [f"{len(pieces)}:{pieces[0]}", *pieces[1:]]


def piece_count(first: str) -> int:
    return int(first.partition(":")[0])


def decode_state(pieces: Sequence[str]) -> SinkState:
    """Decode the pieces of `encode_state`; later pieces may be left over from a larger state."""
    count, _, first = pieces[0].partition(":")
    text = zlib.decompress(base64.b64decode(first + "".join(pieces[1 : int(count)])))
    if text.startswith(b"["):
        return _first_version(json.loads(text))
    content: dict[str, Any] = json.loads(text)
    if content["version"] != DOCUMENT_VERSION:
        raise SinkError(
            f"the state of the sink is of version {content['version']}, and this package reads up to"
            f" {DOCUMENT_VERSION}: it was written by a newer one"
        )
    return SinkState(
        generation=content["generation"],
        run=content["run"],
        query=content["query"],
        decided=None if content["decided"] is None else _decided(content["decided"]),
        lost=tuple(content["lost"]),
        resolved=content["resolved"],
    )


def _document(state: SinkState) -> dict[str, Any]:
    decided = state.decided
    return {
        "version": DOCUMENT_VERSION,
        "generation": state.generation,
        "run": state.run,
        "query": state.query,
        "lost": list(state.lost),
        "resolved": state.resolved,
        "decided": None if decided is None else _decided_document(decided),
    }


def _decided_document(decided: Decided) -> dict[str, Any]:
    written, offsets = decided.written, decided.offsets
    contents = [each.content for each in written]
    return {
        "batch": decided.batch,
        "generation": decided.generation,
        "content": None
        if decided.content is None
        else {"rows": decided.content.rows, "hashes": decided.content.hashes},
        "offsets": None
        if offsets is None
        else {"plan": offsets.plan, "start": offsets.start, "end": offsets.end, "text": offsets.text},
        "output": decided.output,
        "run": decided.run,
        "complete": decided.is_complete,
        # By column and as differences, which compresses best.
        "transactions": {
            "task": _differences(each.task for each in written),
            "slot": [each.slot for each in written],
            "producer_id": _differences(each.producer_id for each in written),
            "epoch": [each.epoch for each in written],
            "rows": [None if each is None else each.rows for each in contents],
            "hashes": [None if each is None else each.hashes % TASK_HASH_END for each in contents],
        },
    }


def _decided(content: Mapping[str, Any]) -> Decided:
    columns, whole, offsets = content["transactions"], content["content"], content["offsets"]
    rows = zip(
        _sums(columns["task"]),
        columns["slot"],
        _sums(columns["producer_id"]),
        columns["epoch"],
        columns["rows"],
        columns["hashes"],
        strict=True,
    )
    return Decided(
        batch=content["batch"],
        generation=content["generation"],
        written=tuple(
            Written(
                task=task,
                slot=slot,
                producer_id=producer_id,
                epoch=epoch,
                content=None if count is None else Content(count, hashes),
            )
            for task, slot, producer_id, epoch, count, hashes in rows
        ),
        content=None if whole is None else Content(whole["rows"], whole["hashes"]),
        offsets=None if offsets is None else BatchOffsets(**offsets),
        output=content["output"],
        run=content["run"],
        is_complete=content["complete"],
    )


def _first_version(content: list[Any]) -> SinkState:
    """A state of the first version, a list without names."""
    batch, generation, run, query, written_in, written, lost = content
    decided = Decided(
        batch=batch,
        generation=written_in,
        written=tuple(
            Written(task=w[0], slot=w[1], producer_id=w[2], epoch=w[3], content=Content(w[4], 0)) for w in written
        ),
        is_complete=None,
    )
    return SinkState(
        generation=generation, run=run, query=query, decided=decided if batch >= 0 else None, lost=tuple(lost)
    )


def _differences(numbers: Iterable[int]) -> list[int]:
    listed = list(numbers)
    return [now - before for before, now in zip([0, *listed], listed, strict=False)]


def _sums(differences: Iterable[int]) -> list[int]:
    total = 0
    return [total := total + each for each in differences]


class SinkStore:
    """The state of one sink, at the brokers."""

    def __init__(self, link: BrokerLink, names: SinkNames, topic: str) -> None:
        self._link = link
        self._names = names
        self._topic = topic

    def read(self) -> SinkState | None:
        """The state, after a pending change has ended."""
        return self._link.retrying(f"the state of {self._names.group}", self._read_now)

    def read_settled(self) -> SinkState | None:
        """The state, after a pending change has ended; it is aborted after a while.

        The run that began it may be dead, and its transaction would stay open until its timeout.
        """
        for _ in range(SETTLE_TRIES):
            is_settled, state = self.read_if_stable()
            if is_settled:
                return state
            time.sleep(SETTLE_PAUSE_SECONDS)
        return self.update(lambda _: None)

    def read_if_stable(self) -> tuple[bool, SinkState | None]:
        """Whether no change is pending, and then the state."""

        def attempt() -> tuple[bool, SinkState | None]:
            try:
                return True, self._read_now()
            except UnstableOffsetCommit:
                return False, None

        return self._link.retrying(f"the state of {self._names.group}", attempt)

    def _read_now(self) -> SinkState | None:
        found = self._offsets([*range(PARTITIONS)])
        requested = MARKS_FROM
        while 0 in found and (count := piece_count(found[0][1])) > requested:
            # All pieces in one request: between two requests the state may change and grow.
            found = self._offsets([*PIECE_PARTITIONS[:count], *range(MARKS_FROM, MARKS_END)])
            requested = count
        if 0 not in found:
            return None
        state = decode_state([found.get(index, (0, ""))[1] for index in PIECE_PARTITIONS])
        decided = state.decided
        if decided is None or decided.is_complete:
            return state
        offset, mark = found.get(_mark_partition(decided.generation), (0, ""))
        is_complete = (offset, mark) == (decided.batch + 1, _mark(decided.generation))
        return replace(state, decided=replace(decided, is_complete=True)) if is_complete else state

    def _offsets(self, partitions: list[int]) -> dict[int, tuple[int, str]]:
        """The committed offset of each of these partitions that has one, and its metadata."""
        group = self._names.group
        request = offset_fetch.Request(
            group_id=group,
            topics=[offset_fetch.OffsetFetchRequestTopic(name=self._topic, partition_indexes=partitions)],
            require_stable=True,
        )
        response = self._link.call(self._link.coordinator(group), offset_fetch, request, OFFSET_FETCH_VERSION_MAX)
        raise_for(response.error_code, f"the state of {group}")
        found: dict[int, tuple[int, str]] = {}
        for part in (part for topic in response.topics for part in topic.partitions):
            if part.error_code != UnknownTopicOrPartition.code:
                raise_for(part.error_code, f"the state of {group}")
            if part.committed_offset >= 0:
                found[part.partition_index] = (part.committed_offset, part.metadata or "")
        return found

    def update(self, change: Callable[[SinkState | None], SinkState | None]) -> SinkState | None:
        """Change the state atomically: ``change`` gets the current state and returns the new one.

        ``change`` may be called several times; None or the same state means no change. Its exceptions propagate.
        """
        for _ in range(UPDATE_TRIES_MAX):
            producer = self._become_producer()
            state = self.read()
            wanted = change(state)
            if wanted is None or wanted == state:
                return state
            try:
                self._write(producer, wanted)
            except REPLACED:
                # Another run changed the state at the same time. Ours may be committed: the next read shows it.
                continue
            return wanted
        raise SinkError(f"the state of {self._names.sink} is changed by others faster than it can be written")

    def note_complete(self, batch: int, generation: int) -> None:
        """Record that all transactions of the batch that this generation decided are committed."""
        group = self._names.group
        request = offset_commit.Request(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name=self._topic,
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(
                            partition_index=_mark_partition(generation),
                            committed_offset=batch + 1,
                            committed_metadata=_mark(generation),
                        )
                    ],
                )
            ],
        )

        def attempt() -> None:
            response = self._link.call(self._link.coordinator(group), offset_commit, request, OFFSET_COMMIT_VERSION_MAX)
            for part in (part for topic in response.topics for part in topic.partitions):
                raise_for(part.error_code, f"the state of {group}")

        self._link.retrying(f"the state of {group}", attempt)

    def touch(self) -> None:
        """Use the transactional id of the state without a change, which shows that a driver has reached the sink."""
        self._become_producer()

    def _become_producer(self) -> Producer:
        *longer, shortest = LEDGER_TIMEOUTS_MS
        for timeout_ms in longer:
            with suppress(InvalidTransactionTimeout):
                return init_producer(self._link, self._names.ledger, timeout_ms)
        return init_producer(self._link, self._names.ledger, shortest)

    def is_touched(self) -> bool:
        """Whether a driver has ever tried to change the state."""
        return is_known(self._link, self._names.ledger)

    def _write(self, producer: Producer, state: SinkState) -> None:
        pieces = encode_state(state)
        add_group(self._link, producer, self._names.group)
        self._commit_pieces(producer, state.batch + 1, pieces)
        end_transaction(self._link, producer, commit=True)

    def _commit_pieces(self, producer: Producer, offset: int, pieces: list[str]) -> None:
        assert producer.transactional_id is not None, "a state changes in transactions"
        group = self._names.group
        request = txn_offset_commit.Request(
            transactional_id=producer.transactional_id,
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=self._topic,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=piece
                        )
                        for index, piece in zip(PIECE_PARTITIONS, pieces, strict=False)
                    ],
                )
            ],
        )

        def attempt() -> None:
            address = self._link.coordinator(group)
            response = self._link.call(address, txn_offset_commit, request, TXN_OFFSET_COMMIT_VERSION_MAX)
            for part in (part for topic in response.topics for part in topic.partitions):
                if part.error_code == UnknownTopicOrPartition.code:
                    self._make_topic(grown=len(pieces) > MARKS_FROM)
                raise_for(part.error_code, f"the state of {group}")

        self._link.retrying(f"the state of {group}", attempt)

    def _make_topic(self, *, grown: bool) -> None:
        """Create the topic to which the offsets belong, or add partitions.

        It never has records, so one replica is enough where too few brokers are live for the default.
        """
        doing = f"the topic of sink states {self._topic}"
        grow = create_partitions.Request(
            topics=[create_partitions.CreatePartitionsTopic(name=self._topic, count=PARTITIONS_MAX)],
            timeout_ms=TOPIC_TIMEOUT_MS,
        )

        def attempt() -> None:
            code = self._created(REPLICAS_DEFAULT)
            if code == InvalidReplicationFactor.code:
                code = self._created(1)
            if code != TopicAlreadyExists.code:
                raise_for(code, doing)
            for made in self._link.call_any(create_partitions, grow).results if grown else ():
                if made.error_code not in (0, InvalidPartitions.code):
                    raise_for(made.error_code, doing)

        self._link.retrying(doing, attempt)

    def _created(self, replicas: int) -> int:
        """Create the topic; returns the error code."""
        topic = create_topics.CreatableTopic(name=self._topic, num_partitions=PARTITIONS, replication_factor=replicas)
        request = create_topics.Request(topics=[topic], timeout_ms=TOPIC_TIMEOUT_MS)
        code: int = self._link.call_any(create_topics, request).topics[0].error_code
        return code

    def forget(self) -> None:
        """Delete the state of a sink that will never write again."""
        group = self._names.group

        def attempt() -> None:
            address = self._link.coordinator(group)
            for each in self._link.call(address, delete_groups, delete_groups.Request(groups_names=[group])).results:
                if each.error_code != GroupIdNotFound.code:
                    raise_for(each.error_code, f"the state of {group}")

        self._link.retrying(f"the state of {group}", attempt)


def _mark_partition(generation: int) -> int:
    return MARKS_FROM + generation % (MARKS_END - MARKS_FROM)


def _mark(generation: int) -> str:
    return f"complete:{generation}"
