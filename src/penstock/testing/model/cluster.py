"""The cluster of the model: brokers, their store and network, and every step that a schedule can take.

Everything that happens is a step, and every choice of a step comes from its number, so a schedule can be repeated, and
shortened by leaving steps out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.controller.elections import LogEnd
from penstock.controller.reassignments import Reassignment
from penstock.metadata.operations import Create
from penstock.metadata.records import (
    CHANGES,
    CLUSTER,
    CONTROLLER_EPOCH,
    DIRECTORIES,
    PARTITIONS,
    PARTITIONS_MIGRATED,
    Admission,
    admission_path,
    chunk_path,
    pack_admission,
    pack_partitions,
    pack_topic,
    topic_path,
)
from penstock.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicId, TopicPartition
from penstock.model.topic import NO_LEADER, PartitionState, TopicState
from penstock.partition.role import Offline
from penstock.storage.registration import RegistrationRecord
from penstock.testing.model.disk import Disk
from penstock.testing.model.history import History
from penstock.testing.model.network import Message, Network
from penstock.testing.model.process import Process
from penstock.testing.model.replica import FetchRequest, FetchResponse, ModelReplica
from penstock.testing.model.settings import Settings
from penstock.testing.model.store import Server

TOPIC = "t"
TOPIC_ID = TopicId(b"0123456789abcdef")
ADMITTED_FIRST = BrokerEpoch(1)
"""The epoch that every broker was admitted with before a run begins."""

STEP_MS = 40
LAG_MS_MAX = 100
SLOW_EVERY = 12
RECORDS_MAX = 14
"""In a partition before it is healed: short logs are read more easily."""


class Cluster:
    """A cluster at one moment of a run."""

    topic = TOPIC

    def __init__(self, settings: Settings, trace: list[str] | None = None) -> None:
        self.settings = settings
        self.history = History(trace)
        self.network = Network()
        self.server = Server(self.history.committed_metadata)
        self.now_ms = 1_000
        self.disks = {
            broker: Disk(
                broker_id=broker,
                directory=f"directory-{broker}",
                registration=RegistrationRecord(admitted_before=ADMITTED_FIRST),
            )
            for broker in settings.brokers
        }
        self.processes: dict[BrokerId, Process] = {}
        self.slow = settings.slow
        self.in_sync_min_wanted: int | None = None
        self.reassignment_wanted: Reassignment | None = None
        self._lives = dict.fromkeys(settings.brokers, 0)
        self._values = 0
        self._slow_count = 0
        self._directories = 0
        self._bootstrap()
        for broker in sorted(settings.brokers, key=lambda broker: broker != settings.first):
            self.start(broker)

    def _bootstrap(self) -> None:
        self.history.name_topic(TOPIC_ID, TOPIC)
        partitions = tuple(
            PartitionState(
                index=index,
                leader=replicas[0],
                leader_epoch=LeaderEpoch(0),
                replicas=replicas,
                isr=replicas,
                in_sync_min=self.settings.in_sync_min,
            )
            for index, replicas in enumerate(self.settings.replicas)
        )
        configs = {"min.insync.replicas": str(self.settings.in_sync_min)}
        topic = TopicState(name=TOPIC, topic_id=TOPIC_ID, configs=configs, partitions=partitions)
        operations = [Create(path, b"") for path in DIRECTORIES]
        operations += [Create(CONTROLLER_EPOCH, b"0"), Create(CHANGES, b""), Create(CLUSTER, b"model")]
        operations += [
            Create(PARTITIONS, PARTITIONS_MIGRATED),
            Create(chunk_path(TOPIC_ID, 0), pack_partitions(partitions)),
            Create(topic_path(TOPIC), pack_topic(topic)),
        ]
        for disk in self.disks.values():
            admission = Admission(broker_id=disk.broker_id, epoch=ADMITTED_FIRST, directories=(disk.directory,))
            operations.append(Create(admission_path(disk.broker_id), pack_admission(admission)))
        outcome = self.server.commit(0, operations)
        assert isinstance(outcome, int), f"the store could not be bootstrapped: {outcome!r}"

    # What is there

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, index) for index in range(len(self.settings.replicas))]

    def partitions_of(self, broker: BrokerId) -> list[TopicPartition]:
        """The partitions whose logs a broker opens at its start; with spares, those that it has on its disk."""
        if self.settings.spares:
            return list(self.disks[broker].logs)
        return [
            TopicPartition(TOPIC, index) for index, replicas in enumerate(self.settings.replicas) if broker in replicas
        ]

    def running(self, broker: BrokerId) -> Process | None:
        """The process of a broker that is up and not paused."""
        process = self.processes.get(broker)
        return None if process is None or process.paused else process

    def all_running(self) -> Iterator[Process]:
        return (process for process in list(self.processes.values()) if not process.paused)

    def leaders(self, tp: TopicPartition) -> list[tuple[Process, ModelReplica]]:
        """The processes that take themselves for the leader of a partition."""
        return [
            (process, process.replicas[tp])
            for process in self.all_running()
            if tp in process.replicas and process.replicas[tp].leader is not None
        ]

    def is_slow(self, what: str, broker: BrokerId) -> bool:
        """Whether something that this run makes slow does not happen this time."""
        if (what, broker) not in self.slow:
            return False
        self._slow_count += 1
        return self._slow_count % SLOW_EVERY != 0

    # Lives

    def start(self, broker: BrokerId) -> None:
        """Start a broker's process: recover its logs, and connect to the store."""
        if broker in self.processes:
            return
        disk = self.disks[broker]
        damaged = [log.recover() for log in disk.logs.values()]
        lost = any(damaged) or (disk.power_failed and not self.settings.flush_group)
        disk.registration = disk.registration.recovered(lost=lost)
        disk.power_failed = False
        self._lives[broker] += 1
        self.history.say(f"broker {broker} starts: {disk}")
        self.processes[broker] = Process(self, disk, self._lives[broker])
        disk.stopped_clean = False

    def kill(self, broker: BrokerId, *, expire: bool) -> None:
        """Kill a broker's process; its session may end before anything else happens."""
        process = self.processes.pop(broker, None)
        if process is not None:
            self.history.say(f"broker {broker} is killed")
            process.kill()
            if expire:
                self.server.expire(process.client.session)

    def cut_power(self, broker: BrokerId, kept: int, *, expire: bool) -> None:
        """Fail a machine's power: its process dies, and its disk loses what was not flushed."""
        self.kill(broker, expire=expire)
        disk = self.disks[broker]
        disk.power_failed = True
        for log in disk.logs.values():
            log.lose_unflushed(kept)
        self.history.count("power cuts")
        self.history.say(f"broker {broker} has lost its power")

    def wipe(self, broker: BrokerId) -> None:
        """Replace a broker's disk by an empty one."""
        self.cut_power(broker, 0, expire=True)
        self._directories += 1
        self.disks[broker] = Disk(broker_id=broker, directory=f"directory-{broker}-{self._directories}")
        self.history.say(f"broker {broker} has a new disk")

    def stop(self, broker: BrokerId) -> None:
        """Stop a broker: its logs are flushed, and its session ends."""
        process = self.running(broker)
        if process is not None:
            for replica in process.replicas.values():
                replica.flush()
            self.kill(broker, expire=True)
            self.disks[broker].stopped_clean = True

    # Messages

    def deliver(self, number: int) -> None:
        """Deliver the message that a number chooses, if its way is open and its receiver takes it."""
        message = self.network.next(number)
        if message is None:
            return
        process = self.processes.get(message.receiver)
        if process is not None and process.paused:
            return
        what = message.purpose + (" response" if message.response else "")
        if self.is_slow(what, message.receiver):
            return
        self.network.remove(message)
        if process is not None:
            self._receive(process, message)

    def _receive(self, process: Process, message: Message) -> None:
        if message.response:
            generation = process.generations.get((message.purpose, message.server), 0)
            if (message.life, message.generation) != (process.life, generation):
                return
        match message.purpose, message.response:
            case "fetch", False:
                self._serve(process, message)
            case "fetch", True:
                response = message.body
                assert isinstance(response, FetchResponse), f"not a response to a fetch: {response}"
                if process.fetching.get(response.tp) == message.server:
                    del process.fetching[response.tp]
                if response.tp in process.replicas:
                    process.replicas[response.tp].fetched(response)
            case "control", False:
                process.control.receive(message)
            case "control", True:
                process.responded(*message.body)
            case _:
                raise AssertionError(f"a message of no purpose: {message}")

    def _serve(self, process: Process, message: Message) -> None:
        request = message.body
        assert isinstance(request, FetchRequest), f"not a fetch: {request}"
        replica = process.replicas.get(request.tp)
        if replica is None:
            # The replica was removed; the fetcher gives up when its connection ends.
            return
        response, isr = replica.serve_fetch(request, process.epoch_of, self.now_ms)
        self.network.respond(message, response)
        if isr is not None:
            process.propose(replica, isr)

    def exchange(self, purpose: str, one: BrokerId, other: BrokerId) -> None:
        """Deliver what two brokers have sent each other for a purpose."""
        for index in range(len(self.network.messages) - 1, -1, -1):
            if index < len(self.network.messages):
                message = self.network.messages[index]
                if message.purpose == purpose and {message.client, message.server} == {one, other}:
                    self.deliver(index)

    # Work of a broker

    def produce(self, replica: ModelReplica, records_max: int = RECORDS_MAX) -> int | None:
        """Send a record with acks=all; its value, if the leader took it."""
        if len(replica.log.records) >= records_max:
            return None
        self._values += 1
        return self._values if replica.produce(self._values) else None

    def join(self, process: Process) -> None:
        """Connect, register, and claim the office of the controller where it is free."""
        process.reconnect()
        process.register()
        process.control.claim()

    def learn(self, process: Process) -> None:
        """Bring a broker's image up to what the store has reported."""
        process.receive_reports(100)
        for _ in range(3):
            process.read_tree()
            process.tree_read()

    def shrink(self, process: Process, replica: ModelReplica, member: int | None = None) -> None:
        """Propose an ISR without members that lag, or without any of them: a rule must not rest on time."""
        leader = replica.leader
        if leader is None or leader.is_proposing:
            return
        isr = leader.isr_without_laggards(self.now_ms, LAG_MS_MAX)
        if member is not None:
            others = sorted(leader.isr - {leader.broker_id})
            isr = leader.isr - {others[member % len(others)]} if others else None
        if isr is not None:
            process.propose(replica, isr)

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[tuple[TopicPartition, BrokerId], LogEnd]:
        """How far the replicas' logs go; those that are down or failed do not say."""
        return {
            (tp, process.broker_id): LogEnd(epoch=found.log.epochs.latest, offset=found.log.end)
            for tp in partitions
            for process in self.all_running()
            if (found := process.replicas.get(tp)) is not None and not isinstance(found.role, Offline)
        }

    def is_lost(self, tp: TopicPartition) -> bool:
        """Whether a partition waits for an operator: no holder of its records is left, and the metadata says so."""
        state = self.history.states[tp]
        return state.leader == NO_LEADER and not self.log_holders(state)

    def log_holders(self, state: PartitionState) -> set[BrokerId]:
        return set(state.replicas) - set(state.replaced_replicas)
