"""Transactional producers of a simulation: clients of both transaction versions, and one that copies exactly once.

A request that got no response may still arrive. With version 2 each transaction has an epoch of its own, so that it is
refused then. With version 1 it could become a part of the next transaction, and Kafka would let it: such a client asks
for a new epoch after every request of unknown outcome.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from penstock.testing.histories import Moved, Outcome, Send
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.consumers import Fetcher
from penstock.testing.sim.links import (
    ELSEWHERE,
    GROUP_KEY,
    PERHAPS_KEPT,
    TRANSACTION_KEY,
    UNDECIDED,
    Code,
    Link,
    NotSent,
)
from penstock.testing.sim.observer import committed_offsets
from penstock.testing.sim.plan import COPY_GROUP, EVENTS, LEDGER, Plan
from penstock.testing.sim.producers import NOT_APPENDED, batch_of, send_batch
from penstock.testing.sim.recording import OpenOperation, key_of
from penstock.wire.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)

INIT_PRODUCER_ID_VERSION = 4
ADD_PARTITIONS_VERSION = 3
ADD_OFFSETS_VERSION = 3
PRODUCE_VERSIONS = {1: 11, 2: 12}
END_TXN_VERSIONS = {1: 3, 2: 5}
TXN_OFFSET_COMMIT_VERSIONS = {1: 3, 2: 5}

ABORTS = 0.2
ABANDONS = 0.02
"""How often a transaction is left open: its timeout, or the next start, aborts it."""
BATCHES_MAX = 3
RECORDS_MAX = 3
PAUSE_MAX_S = 0.8
COPIED_MAX = 6

FENCED = frozenset({Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_ID_MAPPING})
RETRIED = ELSEWHERE | UNDECIDED | {Code.CONCURRENT_TRANSACTIONS}


class Fenced(Exception):
    """Another producer has this transactional id, or the transaction took too long."""


class Doomed(Exception):
    """This transaction can only be aborted."""


def error_code_of(response: Any) -> int:
    return int(response.error_code)


class Transactions:
    """The transactions of one transactional id, as a client of a transaction version has them."""

    def __init__(
        self,
        link: Link,
        plan: Plan,
        *,
        transactional_id: str,
        version: int,
        may_be_forgotten: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """`may_be_forgotten` says whether a partition may have lost the sequence of its last batch with its records."""
        self._link = link
        self._plan = plan
        self._may_be_forgotten = may_be_forgotten
        self._id = transactional_id
        self._version = version
        self._producer_id = -1
        self._epoch = -1
        self._sequences: Counter[tuple[str, int]] = Counter()
        self._added: set[tuple[str, int]] = set()
        self._offsets_added = False
        self.doubtful = True
        """A request may still arrive that would change the next transaction: only a new epoch helps."""

    async def prepare(self) -> bool:
        """Be ready for the next transaction; whether that worked."""
        self._added.clear()
        self._offsets_added = False
        return not self.doubtful or await self._init()

    async def _init(self) -> bool:
        request = init_producer_id.Request(
            transactional_id=self._id, transaction_timeout_ms=self._plan.transaction_timeout_ms
        )
        try:
            response = await self._ask(init_producer_id, INIT_PRODUCER_ID_VERSION, request)
        except Disconnected:
            await self._link.backoff()
            return False
        if response.error_code:
            if response.error_code in ELSEWHERE:
                self._link.forget()
            elif response.error_code not in RETRIED:
                self._link.unexpected("a request for a producer id", response.error_code)
            await self._link.backoff()
            return False
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        self.doubtful = False
        return True

    async def _ask(self, api: ModuleType, version: int, request: Any) -> Any:
        return await self._link.ask_coordinator(TRANSACTION_KEY, self._id, api, version, request)

    async def send(self, topic: str, index: int, values: Sequence[int]) -> int:
        """Send one batch until it is known to be there: its base offset."""
        link = self._link
        if self._version == 1 and (topic, index) not in self._added:
            await self._add(topic, index)
        sequence = self._sequences[topic, index]
        batch = batch_of(
            link,
            values,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        for attempt in range(30):
            try:
                code, base_offset = await send_batch(
                    link, topic, index, batch, version=PRODUCE_VERSIONS[self._version], transactional_id=self._id
                )
            except NotSent:
                await link.backoff()
                continue
            except Disconnected:
                self.doubtful = self.doubtful or self._version == 1
                await link.backoff()
                continue
            if not code:
                self._sequences[topic, index] += len(values)
                return base_offset
            if code in FENCED:
                raise Fenced
            if code in {Code.INVALID_TXN_STATE, Code.TRANSACTION_ABORTABLE}:
                raise Doomed
            if code not in NOT_APPENDED | RETRIED:
                if code != Code.OUT_OF_ORDER_SEQUENCE_NUMBER or not self._may_be_forgotten(index):
                    link.unexpected(f"attempt {attempt + 1} of a transactional produce", code, key=key_of(topic, index))
                raise Doomed
            if code in UNDECIDED and self._version == 1:
                self.doubtful = True
            await link.backoff()
        raise Doomed

    async def _add(self, topic: str, index: int) -> None:
        wanted = add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[index])
        request = add_partitions_to_txn.Request(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[wanted],
        )

        def code_of(response: Any) -> int:
            [result] = response.results_by_topic_v3_and_below[0].results_by_partition
            return int(result.partition_error_code)

        await self._insist(
            "an addition of a partition", add_partitions_to_txn, ADD_PARTITIONS_VERSION, request, code_of
        )
        self._added.add((topic, index))

    async def _insist(
        self, what: str, api: ModuleType, version: int, request: Any, code_of: Callable[[Any], int]
    ) -> None:
        """Ask the coordinator until it says yes."""
        link = self._link
        for _ in range(30):
            try:
                code = code_of(await self._ask(api, version, request))
            except NotSent:
                await link.backoff()
                continue
            except Disconnected:
                self.doubtful = True
                await link.backoff()
                continue
            if not code:
                return
            if code in FENCED:
                raise Fenced
            if code in {Code.INVALID_TXN_STATE, Code.TRANSACTION_ABORTABLE}:
                raise Doomed
            if code in ELSEWHERE:
                link.forget()
            elif code in UNDECIDED:
                self.doubtful = True
            elif code not in RETRIED:
                link.unexpected(what, code)
                raise Doomed
            await link.backoff()
        raise Doomed

    async def commit_offsets(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        """Make offsets of a group a part of the transaction."""
        if self._version == 1 and not self._offsets_added:
            addition = add_offsets_to_txn.Request(
                transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, group_id=group
            )
            await self._insist(
                "an addition of offsets", add_offsets_to_txn, ADD_OFFSETS_VERSION, addition, error_code_of
            )
            self._offsets_added = True
        commit = txn_offset_commit.Request(
            transactional_id=self._id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=at)
                    ],
                )
                for (topic, index), at in offsets.items()
            ],
        )
        link = self._link
        for _ in range(30):
            try:
                response = await link.ask_coordinator(
                    GROUP_KEY, group, txn_offset_commit, TXN_OFFSET_COMMIT_VERSIONS[self._version], commit
                )
            except NotSent:
                await link.backoff()
                continue
            except Disconnected:
                self.doubtful = self.doubtful or self._version == 1
                await link.backoff()
                continue
            codes = {part.error_code for topic in response.topics for part in topic.partitions}
            if codes == {Code.NONE}:
                return
            if codes & FENCED:
                raise Fenced
            if codes & {Code.INVALID_TXN_STATE, Code.TRANSACTION_ABORTABLE}:
                raise Doomed
            if codes <= RETRIED:
                if self._version == 1:
                    self.doubtful = True
                link.forget()
                await link.backoff()
                continue
            link.unexpected("a commit of offsets in a transaction", max(codes))
            raise Doomed
        raise Doomed

    async def end(self, *, commit: bool) -> Outcome:
        """End the transaction; a commit is repeated until its outcome is known, or cannot be."""
        link = self._link
        request = end_txn.Request(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        unknown = False
        for _ in range(40):
            try:
                response = await self._ask(end_txn, END_TXN_VERSIONS[self._version], request)
            except NotSent:
                await link.backoff()
                continue
            except Disconnected:
                unknown = True
                self.doubtful = self.doubtful or self._version == 1
                await link.backoff()
                continue
            code = response.error_code
            if not code:
                if self._version == 2:
                    self._producer_id, self._epoch = response.producer_id, response.producer_epoch
                    self._sequences.clear()
                return Outcome.OK if commit else Outcome.FAIL
            if code in RETRIED:
                if code in UNDECIDED:
                    self.doubtful = self.doubtful or self._version == 1
                if code in UNDECIDED | PERHAPS_KEPT:
                    unknown = True
                if code in ELSEWHERE:
                    link.forget()
                await link.backoff()
                continue
            self.doubtful = True
            if code not in FENCED | {Code.INVALID_TXN_STATE, Code.TRANSACTION_ABORTABLE}:
                link.unexpected("an end of a transaction", code)
            return Outcome.FAIL if not (commit and unknown) else Outcome.UNKNOWN
        self.doubtful = True
        return Outcome.UNKNOWN if commit else Outcome.FAIL

    async def abort(self) -> None:
        await self.end(commit=False)


class Transactor:
    """Sends values in transactions, of which some are aborted and some forgotten."""

    def __init__(self, link: Link, plan: Plan, *, transactional_id: str, version: int) -> None:
        self._link = link
        self._plan = plan
        self._process = link.recording.process(link.name)
        self._version = version
        self._transactions = Transactions(link, plan, transactional_id=transactional_id, version=version)

    async def run(self) -> None:
        while not self._plan.stopping:
            if await self._transactions.prepare():
                operation = self._link.recording.begin(f"transaction v{self._version}", self._process, ())
                await self._transaction(operation)
            await asyncio.sleep(self._link.random.random() * PAUSE_MAX_S / self._plan.pace)

    async def _transaction(self, operation: OpenOperation) -> None:
        link, transactions = self._link, self._transactions
        placed: list[Send] = []
        try:
            for _ in range(link.random.randrange(1, BATCHES_MAX + 1)):
                index = LEDGER.any_index(link.random)
                key = key_of(LEDGER.name, index)
                values = link.recording.values(link.random.randrange(1, RECORDS_MAX + 1))
                operation.extend(Send(key=key, value=value) for value in values)
                base = await transactions.send(LEDGER.name, index, values)
                placed += [Send(key=key, value=value, offset=base + number) for number, value in enumerate(values)]
                if link.random.random() < 0.2:
                    await asyncio.sleep(link.random.random() * 0.5)
        except Fenced:
            link.world.counts["fenced transactions"] += 1
            transactions.doubtful = True
            operation.end(Outcome.FAIL)
            return
        except Doomed:
            transactions.doubtful = True
            await transactions.abort()
            operation.end(Outcome.FAIL)
            return
        if link.random.random() < ABANDONS:
            transactions.doubtful = True
            operation.end(Outcome.FAIL)
            await asyncio.sleep(link.random.uniform(0, self._plan.transaction_timeout_ms / 500))
            return
        outcome = await transactions.end(commit=link.random.random() >= ABORTS)
        operation.end(outcome, placed)


class Copier:
    """Copies a partition into another topic, exactly once: records and offsets in the same transactions."""

    def __init__(self, link: Link, plan: Plan, *, index: int, version: int) -> None:
        self._link = link
        self._plan = plan
        self._place = (EVENTS.name, index)
        self._process = link.recording.process(link.name)
        self._transactions = Transactions(link, plan, transactional_id=f"copier-{index}", version=version)
        self._fetcher = Fetcher(link, committed=True, sessions=False, process=self._process)
        self._sources: dict[int, int] = {}

    async def run(self) -> None:
        while not self._plan.stopping:
            if not await self._transactions.prepare() or not await self._find_position():
                continue
            committed = True
            while committed and not self._plan.stopping:
                seen = await self._fetcher.poll()
                for pairs in seen.values():
                    for start in range(0, len(pairs), COPIED_MAX):
                        committed = committed and await self._copy(pairs[start : start + COPIED_MAX])
                await asyncio.sleep(self._link.random.random() * PAUSE_MAX_S / self._plan.pace)

    async def _find_position(self) -> bool:
        """Go to what the group has committed, once no transaction of it is open."""
        try:
            found = await committed_offsets(self._link, COPY_GROUP, (EVENTS,), stable=True)
        except Disconnected:
            found = None
        if found is None:
            await self._link.backoff()
            return False
        self._fetcher.seek(self._place, max(found[key_of(*self._place)], 0))
        self._link.recording.add(Moved(process=self._process, keys=(key_of(*self._place),)))
        return True

    async def _copy(self, pairs: tuple[tuple[int, int], ...]) -> bool:
        """Copy some records in one transaction; whether it was committed."""
        link, recording, transactions = self._link, self._link.recording, self._transactions
        source = key_of(*self._place)
        index = LEDGER.any_index(link.random)
        key = key_of(LEDGER.name, index)
        values = recording.values(len(pairs))
        for value, (offset, _) in zip(values, pairs, strict=True):
            recording.sources[value] = (source, offset)
        operation = recording.begin("copy", self._process, [Send(key=key, value=value) for value in values])
        following = {self._place: pairs[-1][0] + 1}
        try:
            if not await transactions.prepare():
                operation.end(Outcome.FAIL)
                return False
            base = await transactions.send(LEDGER.name, index, values)
            await transactions.commit_offsets(COPY_GROUP, following)
            outcome = await transactions.end(commit=link.random.random() >= ABORTS)
        except Fenced:
            transactions.doubtful = True
            operation.end(Outcome.FAIL)
            return False
        except Doomed:
            transactions.doubtful = True
            await transactions.abort()
            operation.end(Outcome.FAIL)
            return False
        operation.end(outcome, [Send(key=key, value=value, offset=base + at) for at, value in enumerate(values)])
        if outcome is Outcome.OK:
            recording.commit_acknowledged(COPY_GROUP, {key_of(*place): at for place, at in following.items()})
        return outcome is Outcome.OK
