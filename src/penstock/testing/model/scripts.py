"""Schedules written by hand: each leads to the one place where a rule matters, which a random schedule seldom finds.

A script says what happens in the words of a test. Without faults the cluster of a script is in sync: broker A leads,
and is the controller unless the script says another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.model.ids import BrokerId
from penstock.testing.model.cluster import SLOW_EVERY, STEP_MS, Cluster
from penstock.testing.model.history import Violation
from penstock.testing.model.process import Process
from penstock.testing.model.replica import ModelReplica
from penstock.testing.model.settings import Settings
from penstock.testing.model.walk import Result, heal, settle

A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)


class Play:
    """A cluster of one partition, and what a script does to it."""

    def __init__(self, settings: Settings, trace: list[str] | None = None) -> None:
        self.cluster = Cluster(settings, trace)
        self.controller = settings.first
        self.cluster.slow = frozenset()
        settle(self.cluster)
        self.cluster.slow = settings.slow
        [self.tp] = self.cluster.partitions()

    def process(self, broker: BrokerId) -> Process:
        return self.cluster.processes[broker]

    def replica(self, broker: BrokerId) -> ModelReplica:
        return self.process(broker).replicas[self.tp]

    # Data

    def append(self, broker: BrokerId) -> None:
        self.cluster.now_ms += STEP_MS
        self.cluster.produce(self.replica(broker))

    def fetch(self, follower: BrokerId) -> None:
        """A fetch is sent, and stays under way."""
        self.process(follower).send_fetch(self.tp)

    def copy(self, follower: BrokerId, leader: BrokerId, times: int = 2) -> None:
        """A follower fetches, appends, and fetches again."""
        for _ in range(times):
            self.cluster.now_ms += STEP_MS
            self.fetch(follower)
            self.cluster.exchange("fetch", follower, leader)
            self.cluster.exchange("fetch", follower, leader)

    def write(self, leader: BrokerId, *followers: BrokerId) -> None:
        """A record is appended and copied; it is acknowledged if these followers are the whole ISR."""
        self.append(leader)
        for _ in range(2):
            for follower in followers:
                self.copy(follower, leader)

    def consume(self, broker: BrokerId) -> None:
        for back in range(3):
            self.replica(broker).consume(back)

    # Messages

    def deliver(self, purpose: str, *, response: bool = False, to: BrokerId | None = None) -> None:
        """Deliver every message of one kind that is under way now."""
        for message in list(self.cluster.network.messages):
            if (message.purpose, message.response) == (purpose, response) and to in (None, message.receiver):
                self.cluster.deliver(self.cluster.network.messages.index(message))

    def drop(self, purpose: str, *, response: bool = False) -> None:
        self.cluster.network.messages = [
            each for each in self.cluster.network.messages if (each.purpose, each.response) != (purpose, response)
        ]

    # Metadata

    def learn(self, *brokers: BrokerId) -> None:
        for broker in brokers:
            self.cluster.learn(self.process(broker))

    def control(self, turns: int = 12, *, apply: bool = True) -> None:
        """The controller works; without `apply` its transaction stays under way."""
        process = self.process(self.controller)
        for _ in range(turns):
            self.cluster.learn(process)
            process.control.turn(0)
            if apply:
                process.client.apply()
                process.client.respond()

    def settle(self, *brokers: BrokerId) -> None:
        """The controller works, and brokers learn of it."""
        self.control()
        self.learn(*brokers)

    def propose_without(self, leader: BrokerId, member: BrokerId) -> None:
        role = self.replica(leader).leader
        assert role is not None, f"broker {leader} does not lead"
        self.process(leader).propose(self.replica(leader), role.isr - {member})

    def remove(self, leader: BrokerId, member: BrokerId, *learning: BrokerId) -> None:
        """A member leaves the ISR."""
        self.propose_without(leader, member)
        self.deliver("control")
        self.control()
        self.deliver("control", response=True)
        self.learn(*(learning or self.cluster.processes))

    # Lives

    def find_damage(self, broker: BrokerId) -> None:
        """The first record of a replica can no longer be read; it is cut there if that is allowed."""
        replica = self.replica(broker)
        replica.log.damaged_at = replica.log.start
        replica.find_damage()
        self.process(broker).repair()

    def fail_log(self, broker: BrokerId) -> None:
        """The directory of a replica's log fails, and the controller hears of it."""
        self.replica(broker).fail()
        self.process(broker).report_failures()
        self.deliver("control")
        self.control()
        self.deliver("control", response=True)

    def kill(self, broker: BrokerId) -> None:
        self.cluster.kill(broker, expire=True)

    def cut_power(self, broker: BrokerId) -> None:
        self.cluster.cut_power(broker, 0, expire=True)

    def expire(self, broker: BrokerId) -> None:
        """A session ends, and its broker does not know it yet."""
        self.cluster.server.expire(self.process(broker).client.session)

    def join(self, broker: BrokerId) -> None:
        process = self.process(broker)
        process.reconnect()
        process.register()
        process.client.apply()
        process.client.respond()
        process.register()

    def start(self, broker: BrokerId) -> None:
        self.cluster.start(broker)
        self.join(broker)

    def elect(self, broker: BrokerId) -> None:
        """A broker becomes controller."""
        process = self.process(broker)
        process.control.claim()
        process.client.apply()
        process.client.respond()
        self.controller = broker


Script = Callable[[Play], None]

SETTINGS = Settings(in_sync_min=1, first=C)
MIN_TWO = replace(SETTINGS, in_sync_min=2)


def play(script: Script, settings: Settings = SETTINGS, trace: list[str] | None = None) -> Result:
    """Play a script, heal everything, and say what was broken."""
    counts: dict[str, int] = {}
    try:
        on = Play(settings, trace)
        counts = on.cluster.history.counts
        script(on)
        heal(on.cluster)
    except Violation as violation:
        return Result(violation=str(violation), kind=violation.kind, steps=0, counts=counts)
    return Result(violation=None, kind=None, steps=0, counts=counts)


def removal_that_is_not_written(on: Play) -> None:
    """A leader proposes the removal of a member, and dies before the controller has heard of it."""
    on.write(A, B, C)
    on.propose_without(A, B)
    on.write(A, C)
    on.kill(A)
    on.settle(B, C)


def response_after_the_isr_shrank(on: Play) -> None:
    """The high watermark passes a record, and the ISR becomes too small before the producer gets its response."""
    on.write(A, B, C)
    on.remove(A, B)
    on.remove(A, C)
    for _ in range(SLOW_EVERY):
        on.replica(A).flush()


def power_cut_before_a_flush(on: Play) -> None:
    """With flush=group a follower has copied a record and not flushed it when its power fails."""
    on.append(A)
    on.replica(A).flush()
    for follower in (B, C):
        on.copy(follower, A)
    on.cut_power(B)
    on.start(B)
    on.settle(A, B, C)
    on.kill(A)
    on.settle(B, C)


def damage_while_an_expansion_waits(on: Play) -> None:
    """A replica was added to the ISR and does not know it yet when it finds that its log is damaged."""
    on.write(A, B, C)
    on.remove(A, B)
    on.write(A, C)
    on.copy(B, A, times=3)
    on.deliver("control")
    on.control()
    on.find_damage(B)
    on.kill(A)
    on.settle(B, C)


def damage_of_an_eligible_replica(on: Play) -> None:
    """A replica that is not in the ISR, and may be elected all the same, finds that its log is damaged."""
    on.write(A, B, C)
    on.remove(A, C)
    on.remove(A, B)
    on.find_damage(B)
    on.kill(A)
    on.settle(B, C)


def loss_that_is_reported(on: Play) -> None:
    """The last replica with every record loses its disk, another is elected at a risk, and a third is truncated."""
    on.remove(A, C)
    on.write(A, B)
    on.replica(B).checkpoint()
    on.remove(A, B)
    on.kill(B)
    on.cluster.wipe(A)
    on.start(A)
    on.settle(A, C)
    on.start(B)
    on.settle(B)
    on.copy(B, C)


def response_to_an_expansion_is_lost(on: Play) -> None:
    """The expansion is written, its response is lost, and the request is repeated."""
    on.write(A, B, C)
    on.remove(A, B)
    on.write(A, C)
    on.copy(B, A, times=3)
    on.deliver("control")
    on.control()
    on.drop("control", response=True)
    on.process(A).retry_proposal(on.replica(A))
    on.deliver("control")
    on.control()
    on.deliver("control", response=True)
    on.write(A, C)
    on.kill(A)
    on.settle(B, C)


def restart_without_data_while_an_expansion_waits(on: Play) -> None:
    """A follower caught up and is proposed; it restarts without its data before the controller decides."""
    on.write(A, B, C)
    on.remove(A, B)
    on.write(A, C)
    on.copy(B, A, times=3)
    on.cut_power(B)
    on.start(B)
    on.control()
    on.deliver("control")
    on.settle(A, B, C)
    on.kill(A)
    on.settle(B, C)


def repeated_request(on: Play) -> None:
    """An expansion is requested twice; the second request arrives after the member was removed again."""
    on.write(A, B, C)
    on.remove(A, B)
    on.copy(B, A, times=3)
    on.process(A).retry_proposal(on.replica(A))
    late = on.cluster.network.messages.pop()
    on.deliver("control")
    on.control()
    on.deliver("control", response=True)
    on.learn(A, B, C)
    on.remove(A, B)
    on.write(A, C)
    on.cluster.network.messages.append(late)
    on.deliver("control")
    on.control()
    on.kill(A)
    on.settle(B, C)


def fetch_of_a_former_life(on: Play) -> None:
    """A fetch of B's former life arrives after B lost its log and returned."""
    on.write(A, B, C)
    on.remove(A, B)
    on.write(A, C)
    on.copy(B, A, times=1)
    on.fetch(B)
    on.cut_power(B)
    on.start(B)
    on.settle(A, B, C)
    on.deliver("fetch")
    on.deliver("control")
    on.settle(A, B, C)
    on.kill(A)
    on.settle(B, C)


def second_start_after_a_power_cut(on: Play) -> None:
    """The start after a power cut dies before it registers; the next one looks like one after a kill."""
    on.write(A, B, C)
    on.cut_power(B)
    on.cluster.start(B)
    on.kill(B)
    on.start(B)
    on.settle(B)
    on.kill(A)
    on.settle(B, C)


def minimum_raised(on: Play) -> None:
    """The minimum ISR goes from 1 to 2, and the leader learns the state before the setting."""
    on.write(A, B, C)
    for broker in (A, B, C):
        on.process(broker).configure()
    on.cluster.in_sync_min_wanted = 2
    on.settle(A)
    on.remove(A, C, A)
    on.remove(A, B, A)
    on.append(A)
    on.kill(A)
    on.settle(B, C)


def follower_at_a_stale_high_watermark(on: Play) -> None:
    """A new leader's high watermark is behind what was acknowledged, and so is a follower that would join."""
    on.write(A, B, C)
    on.remove(A, C)
    on.append(A)
    on.copy(B, A, times=1)
    on.fetch(B)
    on.deliver("fetch")
    on.kill(A)
    on.settle(B, C)
    on.copy(C, B, times=0)
    on.fetch(C)
    on.deliver("fetch")
    on.deliver("control")
    on.settle(B)
    on.kill(B)
    on.settle(C)


def proposed_member_below_the_minimum(on: Play) -> None:
    """The ISR is too small, an eligible replica lacks a record, and a third replica is proposed."""
    on.write(A, B, C)
    on.remove(A, C)
    on.append(A)
    on.remove(A, B)
    on.copy(C, A, times=3)
    on.consume(A)
    on.kill(A)
    on.settle(B, C)
    on.write(B, C)


def fetch_of_an_earlier_epoch(on: Play) -> None:
    """A fetch of epoch 2 arrives in a later epoch of the same leader; the follower was truncated in between."""
    on.append(A)
    on.copy(B, A, times=1)
    on.fetch(B)
    on.expire(A)
    on.join(A)
    on.settle(B, C)
    on.copy(B, C)
    on.kill(C)
    on.settle(A, B)
    on.deliver("fetch", to=A)
    on.consume(A)
    on.kill(A)
    on.settle(B)
    on.write(B)
    on.consume(B)


def truncation_of_a_lagging_high_watermark(on: Play) -> None:
    """A follower holds a committed record that its high watermark does not cover yet, and one that is not committed."""
    on.append(A)
    on.copy(C, A, times=1)
    on.append(A)
    on.copy(B, A, times=1)
    on.fetch(B)
    on.fetch(C)
    on.deliver("fetch", to=A)
    on.drop("fetch", response=True)
    on.kill(A)
    on.settle(B, C)
    on.append(C)
    on.copy(B, C, times=1)
    on.kill(C)
    on.settle(B)


def response_of_an_earlier_epoch(on: Play) -> None:
    """A leader's word that the logs diverge arrives after the next leader has committed what the follower holds."""
    on.append(C)
    on.copy(B, C, times=1)
    on.expire(C)
    on.join(C)
    on.settle(A, B)
    on.fetch(B)
    on.deliver("fetch", to=A)
    on.settle(C)
    on.kill(A)
    on.settle(B, C)
    on.write(C, B)
    on.deliver("fetch", response=True, to=B)


def refusal_of_a_deposed_controller(on: Play) -> None:
    """C was deposed and does not know it, nor that B was admitted again: it calls B ineligible, and B is in the ISR."""
    on.write(A, B, C)
    on.remove(A, B)
    on.remove(A, C)
    on.expire(C)
    on.kill(B)
    on.start(B)
    on.elect(B)
    on.control()
    on.copy(B, A, times=3)
    on.learn(A)
    on.process(A).retry_proposal(on.replica(A))
    on.deliver("control", to=B)
    on.control()
    on.deliver("control", to=C)
    on.process(C).control.turn(1)
    on.deliver("control", response=True, to=A)
    on.append(A)
    on.kill(A)
    on.settle(B)


def refusal_while_a_write_is_unknown(on: Play) -> None:
    """An expansion waits in the store; the member restarts without its data, and the repeated request is refused."""
    on.write(A, B, C)
    on.remove(A, B)
    on.write(A, C)
    on.copy(B, A, times=3)
    on.deliver("control")
    on.control(turns=2, apply=False)
    on.kill(B)
    on.process(A).retry_proposal(on.replica(A))
    on.learn(C)
    on.deliver("control")
    on.control(turns=2, apply=False)
    on.deliver("control", response=True)
    on.write(A, C)
    on.process(C).client.apply()
    on.start(B)
    on.settle(A, B)
    on.kill(A)
    on.settle(B, C)


def late_expansion(on: Play) -> None:
    """An expansion of a deposed controller lands after the follower's next life, without data, was admitted."""
    on.write(A, B, C)
    on.remove(A, B)
    on.remove(A, C)
    on.copy(B, A, times=3)
    on.deliver("control")
    on.control(turns=2, apply=False)
    on.process(C).suspend()
    on.expire(C)
    on.cut_power(B)
    on.start(B)
    on.elect(B)
    on.control()
    on.cluster.server.commit_late()
    on.learn(A, B)
    on.kill(A)
    on.settle(B)


def claim_that_lands_late(on: Play) -> None:
    """A claim of unknown outcome is done after the broker had found that there is no controller."""
    on.cluster.stop(C)
    on.process(A).control.claim()
    on.process(A).suspend()
    on.process(A).reconnect()
    on.cluster.server.commit_late()


def failed_log_of_the_last_member(on: Play) -> None:
    """The last member of an ISR cannot use its log, while replicas that lack its records are live."""
    on.write(A, B, C)
    on.remove(A, B)
    on.remove(A, C)
    on.write(A)
    on.fail_log(A)
    on.settle(A, B, C)


ORDER_ACB = ((A, C, B),)
ORDER_CAB = ((C, A, B),)

SCRIPTS: dict[str, tuple[Script, Settings]] = {
    each.__name__: (each, settings)
    for each, settings in (
        (claim_that_lands_late, SETTINGS),
        (damage_of_an_eligible_replica, MIN_TWO),
        (damage_while_an_expansion_waits, SETTINGS),
        (failed_log_of_the_last_member, SETTINGS),
        (fetch_of_a_former_life, SETTINGS),
        (fetch_of_an_earlier_epoch, replace(SETTINGS, replicas=ORDER_ACB, first=B)),
        (follower_at_a_stale_high_watermark, MIN_TWO),
        (late_expansion, SETTINGS),
        (minimum_raised, SETTINGS),
        (proposed_member_below_the_minimum, MIN_TWO),
        (refusal_of_a_deposed_controller, SETTINGS),
        (refusal_while_a_write_is_unknown, SETTINGS),
        (loss_that_is_reported, SETTINGS),
        (power_cut_before_a_flush, replace(SETTINGS, flush_group=True)),
        (removal_that_is_not_written, SETTINGS),
        (repeated_request, SETTINGS),
        (response_after_the_isr_shrank, replace(MIN_TWO, slow=frozenset({("acknowledge", A)}))),
        (response_of_an_earlier_epoch, replace(SETTINGS, replicas=ORDER_CAB, first=B)),
        (response_to_an_expansion_is_lost, SETTINGS),
        (restart_without_data_while_an_expansion_waits, SETTINGS),
        (second_start_after_a_power_cut, SETTINGS),
        (truncation_of_a_lagging_high_watermark, replace(SETTINGS, replicas=ORDER_ACB, first=B)),
    )
}
"""Each script with the cluster that it is played on, by name."""
