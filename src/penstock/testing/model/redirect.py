"""A random model of fewer active partitions: the rules of `penstock.partition.redirect` between brokers that fail.

One transactional producer writes to partition 2, which is drained into partition 0 or 1, resumes, and is drained again.
Each of the three partitions has a leader of its own and former leaders that go on serving until they learn better.
Links deliver in order, and a broken one may deliver what it held after its successor. Brokers know the metadata up to
some point of its history.

Drained, the partition may become a ghost: its records are gone, so is its log, and the leader of the target serves it.

After a run, every acknowledged record is in exactly one of the logs, no record is there twice, each log has a
producer's records in order, and every transaction has ended alike wherever it has records.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidTxnState, NotEnoughReplicas
from penstock.model.ids import CoordinatorEpoch, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from penstock.partition import redirect
from penstock.partition.producers import Duplicate, ProducerTable
from penstock.partition.redirect import AdoptedProducer, Drain, Source, Sources, derived_id
from penstock.partition.verification import TxnProof, VerificationGuard

SOURCE = 2
PRODUCER = ProducerId(7)
RECORDS = 30
IN_FLIGHT_MAX = 5
STEPS_FAULTY = 1_500
STEPS_MAX = 40_000
FORMER_MAX = 2
RESPONSES_LOST = 0.2


class Entry(NamedTuple):
    """A batch of one record, a marker, a fence or an adopted batch."""

    kind: str
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    txn: int = -1
    commit: bool = False


class Mode(NamedTuple):
    """What the metadata says of the partition that is drained and resumes."""

    name: str
    target: int = -1


NORMAL = Mode("normal")


class Metadata(NamedTuple):
    """One version of the metadata."""

    epochs: tuple[int, int, int]
    mode: Mode

    @property
    def shown(self) -> int:
        """The leader epoch of the source as clients and targets see it."""
        own = self.epochs[SOURCE]
        return own + self.epochs[self.mode.target] if self.mode.name == "ghost" else own


class Replica:
    """A leader of a partition, or one that was it and does not know."""

    def __init__(self, partition: int, log: list[Entry], high_watermark: int, epoch: int, known: int) -> None:
        self.partition = partition
        self.log = log
        self.high_watermark = high_watermark
        self.epoch = epoch
        self.epoch_start = len(log)
        self.known = known
        """The version of the metadata that its broker has."""
        self.leads = True
        self.producers = ProducerTable()
        for offset, entry in enumerate(log):
            self._record(offset, entry)
        self.drain: Drain | None = None
        self.resumes: int | None = None
        self.adopted = False
        self.asks = 0
        self.sources = Sources()
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.link = 0
        self.told = False
        """Whether the target knows what this drained partition knows of producers."""
        self.ending = False
        """Whether nothing is appended to the log any more, whose end was reported."""
        self.host: Replica | None = None
        """The leader of the target, for a ghost."""
        self.ghost: Replica | None = None
        """The ghost that this leader of a target serves."""

    def append(self, entry: Entry) -> int:
        self.log.append(entry)
        self._record(len(self.log) - 1, entry)
        return len(self.log)

    def _record(self, offset: int, entry: Entry) -> None:
        producer_id, epoch = ProducerId(entry.producer_id), ProducerEpoch(entry.epoch)
        if entry.kind in ("data", "empty"):
            transactional = entry.kind == "data"
            self.producers.record(producer_id, epoch, entry.sequence, 0, transactional, Offset(offset), 0, 0)
        elif entry.kind == "marker":
            self.producers.record_marker(
                producer_id, epoch, CoordinatorEpoch(0), Offset(offset), not entry.commit, 0, 0
            )

    def when_committed(self, end: int, then: Callable[[], None]) -> None:
        if end <= self.high_watermark:
            then()
        else:
            self.waiting.append((end, then))

    def commit(self, to: int) -> None:
        self.high_watermark = to
        ready = [then for end, then in self.waiting if end <= to]
        self.waiting = [(end, then) for end, then in self.waiting if end > to]
        for then in ready:
            then()


class Question(NamedTuple):
    """A verification on its way."""

    replica: Replica
    connection: int
    entry: Entry
    guard: VerificationGuard


class World:
    """The model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.history = [Metadata((0, 0, 0), NORMAL)]
        self.leaders = [Replica(index, [], 0, 0, 0) for index in range(3)]
        self.former: list[list[Replica]] = [[], [], []]
        self.net: dict[int, deque[tuple[Entry, bool]]] = {0: deque()}
        self.blocked: set[int] = set()
        self.links: dict[tuple[int, int, int], deque[Callable[[], None]]] = {}
        self.questions: list[Question] = []
        self.responses: list[tuple[Question, bool]] = []
        self.markers: list[Replica] = []
        self.connection = 0
        self.epoch = 0
        self.sequence = 0
        self.sent = 0
        self.txn = 0
        self.txn_state = "ongoing"
        """ongoing, ending (the coordinator writes its marker), or ended."""
        self.commits = True
        self.txn_records = 0
        self.in_flight: list[Entry] = []
        self.gone: list[list[Entry]] = []
        """Logs that were removed, whose records were read."""
        self.removed = [-1, -1, -1]
        """The leader epoch of each partition up to which its logs were removed."""
        self.reports: list[tuple[Replica, int]] = []
        """Ends of empty logs on their way to the controller."""
        self.fault: str | None = None
        self.acknowledged: set[tuple[int, int]] = set()
        self.decided: dict[int, bool] = {}
        self.steps = 0
        self.is_steady = seed % 5 == 1
        """Whether the producer commits all its transactions, in one epoch, and one partition is the only target."""
        self.bumps = seed % 2 == 0 and not self.is_steady
        """Whether each transaction has an epoch of its own, which its marker raises (transaction version 2)."""
        self.has_ghosts = seed % 4 >= 2
        """Whether the partition loses its log when it is drained and has no open transaction."""
        self.rests_drained = seed % 3 == 0
        """Whether the partition may stay drained at the end."""

    @property
    def metadata(self) -> Metadata:
        return self.history[-1]

    @property
    def is_faulty(self) -> bool:
        return self.steps < STEPS_FAULTY

    def run(self) -> str | None:
        """What went wrong, if anything did."""
        actions: list[tuple[float, Callable[[], None]]] = [
            (0.15, self.produce),
            (0.05, self.reconnect),
            (0.25, self.deliver),
            (0.1, self.replicate),
            (0.03, self.elect),
            (0.15, self.carry),
            (0.04, self.break_link),
            (0.06, self.verify),
            (0.06, self.end_txn),
            (0.05, self.write_marker),
            (0.04, self.learn),
            (0.04, self.resume),
        ]
        if self.has_ghosts:
            actions += [(0.2, self.end), (0.12, self.write_ghost)]
        weights = [weight for weight, _ in actions]
        works = [work for _, work in actions]
        while self.steps < STEPS_MAX and not self.is_finished():
            self.steps += 1
            self.random.choices(works, weights)[0]()
        return self.verdict()

    def is_finished(self) -> bool:
        quiet = (
            not any(self.net.values()) and not any(self.links.values()) and not self.questions and not self.responses
        )
        return (
            not self.is_faulty
            and self.sent >= RECORDS
            and self.txn_state == "ended"
            and quiet
            and self.metadata.mode.name != "resumes"
            and not self.reports
            and all(each.high_watermark == len(each.log) for each in self.leaders)
        )

    # The producer and its coordinator

    def produce(self) -> None:
        if self.txn_state == "ended" and self.sent < RECORDS:
            self.txn += 1
            self.txn_state, self.txn_records = "ongoing", 0
        if self.txn_state != "ongoing" or self.sent >= RECORDS:
            return
        if self.in_flight and self.sequence - self.in_flight[0].sequence >= IN_FLIGHT_MAX:
            return
        entry = Entry("data", PRODUCER, self.epoch, self.sequence, self.txn)
        self.sequence += 1
        self.sent += 1
        self.txn_records += 1
        self.in_flight.append(entry)
        self.net[self.connection].append((entry, self.is_faulty and self.random.random() < 0.25))

    def reconnect(self) -> None:
        if self.in_flight:
            self.connection += 1
            self.net[self.connection] = deque((entry, False) for entry in self.in_flight)

    def end_txn(self) -> None:
        if self.txn_state != "ongoing" or not self.txn_records:
            return
        gives_up = self.is_faulty and not self.is_steady and self.random.random() < 0.3
        if self.in_flight and not gives_up:
            return
        self.commits = self.is_steady or (not self.in_flight and self.random.random() < 0.7)
        self.decided[self.txn] = self.commits
        self.txn_state = "ending"
        if self.in_flight:
            # The producer gives up on them, and begins again in another epoch.
            self.in_flight.clear()

    def write_marker(self) -> None:
        """The coordinator sends its marker to the leader, until one responds that it is committed."""
        if self.txn_state == "ending":
            former = self.former[SOURCE]
            stale = bool(former) and self.is_faulty and self.random.random() < 0.2
            at = self.random.choice(former) if stale else self.source
            if at is not None:
                self.mark(at)

    def mark(self, at: Replica) -> None:
        txn, epoch = self.txn, self.epoch
        entry = Entry("marker", PRODUCER, epoch + self.bumps, -1, txn, self.commits)
        waits = {"own", "target"}

        def done(part: str) -> Callable[[], None]:
            def committed() -> None:
                waits.discard(part)
                if not waits and self.txn == txn and self.txn_state == "ending":
                    self.marked()

            return committed

        target = at.resumes if at.drain is None else at.drain.target
        try:
            at.producers.check_marker(PRODUCER, ProducerEpoch(entry.epoch), CoordinatorEpoch(0), bumps=self.bumps)
        except BrokerError:
            return
        if at.ending:
            return
        if at.host is None:
            self.mark_own(at, entry, done("own"))
        else:
            waits.discard("own")
        if target is None:
            waits.discard("target")
            return
        if at.drain is not None:
            number = at.drain.ended(at.producers, PRODUCER)
        else:
            at.asks += 1
            number = at.asks
        self.send(at, target, "marker", number, lambda to: self.mark_target(at, to, entry, done("target")))

    def mark_own(self, at: Replica, entry: Entry, done: Callable[[], None]) -> None:
        """In the log of the partition itself too, also where no transaction is open: only then is it known to lead."""
        at.when_committed(at.append(entry), done)

    def mark_target(self, source: Replica, target: Replica, entry: Entry, done: Callable[[], None]) -> None:
        producer_id = derived_id(PRODUCER, SOURCE)
        target.producers.check_marker(producer_id, ProducerEpoch(entry.epoch), CoordinatorEpoch(0), bumps=self.bumps)
        target.when_committed(target.append(entry._replace(producer_id=producer_id)), done)

    def marked(self) -> None:
        self.txn_state = "ended"
        if self.bumps or not self.commits:
            # What an aborting producer gave up on may be missing, so its sequences cannot go on.
            self.epoch += 1
            self.sequence = 0

    def acknowledge(self, entry: Entry) -> None:
        if self.random.random() < RESPONSES_LOST and self.is_faulty:
            return
        self.acknowledged.add((entry.epoch, entry.sequence))
        if entry in self.in_flight:
            self.in_flight.remove(entry)

    # The leader of the partition

    def deliver(self) -> None:
        open_ = [each for each, queue in self.net.items() if queue and each not in self.blocked]
        if not open_:
            return
        connection = self.random.choice(open_)
        entry, stale = self.net[connection].popleft()
        former = self.former[SOURCE]
        at = self.random.choice(former) if stale and former else self.source
        if at is None:
            return
        producer_id, epoch = ProducerId(entry.producer_id), ProducerEpoch(entry.epoch)
        is_open = (
            at.drain.is_verified(at.producers, producer_id, epoch)
            if at.drain is not None
            else at.producers.is_open(producer_id, epoch)
        )
        if is_open:
            self.handle(at, entry, TxnProof())
            return
        guard = at.producers.guards.begin(producer_id, epoch, entry.sequence, 0)
        self.questions.append(Question(at, connection, entry, guard))
        self.blocked.add(connection)

    def verify(self) -> None:
        """The coordinator responds to a question, or a leader gets the response."""
        if self.questions and (not self.responses or self.random.random() < 0.5):
            question = self.questions.pop(self.random.randrange(len(self.questions)))
            ongoing = self.txn_state == "ongoing" and self.epoch == question.entry.epoch
            self.responses.append((question, ongoing))
        elif self.responses:
            question, ongoing = self.responses.pop(self.random.randrange(len(self.responses)))
            self.blocked.discard(question.connection)
            error = None if ongoing else InvalidTxnState()
            proof = TxnProof(question.guard, question.entry.epoch, adds=True, error=error)
            self.handle(question.replica, question.entry, proof)

    def handle(self, at: Replica, entry: Entry, proof: TxnProof) -> None:
        """Produce at a leader; an error means that the producer sends again."""
        producer_id, epoch = ProducerId(entry.producer_id), ProducerEpoch(entry.epoch)
        try:
            if at.drain is not None:
                check_ready(at)
                found = at.drain.hand_over(
                    at.producers, producer_id, epoch, entry.sequence, 0, transactional=True, proof=proof
                )
                if isinstance(found, Duplicate):
                    at.when_committed(found.last_offset + 1, lambda: self.acknowledge(entry))
                else:
                    self.send(at, at.drain.target, "data", found.number, lambda to: self.accept(to, entry, found))
                return
            if at.resumes is not None and not at.adopted:
                raise NotEnoughReplicas()
            first = not at.producers.is_open(producer_id, epoch)
            if first and proof.error is not None:
                raise proof.error
            duplicate = at.producers.check(producer_id, epoch, entry.sequence, 0, True)
            if first and duplicate is None:
                at.producers.check_first(producer_id, epoch, entry.sequence, proof)
        except BrokerError:
            return
        end = at.append(entry) if duplicate is None else duplicate.last_offset + 1
        at.when_committed(end, lambda: self.acknowledge(entry))

    # Between the leaders

    def send(self, at: Replica, target: int, kind: str, number: int, work: Callable[[Replica], Any]) -> None:
        """Send to the leader of the target that this broker knows; it refuses what is not for its epoch."""
        epoch = self.history[at.known].epochs[target]
        source_epoch = at.epoch

        def arrive() -> None:
            to = next(
                (each for each in (self.leaders[target], *self.former[target]) if each.epoch == epoch),
                None,
            )
            if to is None:
                return
            known = LeaderEpoch(self.known_epoch(to))
            source = Source(SOURCE, LeaderEpoch(source_epoch), LeaderEpoch(epoch), known)
            try:
                if kind == "fence":
                    to.sources.fence(source, number)
                else:
                    to.sources.check(source, number, derived_id(PRODUCER, SOURCE), ends=kind == "marker")
                work(to)
            except BrokerError:
                return

        if at.host is not None:
            arrive()
            return
        self.links.setdefault((at.epoch, target, at.link), deque()).append(arrive)

    def known_epoch(self, to: Replica) -> int:
        """The leader epoch of the source in the metadata of a target's broker."""
        return self.history[to.known].shown

    def accept(self, target: Replica, entry: Entry, found: redirect.Handover) -> None:
        duplicate = target.producers.check_redirected(
            found.producer_id,
            ProducerEpoch(entry.epoch),
            entry.sequence,
            0,
            True,
            first_sequence=found.first_sequence,
            begins_at=found.begins_at,
        )
        if duplicate is None:
            end = target.append(entry._replace(producer_id=found.producer_id))
        else:
            end = duplicate.last_offset + 1
        target.when_committed(end, lambda: self.acknowledge(entry))

    def carry(self) -> None:
        full = [key for key, queue in self.links.items() if queue]
        if full:
            self.links[self.random.choice(full)].popleft()()

    def break_link(self) -> None:
        """A leader connects again. What the former link holds may still arrive, or is lost."""
        if self.is_faulty:
            at = self.random.choice([self.leaders[SOURCE], *self.former[SOURCE]])
            for (epoch, _, link), queue in self.links.items():
                if (epoch, link) == (at.epoch, at.link) and self.random.random() < 0.5:
                    queue.clear()
            at.link += 1

    # The cluster

    def replicate(self) -> None:
        at = self.random.choice(self.leaders)
        if len(at.log) > at.high_watermark:
            at.commit(self.random.randrange(at.high_watermark + 1, len(at.log) + 1))

    def learn(self) -> None:
        """A broker's metadata catches up."""
        every = [*self.leaders, *(each for former in self.former for each in former)]
        at = self.random.choice(every)
        at.known = self.random.randrange(at.known, len(self.history)) if self.is_faulty else len(self.history) - 1
        if at.resumes is not None and at.leads and self.history[at.known].mode == NORMAL:
            at.resumes = None

    def elect(self) -> None:
        """Another replica leads; of the partition that is drained perhaps in another mode."""
        if not self.is_faulty:
            if (
                self.metadata.mode.name in ("drained", "ghost")
                and not self.rests_drained
                and self.random.random() < 0.05
            ):
                self.elect_one(SOURCE, Mode("resumes", self.metadata.mode.target))
            return
        partition = self.random.randrange(3)
        mode = self.metadata.mode
        if partition == SOURCE and self.random.random() < 0.6:
            if mode == NORMAL:
                mode = Mode("drained", 0 if self.is_steady else self.random.randrange(2))
            elif mode.name in ("drained", "ghost"):
                mode = Mode("resumes", mode.target)
        if partition != SOURCE or mode.name != "ghost":
            self.elect_one(partition, mode)

    def elect_one(self, partition: int, mode: Mode) -> None:
        before = self.leaders[partition]
        source = before.log
        # Those of before a ghost have lost their logs.
        former = [each for each in self.former[partition] if each.epoch > self.removed[partition]]
        if before.high_watermark <= before.epoch_start and former and self.random.random() < 0.5:
            # No follower needs to have heard of the present leader, so one may have more of a former one than it.
            older = self.random.choice(former)
            if older.log[: before.high_watermark] == before.log[: before.high_watermark]:
                source = older.log
        kept = self.random.randrange(before.high_watermark, len(source) + 1)
        epochs = list(self.metadata.epochs)
        epochs[partition] = (self.metadata.shown if partition == SOURCE else epochs[partition]) + 1
        self.history.append(Metadata((epochs[0], epochs[1], epochs[2]), mode))
        after = Replica(partition, source[:kept], before.high_watermark, epochs[partition], len(self.history) - 1)
        if partition == SOURCE and mode.name == "drained":
            after.drain = Drain(partition=SOURCE, target=mode.target, leader_epoch=LeaderEpoch(after.epoch))
        elif partition == SOURCE and mode.name == "resumes":
            after.resumes = mode.target
        before.leads = False
        self.former[partition] = [*self.former[partition], before][-FORMER_MAX:]
        self.leaders[partition] = after

    # Ghosts

    @property
    def source(self) -> Replica | None:
        """What leads the partition that is drained: the ghost, if the metadata says so and its leader has heard it."""
        mode = self.metadata.mode
        if mode.name != "ghost":
            return self.leaders[SOURCE]
        return self.ghost_at(self.leaders[mode.target])

    def ghost_at(self, host: Replica) -> Replica | None:
        """The ghost that a leader of the target serves, as far as its broker's metadata goes."""
        known = self.history[host.known]
        if (
            known.mode.name != "ghost"
            or known.mode.target != host.partition
            or known.epochs[host.partition] != host.epoch
        ):
            return None
        if host.ghost is None or host.ghost.epoch != known.shown:
            ghost = host.ghost = Replica(SOURCE, [], 0, known.shown, host.known)
            ghost.host = host
            ghost.drain = Drain(
                partition=SOURCE,
                target=host.partition,
                leader_epoch=LeaderEpoch(known.shown),
                numbers=host.sources.numbers(SOURCE),
            )
            ghost.drain.barrier = Offset(0)
        host.ghost.known = host.known
        return host.ghost

    def end(self) -> None:
        """The leader of the drained partition, whose records are gone, reports the end of its log."""
        former = self.former[SOURCE]
        at = self.random.choice(former) if former and self.random.random() < 0.2 else self.leaders[SOURCE]
        drain = at.drain
        if drain is None or at.host is not None:
            return
        try:
            check_ready(at)
        except NotEnoughReplicas:
            return
        if not self.may_end(at):
            return
        if not at.told:
            known = list(redirect.producers_for_target(at.producers, SOURCE, [each for each, _ in at.producers]))

            def told() -> None:
                at.told = True

            self.send(at, drain.target, "producers", drain.next_number(), lambda to: self.tell(to, known, told))
            return
        self.freeze(at)
        end = len(at.log)
        at.when_committed(end, lambda: self.reports.append((at, end)))

    def may_end(self, at: Replica) -> bool:
        """Whether no transaction is open in the log."""
        return at.producers.first_unstable is None

    def tell(self, target: Replica, known: list[AdoptedProducer], then: Callable[[], None]) -> None:
        """The target appends empty batches for those that only the drained partition has."""
        for producer in known:
            for batch in redirect.adoptable(target.producers, producer):
                target.append(Entry("empty", batch.producer_id, batch.epoch, batch.base_sequence))
        target.when_committed(len(target.log), then)

    def freeze(self, at: Replica) -> None:
        """Append nothing more: the report may be written although its response is lost."""
        at.ending = True

    def write_ghost(self) -> None:
        """The controller writes what a leader reported, if that still leads; or the report is lost."""
        if not self.reports:
            return
        at, end = self.reports.pop(self.random.randrange(len(self.reports)))
        if self.leaders[SOURCE] is not at or self.metadata.mode.name != "drained":
            return
        if self.is_faulty and self.random.random() < 0.2:
            return
        if at.high_watermark > end:
            self.fault = "offsets used again"
        self.gone.append(at.log[:end])
        first, second, own = self.metadata.epochs
        epochs = (first, second, own + 1)
        self.history.append(Metadata(epochs, Mode("ghost", self.metadata.mode.target)))
        at.leads = False
        self.removed[SOURCE] = at.epoch
        self.former[SOURCE] = [*self.former[SOURCE], at][-FORMER_MAX:]
        self.leaders[SOURCE] = Replica(SOURCE, [], 0, epochs[SOURCE], len(self.history) - 1)

    def resume(self) -> None:
        """A leader that resumes has its target append a fence, and asks again while transactions are open there."""
        at = self.leaders[SOURCE]
        if at.resumes is None:
            return
        if self.metadata.mode == NORMAL:
            return
        target = at.resumes
        at.asks += 1
        self.send(at, target, "fence", at.asks, lambda to: self.fence(at, to))

    def fence(self, source: Replica, target: Replica) -> None:
        # Of now, and not of when the fence is committed: a marker after it may get lost.
        known = redirect.producers_of(target.producers, SOURCE)
        target.when_committed(target.append(Entry("fence")), lambda: self.adopt(source, known))

    def adopt(self, at: Replica, known: list[AdoptedProducer]) -> None:
        if at.resumes is None:
            return
        if not at.adopted:
            for producer in known:
                for batch in redirect.adoptable(at.producers, producer):
                    at.append(Entry("empty", batch.producer_id, batch.epoch, batch.base_sequence))
            at.adopted = True
        if any(producer.open for producer in known):
            return
        at.when_committed(len(at.log), lambda: self.finish(at))

    def finish(self, at: Replica) -> None:
        """The controller writes that the partition has resumed."""
        if self.leaders[SOURCE] is at and self.metadata.mode.name == "resumes":
            self.history.append(Metadata(self.metadata.epochs, NORMAL))

    # After the run

    def verdict(self) -> str | None:
        if not self.is_finished():
            return "stuck"
        if self.fault is not None:
            return self.fault
        logs = [each.log for each in self.leaders]
        every = [*self.gone, *logs]
        found = [(entry.epoch, entry.sequence) for log in every for entry in log if entry.kind == "data"]
        if len(found) != len(set(found)):
            return "doubled"
        if self.acknowledged - set(found):
            return "lost"
        for epoch in range(self.epoch + 1):
            sequences = sorted(sequence for each, sequence in found if each == epoch)
            if sequences != list(range(len(sequences))):
                return "hole"
        for at, log in zip(self.leaders, logs, strict=True):
            order = [(entry.epoch, entry.sequence) for entry in log if entry.kind == "data"]
            if order != sorted(order):
                return "order"
            if at.producers.first_unstable is not None and any(e.txn_first_offset >= 0 for _, e in at.producers):
                return "hanging transaction"
            wrong = self.wrong_end(log)
            if wrong is not None:
                return wrong
        return None

    def wrong_end(self, log: list[Entry]) -> str | None:
        open_: dict[int, set[int]] = {}
        for entry in log:
            if entry.kind == "data":
                open_.setdefault(entry.producer_id, set()).add(entry.txn)
            elif entry.kind == "marker":
                for txn in open_.pop(entry.producer_id, set()):
                    if txn != entry.txn:
                        return "transaction ended by the marker of another"
        return None


def check_ready(at: Replica) -> None:
    """The first redirect waits until a record of the leader's epoch is committed."""
    assert at.drain is not None, "only a drained partition hands over"
    if at.drain.barrier is None:
        at.drain.barrier = Offset(at.append(Entry("barrier")))
    at.drain.check_ready(Offset(at.high_watermark))


def explore(seeds: range) -> dict[str, list[int]]:
    """Run many seeds; the seeds of each anomaly."""
    found: dict[str, list[int]] = {}
    for seed in seeds:
        anomaly = World(seed).run()
        if anomaly is not None:
            found.setdefault(anomaly, []).append(seed)
    return found
