"""What a sink remembers: which batch is in, by which transactions, and who may decide the next.

The state is a committed offset of a group named after the sink, with the rest in the offset's metadata. It changes only
in transactions of one transactional id, so that of two who want to change it one is fenced, and whoever reads it with
`require_stable` sees no change that may still be undone. The decisions themselves (`claim`, `decide`, `void`) are
functions of the state and know nothing of brokers.
"""

from __future__ import annotations

import base64
import json
import re
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from penstock.model.generated_errors import (
    GroupIdNotFound,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from penstock.wire.api import create_topics, delete_groups, offset_fetch, txn_offset_commit
from pyspark_penstock.link import BrokerLink, raise_for
from pyspark_penstock.txn_calls import REPLACED, Producer, add_group, end_transaction, init_producer, is_known

LEDGER_PARTITIONS = 32
PIECE_CHARACTERS = 4_000
"""Of the state in the metadata of one partition's offset; brokers allow 4,096 bytes unless told otherwise."""
OFFSET_FETCH_VERSION_MAX = 7
TXN_OFFSET_COMMIT_VERSION_MAX = 3
LEDGER_TIMEOUT_MS = 60_000
AMEND_TRIES_MAX = 50
SETTLE_TRIES = 100
SETTLE_PAUSE_SECONDS = 0.01
"""Brokers apply the end of a transaction within milliseconds; after a second nobody will end it."""
TOPIC_TIMEOUT_MS = 30_000
NO_BATCH = -1
NOBODY = ""
_TASK = re.compile(r"(\d+)-\d+-\d+")
"""Generation, task and attempt: whole, as another sink's name may begin with this one's."""


class SinkError(Exception):
    """The sink cannot go on without breaking its promise."""


class LedgerMissing(SinkError):
    """Nothing is known of a sink that must have written before."""


class SinkAhead(SinkError):
    """The sink has later batches than the one that is to be written."""


class Superseded(SinkError):
    """Another run of the same query has taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One task's transaction of a batch, and what is in it."""

    task: int
    attempt: int
    producer_id: int
    epoch: int
    rows: int
    fingerprint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """`batch` is decided: what `written` names is committed, or must be before anything else is written.

    Every run of the query takes a new generation. Transactions of an earlier one can be decided no more, so they can
    be aborted.
    """

    batch: int
    generation: int
    run: str
    """Who may write under this generation."""
    query: str
    written_in: int = 0
    """The generation of the transactions in `written`."""
    written: tuple[Written, ...] = ()
    lost: tuple[int, ...] = ()
    """Tasks whose transactions were decided, and then aborted by their coordinator before they could be committed."""


def claim(
    state: LedgerState | None, *, batch: int, run: str, query: str, may_begin: bool, lost: Iterable[int] = ()
) -> LedgerState:
    """A run takes over from the one before; it may write this batch.

    ``lost`` are the tasks of the decided batch whose transactions could not be committed.
    """
    if state is None:
        if batch > 0 and not may_begin:
            raise LedgerMissing(
                f"batch {batch} is to be written, and there is no ledger of the batches before it (has its group"
                " expired, or was the query moved from another sink?): what is in the topics is unknown. To take"
                " everything before this batch as written, set the option ledgerMissing to begin"
            )
        return LedgerState(batch=NO_BATCH, generation=1, run=run, query=query)
    if state.query != query:
        if not may_begin:
            raise SinkAhead(
                f"the ledger belongs to query {state.query}, and this is {query}: two queries cannot share a sinkId."
                " If its checkpoint was deleted, set the option ledgerMissing to begin, or take another sinkId"
            )
        return LedgerState(batch=NO_BATCH, generation=state.generation + 1, run=run, query=query)
    if state.batch > batch:
        raise SinkAhead(
            f"batch {batch} is to be written, and the sink has batch {state.batch} already: the query's checkpoint is"
            " older than its output"
        )
    if state.lost and state.batch < batch:
        raise partly_in(state.batch, list(state.lost))
    return replace(state, generation=state.generation + 1, run=run, lost=tuple(sorted(lost)))


def decide(
    state: LedgerState | None, *, batch: int, generation: int, query: str, written: tuple[Written, ...]
) -> LedgerState:
    """The batch is in: from here on these transactions are committed, by whoever comes by."""
    if state is None:
        raise Superseded(f"the ledger of batch {batch} has vanished while it was written")
    if state.generation != generation:
        raise Superseded(f"batch {batch} was written by a run that another has taken over from")
    if state.batch == batch and not state.lost:
        if written and written != state.written:
            raise Superseded(f"batch {batch} was decided before, by other transactions")
        return state
    missing = set(state.lost) - {each.task for each in written}
    if state.batch == batch and missing:
        raise partly_in(batch, sorted(missing))
    if state.batch > batch:
        raise SinkAhead(f"batch {batch} was written, and the sink has batch {state.batch} already")
    return replace(state, batch=batch, query=query, written_in=generation, written=written, lost=())


def partly_in(batch: int, tasks: list[int]) -> SinkError:
    """What to say of a batch that can be neither taken back nor completed."""
    return SinkError(
        f"batch {batch} is partly in: the transactions of tasks {tasks} were aborted for being late after the batch was"
        " decided, and the query does not give the same rows for those tasks again. The batch cannot be completed; a"
        " longer kafka.transaction.timeout.ms avoids this"
    )


def void(state: LedgerState | None, *, batch: int, generation: int) -> LedgerState | None:
    """Nothing of this generation may be decided any more; None if the batch is decided already."""
    if state is None:
        return None
    if state.batch >= batch and not state.lost:
        return None
    if state.generation != generation:
        return state
    return replace(state, generation=generation + 1, run=NOBODY)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNames:
    """What a sink is called at the brokers; everything begins with its id."""

    sink: str

    @property
    def group(self) -> str:
        return self.sink

    @property
    def ledger(self) -> str:
        """The transactional id of changes of the ledger."""
        return f"{self.sink}-ledger"

    def transactional_id(self, generation: int, task: int, attempt: int) -> str:
        return f"{self.sink}-g{generation}-{task}-{attempt}"

    @property
    def tasks(self) -> str:
        """How every task's transactional id begins."""
        return f"{self.sink}-g"

    def generation_of(self, transactional_id: str) -> int | None:
        """Which generation a transactional id is of; None where it is not one of this sink's tasks."""
        found = _TASK.fullmatch(transactional_id.removeprefix(self.tasks))
        return int(found.group(1)) if found and transactional_id.startswith(self.tasks) else None

    def producer(self, generation: int, written: Written) -> Producer:
        return Producer(
            transactional_id=self.transactional_id(generation, written.task, written.attempt),
            producer_id=written.producer_id,
            epoch=written.epoch,
        )


def encode_state(state: LedgerState) -> list[str]:
    """The state in pieces that fit into the metadata of offsets; the first says how many there are."""
    content = [
        state.batch,
        state.generation,
        state.run,
        state.query,
        state.written_in,
        [[w.task, w.attempt, w.producer_id, w.epoch, w.rows, w.fingerprint] for w in state.written],
        list(state.lost),
    ]
    packed = base64.b64encode(zlib.compress(json.dumps(content, separators=(",", ":")).encode())).decode()
    pieces = [packed[at : at + PIECE_CHARACTERS] for at in range(0, len(packed), PIECE_CHARACTERS)]
    if len(pieces) > LEDGER_PARTITIONS:
        raise SinkError(
            f"a batch of {len(state.written)} tasks is more than a ledger can name: coalesce the table before writing"
        )
    return [f"{len(pieces)}:{pieces[0]}", *pieces[1:]]


def decode_state(pieces: list[str]) -> LedgerState:
    """What `encode_state` packed; later pieces may be left from a larger state."""
    count, _, first = pieces[0].partition(":")
    packed = first + "".join(pieces[1 : int(count)])
    batch, generation, run, query, written_in, written, lost = json.loads(zlib.decompress(base64.b64decode(packed)))
    return LedgerState(
        batch=batch,
        generation=generation,
        run=run,
        query=query,
        written_in=written_in,
        written=tuple(
            Written(task=w[0], attempt=w[1], producer_id=w[2], epoch=w[3], rows=w[4], fingerprint=w[5]) for w in written
        ),
        lost=tuple(lost),
    )


class Ledger:
    """The ledger of one sink, at the brokers."""

    def __init__(self, link: BrokerLink, names: SinkNames, topic: str) -> None:
        self._link = link
        self._names = names
        self._topic = topic

    def read(self) -> LedgerState | None:
        """What is decided; a change that is under way is waited for."""
        return self._link.patiently(f"the ledger of {self._names.group}", self._look)

    def read_settled(self) -> LedgerState | None:
        """What is decided; a change that is under way is waited for only so long, and then undone.

        Whoever began it may be dead, and its transaction would stay open until it is late.
        """
        for _ in range(SETTLE_TRIES):
            is_settled, state = self._link.patiently(f"the ledger of {self._names.group}", self._glance)
            if is_settled:
                return state
            time.sleep(SETTLE_PAUSE_SECONDS)
        return self.amend(lambda _: None)

    def _glance(self) -> tuple[bool, LedgerState | None]:
        try:
            return True, self._look()
        except UnstableOffsetCommit:
            return False, None

    def _look(self) -> LedgerState | None:
        group = self._names.group
        request = offset_fetch.Request(
            group_id=group,
            topics=[
                offset_fetch.OffsetFetchRequestTopic(name=self._topic, partition_indexes=list(range(LEDGER_PARTITIONS)))
            ],
            require_stable=True,
        )
        answer = self._link.ask(self._link.coordinator(group), offset_fetch, request, OFFSET_FETCH_VERSION_MAX)
        raise_for(answer.error_code, f"the ledger of {group}")
        pieces: dict[int, str] = {}
        for part in (part for topic in answer.topics for part in topic.partitions):
            if part.error_code != UnknownTopicOrPartition.code:
                raise_for(part.error_code, f"the ledger of {group}")
            if part.committed_offset >= 0:
                pieces[part.partition_index] = part.metadata or ""
        return decode_state([pieces.get(index, "") for index in range(LEDGER_PARTITIONS)]) if pieces else None

    def amend(self, change: Callable[[LedgerState | None], LedgerState | None]) -> LedgerState | None:
        """Change the state: nobody else's change comes between what ``change`` was given and what it returned.

        ``change`` may be called several times; None or the same state again is no change. What it raises is raised.
        """
        for _ in range(AMEND_TRIES_MAX):
            producer = init_producer(self._link, self._names.ledger, LEDGER_TIMEOUT_MS)
            state = self.read()
            wanted = change(state)
            if wanted is None or wanted == state:
                return state
            try:
                self._write(producer, wanted)
            except REPLACED:
                # Somebody else wanted a change at the same time. Ours may be in all the same: the next look tells.
                continue
            return wanted
        raise SinkError(f"the ledger of {self._names.sink} changes hands faster than it can be written")

    def touch(self) -> None:
        """Change nothing, and let it be seen that somebody has come to."""
        init_producer(self._link, self._names.ledger, LEDGER_TIMEOUT_MS)

    def is_touched(self) -> bool:
        """Whether anybody has ever come to change it, whatever became of that."""
        return is_known(self._link, self._names.ledger)

    def _write(self, producer: Producer, state: LedgerState) -> None:
        pieces = encode_state(state)
        add_group(self._link, producer, self._names.group)
        self._commit_pieces(producer, state.batch + 1, pieces)
        end_transaction(self._link, producer, commit=True)

    def _commit_pieces(self, producer: Producer, offset: int, pieces: list[str]) -> None:
        assert producer.transactional_id is not None, "a ledger changes in transactions"
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
                        for index, piece in enumerate(pieces)
                    ],
                )
            ],
        )

        def attempt() -> None:
            address = self._link.coordinator(group)
            answer = self._link.ask(address, txn_offset_commit, request, TXN_OFFSET_COMMIT_VERSION_MAX)
            for part in (part for topic in answer.topics for part in topic.partitions):
                if part.error_code == UnknownTopicOrPartition.code:
                    self._make_topic()
                raise_for(part.error_code, f"the ledger of {group}")

        self._link.patiently(f"the ledger of {group}", attempt)

    def _make_topic(self) -> None:
        """Make the topic to which the offsets belong; it never has a record."""
        request = create_topics.Request(
            topics=[
                create_topics.CreatableTopic(name=self._topic, num_partitions=LEDGER_PARTITIONS, replication_factor=-1)
            ],
            timeout_ms=TOPIC_TIMEOUT_MS,
        )

        def attempt() -> None:
            for made in self._link.ask_anyone(create_topics, request).topics:
                if made.error_code not in (0, TopicAlreadyExists.code):
                    raise_for(made.error_code, f"the topic of ledgers {self._topic}")

        self._link.patiently(f"the topic of ledgers {self._topic}", attempt)

    def forget(self) -> None:
        """Remove the ledger of a sink that will never write again."""
        group = self._names.group

        def attempt() -> None:
            address = self._link.coordinator(group)
            for each in self._link.ask(address, delete_groups, delete_groups.Request(groups_names=[group])).results:
                if each.error_code != GroupIdNotFound.code:
                    raise_for(each.error_code, f"the ledger of {group}")

        self._link.patiently(f"the ledger of {group}", attempt)
