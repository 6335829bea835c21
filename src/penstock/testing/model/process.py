"""One life of a broker of the model: its image, its registration, its replicas and what it has sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.metadata.following import Following
from penstock.metadata.image import MetadataImage
from penstock.metadata.nodes import Changes, Gap, Snapshot
from penstock.metadata.operations import Create, Delete, Operation
from penstock.metadata.records import CONTROLLER, BrokerState, broker_path, pack_broker
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import IneligibleReplica, StaleBrokerEpoch
from penstock.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition
from penstock.model.topic import PartitionState
from penstock.partition.role import Offline, may_cut
from penstock.testing.model.control import Control
from penstock.testing.model.disk import Disk
from penstock.testing.model.network import FailedReplica, IsrRequest, StopRequest
from penstock.testing.model.replica import ModelReplica
from penstock.testing.model.store import UNKNOWN, Client, Outcome

if TYPE_CHECKING:
    from penstock.testing.model.cluster import Cluster


class Process:
    """A broker from its start to its end. Nothing in here survives it but the disk."""

    def __init__(self, cluster: Cluster, disk: Disk, life: int) -> None:
        self.cluster = cluster
        self.disk = disk
        self.broker_id = disk.broker_id
        self.life = life
        self.paused = False
        self.stopping = False
        self.client = Client(cluster.server)
        self.image = MetadataImage()
        self._following = Following()
        self._reading: tuple[Snapshot, int] | None = None
        self.broker_epoch = NO_BROKER_EPOCH
        """Of the registration in this session."""
        self.admitted_epoch = NO_BROKER_EPOCH
        """With which this broker leads and follows; none while it is fenced."""
        self._registering = False
        self._clean = disk.stopped_clean
        self.replicas: dict[TopicPartition, ModelReplica] = {}
        self.fetching: dict[TopicPartition, BrokerId] = {}
        """Partitions with a fetch in flight, and the leader that it was sent to."""
        self.generations: dict[tuple[str, BrokerId], int] = {}
        """Of the connections to other brokers, by purpose: a response to an earlier one is never received."""
        self._failures_known: dict[TopicPartition, LeaderEpoch] = {}
        """Failed replicas that the controller knows, with the leader epochs in which they failed."""
        self.control = Control(self)
        for tp in cluster.partitions_of(self.broker_id):
            self._open(tp)

    def _open(self, tp: TopicPartition) -> None:
        cluster = self.cluster
        replica = ModelReplica(
            tp,
            self.disk.log(tp),
            cluster.history,
            broker_id=self.broker_id,
            life=(self.broker_id, self.life),
            flush_group=cluster.settings.flush_group,
            responds_late=lambda: cluster.is_slow("acknowledge", self.broker_id),
        )
        self.replicas[tp] = replica
        cluster.history.replicas[self.broker_id, tp] = replica

    @property
    def number(self) -> int:
        """The last transaction in the image."""
        return self._following.number

    @property
    def is_current(self) -> bool:
        return not self._following.stale

    def leading(self) -> Iterator[ModelReplica]:
        return (replica for replica in self.replicas.values() if replica.leader is not None)

    # The image

    def receive_reports(self, count: int) -> None:
        """A watch fires."""
        report = self.client.report(count)
        if report is not None:
            self._arrived(report)

    def _arrived(self, report: Changes | Gap) -> None:
        changes = self._following.arrived(report)
        if changes is not None:
            self.image.apply(changes.changes)
            self._act()

    def read_tree(self) -> None:
        """Ask for the whole tree where the image is stale, after a `sync`; the response comes with `tree_read`."""
        if self.client.connected and self._following.stale and self._reading is None:
            self._reading = (self.cluster.server.snapshot(), self._following.gaps)

    def tree_read(self) -> None:
        """The tree arrives."""
        if self._reading is None or not self.client.connected:
            return
        snapshot, gaps = self._reading
        self._reading = None
        if not self._following.is_newer(snapshot):
            return
        self.image.replace_with(snapshot.nodes)
        held = self._following.read(snapshot, gaps)
        self._act()
        for report in held:
            self._arrived(report)

    # The session

    def suspend(self) -> None:
        """The connection to the store breaks."""
        if self.client.connected:
            self.cluster.history.say(f"broker {self.broker_id} is cut off from the store")
            self._reading = None
            for done in self.client.suspend():
                done(UNKNOWN)

    def reconnect(self) -> None:
        """Go on with the session, or learn that it is lost."""
        if self.client.connected and self.client.is_alive:
            return
        self.suspend()
        if not self.client.reconnect():
            self.cluster.history.say(f"broker {self.broker_id} learns that its session is lost")
            self.broker_epoch = NO_BROKER_EPOCH
            self._registering = False
            self.control.session_lost()
            self._fence()

    def register(self) -> None:
        """Say that this broker is up, unless it has done so in this session."""
        if not self.client.connected or self.broker_epoch != NO_BROKER_EPOCH or self._registering:
            return
        path = broker_path(self.broker_id)
        node = self.cluster.server.get(path)
        if node is not None and node.owner == self.client.session:
            self._registered(BrokerEpoch(node.created))
            return
        operations: list[Operation] = []
        if node is not None:
            # Of an earlier life, or an earlier session of this one: take over.
            operations.append(Delete(path, node.version))
            controller = self.cluster.server.get(CONTROLLER)
            if controller is not None and controller.owner == node.owner:
                operations.append(Delete(CONTROLLER, controller.version))
        broker = BrokerState(
            broker_id=self.broker_id,
            endpoints=(),
            rack=None,
            directories=(self.disk.directory,),
            admitted_before=self.disk.registration.admitted_before,
            may_have_lost=self.disk.registration.may_have_lost,
            clean=self._clean,
        )
        self._registering = True
        self.client.send([*operations, Create(path, pack_broker(broker), ephemeral=True)], self._register_done)

    def _register_done(self, outcome: Outcome) -> None:
        self._registering = False
        if isinstance(outcome, int):
            self._registered(BrokerEpoch(outcome))

    def _registered(self, epoch: BrokerEpoch) -> None:
        self.cluster.history.say(f"broker {self.broker_id} is registered with epoch {epoch}")
        self.broker_epoch = epoch
        self._act()

    # Roles

    def _act(self) -> None:
        """Act on the image: see an admission, and take the roles that it has."""
        if self.broker_epoch == NO_BROKER_EPOCH:
            return
        registered = self.image.brokers.get(self.broker_id)
        if self.number >= self.broker_epoch and (registered is None or registered.epoch != self.broker_epoch):
            # A registration of an earlier life was done late, in the place of this one.
            self.broker_epoch = NO_BROKER_EPOCH
            self._fence()
            return
        admission = self.image.admissions.get(self.broker_id)
        if self.admitted_epoch != self.broker_epoch:
            if admission is None or admission.epoch != self.broker_epoch:
                return
            self.disk.registration = self.disk.registration.admitted(self.broker_epoch, "")
            self._clean = True
            self.admitted_epoch = self.broker_epoch
        self.assume_roles()

    def assume_roles(self) -> None:
        """Take the roles that the image has for this broker."""
        for tp in self.cluster.partitions():
            state = self.state_of(tp)
            if state is None:
                continue
            if self.broker_id not in state.replicas:
                self._leave(tp, state)
                continue
            if tp not in self.replicas:
                self._open(tp)
            self.replicas[tp].assume(state, self.admitted_epoch, self.cluster.now_ms)

    def _leave(self, tp: TopicPartition, state: PartitionState) -> None:
        """This broker is no longer a replica: delete its log, unless the metadata is older than it."""
        replica = self.replicas.pop(tp, None)
        if replica is None:
            return
        history = self.cluster.history
        history.say(f"broker {self.broker_id} is removed from {tp}: {[*replica.log.records]}")
        history.removed(replica, state)
        del history.replicas[self.broker_id, tp]
        del self.disk.logs[tp]
        self.fetching.pop(tp, None)
        self._failures_known.pop(tp, None)

    def configure(self) -> None:
        """Apply the topic's settings in the image to the replicas; this may come later than a change of roles."""
        topic = self.image.topics.get(self.cluster.topic)
        if topic is not None:
            for replica in self.replicas.values():
                replica.configure(int(topic.configs["min.insync.replicas"]))

    def _fence(self) -> None:
        self.admitted_epoch = NO_BROKER_EPOCH
        for replica in self.replicas.values():
            replica.fence()

    def state_of(self, tp: TopicPartition) -> PartitionState | None:
        topic = self.image.topics.get(tp.topic)
        return None if topic is None else topic.partitions[tp.partition]

    def epoch_of(self, broker_id: BrokerId) -> BrokerEpoch:
        """The admitted epoch of a broker, as far as this one knows."""
        admission = self.image.admissions.get(broker_id)
        return NO_BROKER_EPOCH if admission is None else admission.epoch

    # Requests to other brokers

    def send_fetch(self, tp: TopicPartition) -> None:
        """Fetch from the leader, unless a fetch is in flight."""
        request = self.replicas[tp].fetch(self.admitted_epoch)
        if request is not None and self.fetching.get(tp) != request.fetch.leader:
            self.fetching[tp] = request.fetch.leader
            self.cluster.network.send("fetch", self, request.fetch.leader, request)

    def propose(self, replica: ModelReplica, isr: frozenset[BrokerId]) -> None:
        """Propose an ISR to the controller; not while the store cannot be reached."""
        leader = replica.leader
        if leader is None or leader.is_proposing or not self.client.connected:
            return
        leader.propose(isr, self.epoch_of)
        self.cluster.history.say(f"broker {self.broker_id} proposes {leader.proposal} of {replica.tp}")
        self.send_proposal(replica)

    def send_proposal(self, replica: ModelReplica) -> None:
        """Send the proposal in flight, once more if need be, to the controller that the image shows."""
        leader = replica.leader
        if leader is None or leader.proposal is None or not self.client.connected:
            return
        controller = BrokerId(self.image.controller_id)
        if controller >= 0:
            request = IsrRequest(replica.tp, self.admitted_epoch, leader.proposal)
            self.cluster.network.send("control", self, controller, request)

    def retry_proposal(self, replica: ModelReplica) -> None:
        """No response came in time."""
        self.send_proposal(replica)

    def responded(
        self, request: IsrRequest | FailedReplica | StopRequest, outcome: PartitionState | BrokerError | None
    ) -> None:
        """The controller responds. Only one refusal ends a proposal; otherwise the partition's next state does."""
        if isinstance(request, FailedReplica) and not isinstance(outcome, StaleBrokerEpoch):
            self._failures_known[request.tp] = request.leader_epoch
        if isinstance(request, IsrRequest) and isinstance(outcome, IneligibleReplica):
            self.cluster.history.count("ineligible")
            if request.tp in self.replicas:
                self.replicas[request.tp].ineligible(request.proposal, self.cluster.now_ms)

    def has_failed_directory(self) -> bool:
        """Whether a replica is offline until the next start."""
        return any(
            isinstance(replica.role, Offline) and not replica.log.damage_known for replica in self.replicas.values()
        )

    def repair(self) -> None:
        """Cut damaged logs that no record counts on, and follow again."""
        if self.admitted_epoch == NO_BROKER_EPOCH:
            return
        for tp, replica in list(self.replicas.items()):
            state = self.state_of(tp)
            if state is None or not isinstance(replica.role, Offline):
                continue
            if not replica.log.damage_known:
                # Its directory failed.
                continue
            if may_cut(state, self.broker_id, replica.role.leader_epoch):
                self.cluster.history.say(f"broker {self.broker_id} cuts {tp} at {replica.log.damaged_at}")
                self.cluster.history.count("repairs")
                replica.log.recover()
                self._open(tp)
                self.assume_roles()

    def report_failures(self) -> None:
        """Tell the controller which replicas have failed, until it has responded."""
        controller = BrokerId(self.image.controller_id)
        if not self.client.connected or controller < 0 or self.admitted_epoch == NO_BROKER_EPOCH:
            return
        for tp, replica in self.replicas.items():
            failed_in = replica.role.leader_epoch
            if isinstance(replica.role, Offline) and self._failures_known.get(tp) != failed_in:
                request = FailedReplica(tp, self.admitted_epoch, failed_in, keeps_records=not replica.log.damage_known)
                self.cluster.network.send("control", self, controller, request)

    # Its end

    def kill(self) -> None:
        """The process ends without a word; the disk keeps what the page cache has."""
        self.client.kill()
        self.cluster.network.drop_responses_to(self)
        for tp in self.replicas:
            del self.cluster.history.replicas[self.broker_id, tp]
