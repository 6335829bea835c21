"""Transactions under random producers, zombies, retries, timeouts, markers, refusals, crashes and time."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.transactions.rig import A0, A1, B0, TIMEOUT_MS, TV1, TV2, Producer, Rig, written

from penstock.coordinator.step import Reply
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable
from penstock.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    PartitionsAdded,
    PartitionsVerified,
    ProducerInitialized,
    TransactionEnded,
    TxnCommand,
    VerifyPartitions,
)
from penstock.transactions.effects import WriteMarkers
from penstock.transactions.events import TransactionForgotten, TransactionSaved
from penstock.transactions.shard import TxnShard
from penstock.transactions.state import NO_EPOCH, NO_PRODUCER_ID, PRODUCER_EPOCH_MAX, Transaction, TxnState
from penstock.transactions.timers import CompletionRetry, ExpiryCheck, LateCheck

NAMES = st.sampled_from(["t", "t", "t", "u"])
VERSIONS = st.sampled_from([TV1, TV2, TV2])
PARTITIONS = st.lists(st.sampled_from([A0, A1, B0]), max_size=3, unique=True).map(tuple)
CHOICES = st.integers(0, 7)
DAY_MS = 86_400_000

MAY_FOLLOW = {
    TxnState.EMPTY: {TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT},
    TxnState.ONGOING: {TxnState.EMPTY, TxnState.ONGOING, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT},
    TxnState.PREPARE_COMMIT: {TxnState.ONGOING},
    TxnState.PREPARE_ABORT: {TxnState.ONGOING, TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT},
    TxnState.COMPLETE_COMMIT: {TxnState.PREPARE_COMMIT},
    TxnState.COMPLETE_ABORT: {TxnState.PREPARE_ABORT},
}


def transactions(shard: TxnShard) -> dict[str, Transaction]:
    return dict(shard._transactions)


class Transactions(RuleBasedStateMachine):
    """Clients that send any request at any time, with any producer id and epoch that they ever received."""

    @initialize()
    def start(self) -> None:
        self.rig = Rig()
        self.known_producers: dict[str, list[Producer]] = {"t": [(7, 0)], "u": [(7, 0)]}
        """The producer ids and epochs that clients use, the latest last; the first was never assigned."""
        self.commands: dict[int, TxnCommand] = {}
        self.checked: set[int] = set()
        self.marked: list[WriteMarkers] = []
        """Written markers, which may be reported again."""
        for name in self.known_producers:
            self.init(name, TIMEOUT_MS)

    # Requests of clients

    def producer(self, name: str, back: int) -> Producer:
        """Usually the latest producer, sometimes a zombie."""
        known = self.known_producers[name]
        return known[-1 - min(max(back - 3, 0), len(known) - 1)]

    def ask(self, command: TxnCommand) -> None:
        before = transactions(self.rig.shard)
        ticket = self.rig.send(command)
        self.commands[ticket] = command
        self.check_stale(command, before)
        self.listen()

    def check_stale(self, command: TxnCommand, before: dict[str, Transaction]) -> None:
        """A command with an older epoch or another producer id changes nothing; no command changes another id."""
        after = transactions(self.rig.shard)
        name = command.transactional_id
        old = before.pop(name, None)
        new = after.pop(name, None)
        assert after == before, "a command changed another id than its own"
        if isinstance(command, VerifyPartitions):
            assert new == old
        if old is None or command.producer_id == NO_PRODUCER_ID:
            return
        if (command.producer_id, command.epoch) == (old.producer_id, old.epoch):
            return
        retries = isinstance(command, InitProducer) and command.epoch == old.last_epoch and old.state.resting
        fenced_last = (old.producer_id, old.epoch, old.state) == (
            command.producer_id,
            PRODUCER_EPOCH_MAX,
            TxnState.COMPLETE_ABORT,
        )
        if fenced_last and new is not None and new.producer_id != old.producer_id:
            # It timed out with the last epoch that producers get and was not replaced: it gets a new producer id.
            assert retries or (isinstance(command, EndTransaction) and not command.commit)
            assert (command.epoch, new.epoch, new.state.resting) == (PRODUCER_EPOCH_MAX - 1, 0, True)
        elif retries and new is not None:
            assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch)
        else:
            assert new == old, f"{command} changed {old} to {new}"

    @rule(name=NAMES, timeout_ms=st.sampled_from([TIMEOUT_MS, 1000]))
    def init(self, name: str, timeout_ms: int) -> None:
        self.ask(InitProducer(transactional_id=name, timeout_ms=timeout_ms))

    @rule(name=NAMES, back=CHOICES)
    def init_again(self, name: str, back: int) -> None:
        producer_id, epoch = self.producer(name, back)
        self.ask(
            InitProducer(transactional_id=name, timeout_ms=TIMEOUT_MS, producer_id=producer_id, epoch=epoch),
        )

    @rule(name=NAMES, back=CHOICES, partitions=PARTITIONS, version=VERSIONS)
    def add(self, name: str, back: int, partitions: tuple, version: int) -> None:  # type: ignore[type-arg]
        producer_id, epoch = self.producer(name, back)
        before = transactions(self.rig.shard).get(name)
        ticket = self.rig.tickets + 1
        self.ask(
            AddPartitions(
                transactional_id=name,
                producer_id=producer_id,
                epoch=epoch,
                partitions=partitions,
                transaction_version=version,
            )
        )
        if isinstance(self.rig.replies.get(ticket), PartitionsAdded):
            assert before is not None
            now = self.rig.transaction(name)
            assert now.state is TxnState.ONGOING
            had = before.partitions if before.state is TxnState.ONGOING else frozenset()
            assert now.partitions == had | set(partitions)

    @rule(name=NAMES, back=CHOICES, partitions=PARTITIONS)
    def verify(self, name: str, back: int, partitions: tuple) -> None:  # type: ignore[type-arg]
        producer_id, epoch = self.producer(name, back)
        self.ask(VerifyPartitions(transactional_id=name, producer_id=producer_id, epoch=epoch, partitions=partitions))

    @rule(name=NAMES, back=CHOICES, commit=st.booleans(), version=VERSIONS)
    def end(self, name: str, back: int, commit: bool, version: int) -> None:
        producer_id, epoch = self.producer(name, back)
        self.ask(
            EndTransaction(
                transactional_id=name,
                producer_id=producer_id,
                epoch=epoch,
                commit=commit,
                transaction_version=version,
            )
        )

    @rule(name=NAMES, partitions=PARTITIONS, version=VERSIONS, commit=st.booleans(), again=st.booleans())
    def work(self, name: str, partitions: tuple, version: int, commit: bool, again: bool) -> None:  # type: ignore[type-arg]
        """A whole transaction of a healthy producer, which retries if its connection breaks."""
        for partition in partitions:
            self.add(name, 0, (partition,), version)
        producer_id, epoch = self.producer(name, 0)
        end = EndTransaction(
            transactional_id=name,
            producer_id=producer_id,
            epoch=epoch,
            commit=commit,
            transaction_version=version,
        )
        for _ in range(2 if again else 1):
            self.ask(end)

    # Time and faults

    @precondition(lambda self: self.rig.markers)
    @rule(which=CHOICES)
    def write_markers(self, which: int) -> None:
        markers = self.rig.markers.pop(which % len(self.rig.markers))
        self.marked.append(markers)
        self.ask(written(markers))

    @precondition(lambda self: self.marked)
    @rule(which=CHOICES)
    def report_markers_again(self, which: int) -> None:
        """Only markers of the current context, as a context dies with its shard."""
        markers = self.marked[which % len(self.marked)]
        if markers.coordinator_epoch == self.rig.coordinator_epoch:
            self.ask(written(markers))

    @rule(duration_ms=st.sampled_from([100, 5000, 20_000, TIMEOUT_MS, TIMEOUT_MS + 20_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.rig.pass_ms(duration_ms)
        self.listen()

    @precondition(lambda self: self.rig.refusing is None and not self.rig.holding)
    @rule(days=st.sampled_from([1, 1, 1, 8]))
    def pass_days(self, days: int) -> None:
        """The machine slept: every due timer expires once."""
        self.rig.now_ms += days * DAY_MS
        self.rig.pass_ms(0)
        self.listen()

    @rule(
        refuses=st.sampled_from([True, False, False, False]),
        holds=st.sampled_from([True, False, False]),
        ids_left=st.sampled_from([0, 1, 100, 100]),
    )
    def change_the_weather(self, refuses: bool, holds: bool, ids_left: int) -> None:
        """The log refuses or accepts appends, and commits late or at once; producer ids run out or are available."""
        self.rig.commit()
        self.rig.refusing = CoordinatorNotAvailable() if refuses else None
        self.rig.holding = holds
        self.rig.ids_left = ids_left
        self.listen()

    @rule(compacted=st.booleans())
    def crash(self, compacted: bool) -> None:
        self.rig.crash(compacted=compacted)
        self.listen()

    @precondition(lambda self: self.rig.refusing is None and not self.rig.holding)
    @rule(name=NAMES)
    def use_up_epochs(self, name: str) -> None:
        found = transactions(self.rig.shard).get(name)
        if found is not None and found.state.resting and found.epoch < 32_764:
            used_up = replace(found, epoch=32_765, last_epoch=NO_EPOCH, state=TxnState.EMPTY)
            self.rig.run_event(TransactionSaved(used_up))
            self.known_producers[name].append((found.producer_id, 32_765))

    # Responses

    def listen(self) -> None:
        for ticket, reply in list(self.rig.replies.items()):
            if ticket not in self.checked:
                self.checked.add(ticket)
                self.hear(self.commands[ticket], reply)

    def hear(self, command: TxnCommand, reply: Reply | BrokerError) -> None:
        name = command.transactional_id
        if isinstance(reply, ProducerInitialized):
            producer = (reply.producer_id, reply.epoch)
            assert reply.epoch < PRODUCER_EPOCH_MAX, "the last epoch was given away"
            assert isinstance(command, InitProducer)
            if command.producer_id == NO_PRODUCER_ID:
                for known in self.known_producers.values():
                    assert producer not in known, f"{producer} is the producer of two"
            self.known_producers[name].append(producer)
        elif isinstance(reply, TransactionEnded):
            assert isinstance(command, EndTransaction)
            assert reply.epoch < PRODUCER_EPOCH_MAX, "the last epoch was given away"
            if command.transaction_version == TV2:
                self.check_outcome(command)
            self.known_producers[name].append((reply.producer_id, reply.epoch))
        elif not isinstance(reply, BrokerError):
            expected = {AddPartitions: "PartitionsAdded", VerifyPartitions: "PartitionsVerified"}
            assert type(reply).__name__ == expected.get(type(command), "TransactionCompleted")
            assert isinstance(command, AddPartitions | VerifyPartitions | MarkersWritten)
            assert isinstance(reply, PartitionsVerified) is isinstance(command, VerifyPartitions)

    def check_outcome(self, command: EndTransaction) -> None:
        """A producer's response agrees with the log.

        Transactions of the first version stay in one epoch. Where some followed in the epoch that this one ended with,
        the last of them decides the response to a late request, as in Kafka.
        """
        prepared = [
            event.transaction
            for event in self.rig.log[: self.rig.committed]
            if isinstance(event, TransactionSaved)
            and event.transaction.state.prepared
            and (event.transaction.producer_id, event.transaction.epoch) == (command.producer_id, command.epoch + 1)
        ]
        if any(found.version == TV1 for found in prepared):
            prepared = prepared[-1:]
        decided = {found.state is TxnState.PREPARE_COMMIT for found in prepared}
        assert decided == {command.commit}, f"{command} succeeded, but the decision was {decided}"

    # Invariants

    @invariant()
    def every_request_has_one_response(self) -> None:
        waits = {response.ticket for step in self.rig.held for response in step.responses}
        asked = set(range(1, self.rig.tickets + 1))
        assert self.rig.replies.keys() == asked - self.rig.dropped - waits

    @invariant()
    def the_log_tells_a_story_that_can_be(self) -> None:
        """State transitions are valid, decisions are final, and epochs never go back."""
        reported = {(markers.transactional_id, markers.producer_id, markers.epoch) for markers in self.marked}
        last: dict[str, Transaction] = {}
        for event in self.rig.log:
            if not isinstance(event, TransactionSaved):
                assert isinstance(event, TransactionForgotten)
                old = last.pop(event.transactional_id)
                assert old.state.resting, f"{old} was forgotten"
                continue
            new = event.transaction
            old_or_none = last.get(new.transactional_id)
            last[new.transactional_id] = new
            if old_or_none is None:
                assert new.state is TxnState.EMPTY
                continue
            old = old_or_none
            assert old.state in MAY_FOLLOW[new.state], f"{old.state} is followed by {new.state}"
            if new.producer_id == old.producer_id:
                assert new.epoch >= old.epoch
            else:
                assert new.producer_id > old.producer_id, "an old producer id came back"
                assert new.epoch == 0
            if old.state.prepared and old.partitions:
                assert (new.transactional_id, old.producer_id, old.epoch) in reported, "complete without markers"
            if new.state.prepared and old.state is TxnState.ONGOING:
                assert new.partitions == old.partitions
            elif new.state is not TxnState.ONGOING:
                assert not new.partitions

    @invariant()
    def replaying_the_log_gives_the_same_state(self) -> None:
        for events in (self.rig.log, self.rig.compacted()):
            again = TxnShard(self.rig.config, lambda: None, 0)
            for event in events:
                again.apply(event)
            assert {name: forgetful(found) for name, found in transactions(again).items()} == {
                name: forgetful(found) for name, found in transactions(self.rig.shard).items()
            }
            assert set(again._open) == set(self.rig.shard._open)

    @invariant()
    def timers_run_only_for_a_reason(self) -> None:
        timers = set(self.rig.timers)
        assert ExpiryCheck() in timers
        assert (LateCheck() in timers) is self.rig.shard._late_check_set
        assert LateCheck() in timers or not self.rig.shard._open
        for key in timers - {ExpiryCheck(), LateCheck()}:
            assert isinstance(key, CompletionRetry)

    @invariant()
    def markers_are_asked_for_where_the_outcome_is_decided(self) -> None:
        """Every committed decision, and no other, leads to markers, for exactly its partitions."""
        decided = [
            event.transaction
            for event in self.rig.log[: self.rig.committed]
            if isinstance(event, TransactionSaved) and event.transaction.state.prepared
        ]
        for markers in self.rig.markers:
            assert any(
                (one.transactional_id, one.producer_id, one.epoch)
                == (markers.transactional_id, markers.producer_id, markers.epoch)
                and set(markers.partitions) == one.partitions
                and markers.commit is (one.state is TxnState.PREPARE_COMMIT)
                and markers.transaction_version == one.version
                and markers.coordinator_epoch == self.rig.coordinator_epoch
                for one in decided
            )
        asked = {(markers.transactional_id, markers.producer_id, markers.epoch) for markers in self.rig.markers}
        asked |= {
            (effect.transactional_id, effect.producer_id, effect.epoch)
            for step in self.rig.held
            for effect in step.effects
            if isinstance(effect, WriteMarkers)
        }
        asked |= {
            (key.transactional_id, key.producer_id, key.epoch)
            for key in self.rig.timers
            if isinstance(key, CompletionRetry)
        }
        for name, found in transactions(self.rig.shard).items():
            if found.state.prepared:
                assert (name, found.producer_id, found.epoch) in asked, f"{found} will never be completed"

    def teardown(self) -> None:
        """If no append fails and time passes, every transaction ends and no timer is left."""
        if not hasattr(self, "rig"):
            return
        self.rig.refusing, self.rig.holding = None, False
        self.rig.ids_left = 1000
        self.rig.commit()
        for _ in range(2):
            self.rig.pass_ms(TIMEOUT_MS + 20_000)
            self.rig.write_markers()
        for name, found in transactions(self.rig.shard).items():
            assert found.state.resting, f"{name} is stuck in {found.state}"
        self.rig.pass_ms(20_000)
        assert set(self.rig.timers) == {ExpiryCheck()}


def forgetful(transaction: Transaction) -> Transaction:
    """The transaction without the fields that a record does not have."""
    return replace(transaction, last_epoch=NO_EPOCH)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
