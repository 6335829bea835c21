"""A broker of the model as controller: claims the office, plans from its image, and writes one transaction at a time.

It does what `penstock.controller.controller` does, as steps of a schedule: nothing is planned before the image has the
last transaction, and nothing is decided or responded while the outcome of one is unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, assert_never

from penstock.config.broker import BrokerConfig
from penstock.controller.brokers import brokers_of, plan_settlement, plan_stop
from penstock.controller.configs import ConfigChange, ResourceType, SettingStep, plan_config_changes
from penstock.controller.configs import Step as SettingKind
from penstock.controller.isr import IsrChange, check_broker_epoch, plan_isr_changes, shows_newer
from penstock.controller.leaders import at_risk, elect_at_risk, elect_preferred, leave_isr, plan_elections
from penstock.controller.outcomes import (
    EPOCH_CHECK,
    FENCE_OPERATIONS,
    Claim,
    Found,
    Sent,
    fence,
    found_after,
    read_claim,
)
from penstock.controller.plan import Plan, PlanStep, transactions
from penstock.controller.reassignments import plan_reassignments
from penstock.metadata.operations import Check, Create, Delete, Operation, Set
from penstock.metadata.records import (
    CHANGES,
    CONTROLLER,
    CONTROLLER_EPOCH,
    ControllerState,
    pack_controller,
    unpack_controller,
)
from penstock.metadata.store import OutcomeUnknown, StoreFault
from penstock.model.errors import BrokerError
from penstock.model.ids import NO_BROKER_EPOCH
from penstock.model.topic import PartitionState
from penstock.testing.model.network import FailedReplica, IsrRequest, Message, StopRequest
from penstock.testing.model.store import Outcome

if TYPE_CHECKING:
    from penstock.testing.model.process import Process


BYTES_MAX = 900 * 1024
REQUESTS_MAX = 10
IN_SYNC_MIN = "min.insync.replicas"
CONFIG = BrokerConfig()


class ImageBehind(Exception):
    """A request shows that the image is older than the store."""


def nothing() -> None:
    """There is no one to respond to."""


@dataclass(slots=True)
class Writing:
    """A plan that is being written: what is left of it, and what to do when all of it is done."""

    transactions: deque[tuple[Operation, ...]]
    done: Callable[[], None]


class Control:
    """The controller's part of one process; idle unless the process was elected."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._epoch_version: int | None = None
        self._image_needed = 0
        """Nothing is planned before the image has this transaction."""
        self._sent: Sent | None = None
        """The transaction under way, or of unknown outcome."""
        self._in_flight = False
        self._writing: Writing | None = None
        self._claims: dict[int, int] = {}
        self._claiming = False
        self._marks = count()
        self.requests: deque[Message] = deque()

    @property
    def is_active(self) -> bool:
        return self._epoch_version is not None

    # Office

    def claim(self) -> None:
        """Become controller where no other broker is."""
        process = self._process
        if self.is_active or self._claiming or not process.client.connected or process.broker_epoch == NO_BROKER_EPOCH:
            return
        server = process.cluster.server
        node, epoch = server.get(CONTROLLER), server.get(CONTROLLER_EPOCH)
        assert epoch is not None, "the store has not been bootstrapped"
        match read_claim(node, process.client.session, self._claims):
            case Claim.TAKEN:
                return
            case Claim.WON:
                assert node is not None, "an election was won without a node"
                self._elected(self._claims[unpack_controller(node.data).epoch], server.number)
                return
            case Claim.LATE:
                operations: list[Operation] = [Check(CONTROLLER_EPOCH, epoch.version), Delete(CONTROLLER)]
                won = None
            case Claim.FREE:
                state = ControllerState(broker_id=process.broker_id, epoch=int(epoch.data) + 1)
                won = self._claims[state.epoch] = epoch.version + 1
                operations = [
                    Create(CONTROLLER, pack_controller(state), ephemeral=True),
                    Set(CONTROLLER_EPOCH, b"%d" % state.epoch, epoch.version),
                ]
        self._claiming = True

        def done(outcome: Outcome) -> None:
            self._claiming = False
            if isinstance(outcome, int) and won is not None:
                self._elected(won, outcome)
            elif isinstance(outcome, OutcomeUnknown) and process.life % 2:
                # The search for the outcome ended with the connection.
                self._claims.clear()

        process.client.send(operations, done)

    def _elected(self, epoch_version: int, number: int) -> None:
        self._process.cluster.history.say(f"broker {self._process.broker_id} is controller {epoch_version}")
        self._process.cluster.history.count("controllers")
        self._epoch_version = epoch_version
        self._image_needed = number
        self._claims.clear()
        self._forget()

    def resign(self) -> None:
        self._epoch_version = None
        self._forget()

    def _forget(self) -> None:
        self._sent = self._writing = None
        self._in_flight = False
        self.requests.clear()

    def session_lost(self) -> None:
        self._claims.clear()
        self._claiming = False
        self.resign()

    # Work

    def turn(self, number: int) -> None:
        """Find out an unknown outcome, write what is left of a plan, or make one."""
        process = self._process
        if not self.is_active or not process.client.connected:
            return
        if self._sent is not None:
            if not self._in_flight:
                self._find_out(self._sent, abandon=bool(number & 4))
            return
        if process.number < self._image_needed or not process.is_current:
            return
        if process.image.controller_id != process.broker_id:
            self.resign()
        elif self._writing is not None:
            self._write_next(self._writing)
        elif self.requests and number & 1:
            self.respond_next()
        else:
            self._settle(number)

    def receive(self, message: Message) -> None:
        """A request of another broker arrives."""
        if self.is_active and len(self.requests) < REQUESTS_MAX:
            self.requests.append(message)

    def respond_next(self) -> None:
        """Decide on the next request; its sender gets a response when the outcome is known."""
        message = self.requests.popleft()
        network = self._process.cluster.network
        try:
            plan = self._planned(message)
        except ImageBehind:
            self.requests.appendleft(message)
            self._image_needed = self._process.cluster.server.number
            return
        except BrokerError as error:
            network.respond(message, (message.body, error))
            return
        [outcome] = plan.outcomes
        if plan.steps:
            self._write(plan.steps, lambda: network.respond(message, (message.body, outcome)))
        else:
            network.respond(message, (message.body, outcome))

    def _planned(self, message: Message) -> Plan[PartitionState] | Plan[None]:
        image = self._process.image
        match message.body:
            case IsrRequest() as request:
                proposal = request.proposal
                change = IsrChange(
                    topic_id=image.topics[request.tp.topic].topic_id,
                    partition=request.tp.partition,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    isr=proposal.isr,
                )
                if shows_newer(image, [change]) and self._process.number < self._process.cluster.server.number:
                    raise ImageBehind
                return plan_isr_changes(image, message.client, request.broker_epoch, [change])
            case FailedReplica() as failed:
                check_broker_epoch(image, message.client, failed.broker_epoch)
                decide = leave_isr(brokers_of(image), message.client, keeps_records=failed.keeps_records)
                return plan_elections(image, [failed.tp], decide)
            case StopRequest() as stop:
                check_broker_epoch(image, message.client, stop.broker_epoch)
                return plan_stop(image, message.client)
            case _:
                raise AssertionError(f"a request of no kind: {message}")

    def _settle(self, number: int) -> None:
        """Write what follows from the brokers; where that is nothing, see to requests and to other work."""
        image, cluster = self._process.image, self._process.cluster
        steps = plan_settlement(image).steps
        if not steps and self.requests:
            self.respond_next()
            return
        brokers = brokers_of(image)
        if not steps:
            risky = at_risk(image)
            steps = plan_elections(image, risky, elect_at_risk(image, brokers, cluster.log_ends(risky))).steps
        if not steps and cluster.in_sync_min_wanted is not None:
            change = SettingStep(name=IN_SYNC_MIN, step=SettingKind.SET, value=str(cluster.in_sync_min_wanted))
            changes = [ConfigChange(resource_type=ResourceType.TOPIC, name=cluster.topic, steps=(change,))]
            cluster.in_sync_min_wanted = None
            steps = plan_config_changes(image, changes, config=CONFIG).steps
        if not steps and cluster.reassignment_wanted is not None:
            wanted, cluster.reassignment_wanted = [cluster.reassignment_wanted], None
            steps = plan_reassignments(image, wanted, brokers=brokers).steps
        if not steps and number & 8:
            steps = plan_elections(image, cluster.partitions(), elect_preferred(brokers)).steps
        if steps:
            self._write(steps, nothing)

    def _write(self, steps: Sequence[PlanStep], done: Callable[[], None]) -> None:
        operations_max = self._process.cluster.settings.operations_max
        parts = transactions(steps, operations_max=operations_max - FENCE_OPERATIONS, bytes_max=BYTES_MAX)
        self._writing = Writing(deque(parts), done)
        self._write_next(self._writing)

    def _write_next(self, writing: Writing) -> None:
        if not writing.transactions:
            self._writing = None
            writing.done()
            return
        sent = Sent(mark=self._mark(), expected=self._process.image.changes_version)
        self._send(sent, writing.transactions[0])

    def _send(self, sent: Sent, operations: Sequence[Operation], *, void: bool = False) -> None:
        assert self._epoch_version is not None, "only a controller writes"
        office = self._epoch_version
        self._in_flight = True
        if not void:
            self._sent = sent

        def done(outcome: Outcome) -> None:
            if self._epoch_version == office:
                self._in_flight = False
                self._written(outcome, void=void)

        self._process.client.send([*fence(office, sent), *operations], done)

    def _written(self, outcome: Outcome, *, void: bool) -> None:
        if isinstance(outcome, OutcomeUnknown):
            return
        if isinstance(outcome, StoreFault):
            if outcome.index == EPOCH_CHECK:
                self.resign()
            elif not void:
                # The plan was made from an image that is behind the store: plan again when it is not.
                self._sent = self._writing = None
                self._image_needed = self._process.cluster.server.number
            return
        self._sent, self._image_needed = None, outcome
        if not void and self._writing is not None:
            self._writing.transactions.popleft()

    def _find_out(self, sent: Sent, *, abandon: bool) -> None:
        """Read back a transaction of unknown outcome. One that can still be done is voided by another in its place."""
        if abandon:
            # The request has timed out, and its client sends it again.
            self._writing = None
        server = self._process.cluster.server
        found = found_after(sent, server.get(CHANGES))
        match found:
            case Found.DONE | Found.NEVER:
                self._sent, self._image_needed = None, server.number
                if found is Found.DONE and self._writing is not None:
                    self._writing.transactions.popleft()
            case Found.SUPERSEDED:
                self.resign()
            case Found.PENDING:
                self._send(Sent(mark=self._mark(), expected=sent.expected), (), void=True)
            case _:
                assert_never(found)

    def _mark(self) -> bytes:
        return b"%d.%d" % (-1 if self._epoch_version is None else self._epoch_version, next(self._marks))
