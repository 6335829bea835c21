"""The steps of a schedule, and what each of them does to a cluster of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.controller.reassignments import Reassignment
from penstock.model.ids import BrokerId, Offset
from penstock.testing.model.cluster import STEP_MS, Cluster
from penstock.testing.model.network import StopRequest
from penstock.testing.model.process import Process
from penstock.testing.model.replica import ModelReplica


class Step(NamedTuple):
    """One step: what happens, to which broker (by its place), and a number that makes every further choice."""

    kind: str
    broker: int
    number: int


def take(cluster: Cluster, step: Step) -> None:
    """Take one step. A step that is impossible now does nothing."""
    cluster.now_ms += STEP_MS
    brokers = cluster.settings.brokers
    broker = brokers[step.broker % len(brokers)]
    KINDS[step.kind](cluster, broker, step.number)


def on_process(act: Callable[[Cluster, Process, int], None]) -> Callable[[Cluster, BrokerId, int], None]:
    """A step of a process that runs."""

    def step(cluster: Cluster, broker: BrokerId, number: int) -> None:
        process = cluster.running(broker)
        if process is not None:
            act(cluster, process, number)

    return step


def on_leader(act: Callable[[Cluster, Process, ModelReplica, int], None]) -> Callable[[Cluster, BrokerId, int], None]:
    """A step of a replica that takes itself for a leader, of which there may be several."""

    def step(cluster: Cluster, broker: BrokerId, number: int) -> None:
        partitions = cluster.partitions()
        leaders = cluster.leaders(partitions[number % len(partitions)])
        if leaders:
            act(cluster, *leaders[number // 16 % len(leaders)], number // 64)

    return step


# Ordinary work


def deliver(cluster: Cluster, broker: BrokerId, number: int) -> None:
    cluster.deliver(number)


def apply(cluster: Cluster, process: Process, number: int) -> None:
    if not cluster.is_slow("apply", process.broker_id):
        process.client.apply()


def respond(cluster: Cluster, process: Process, number: int) -> None:
    if not cluster.is_slow("respond", process.broker_id):
        process.client.respond()


def report(cluster: Cluster, process: Process, number: int) -> None:
    if not cluster.is_slow("report", process.broker_id):
        process.receive_reports(1 + number % 4)


def read(cluster: Cluster, process: Process, number: int) -> None:
    if number & 1:
        process.read_tree()
    else:
        process.tree_read()


def learn(cluster: Cluster, process: Process, number: int) -> None:
    if not cluster.is_slow("report", process.broker_id):
        cluster.learn(process)
        if number & 1:
            configure(cluster, process, 0)


def configure(cluster: Cluster, process: Process, number: int) -> None:
    if not cluster.is_slow("configure", process.broker_id):
        process.configure()


def join(cluster: Cluster, process: Process, number: int) -> None:
    cluster.join(process)
    process.client.apply()
    process.client.respond()
    process.control.claim()


def control(cluster: Cluster, process: Process, number: int) -> None:
    process.control.turn(number)


def fetch(cluster: Cluster, process: Process, number: int) -> None:
    for tp in process.replicas:
        process.send_fetch(tp)


def data(cluster: Cluster, process: Process, replica: ModelReplica, number: int) -> None:
    """A leader appends, and some of its followers fetch; metadata stands still."""
    if number & 1:
        cluster.produce(replica)
    for place, broker in enumerate(cluster.settings.brokers):
        follower = cluster.running(broker)
        if follower is None or follower is process or not number >> (1 + 2 * place) & 3:
            continue
        for _ in range(1 + (number >> 8) % 2):
            if replica.tp in follower.replicas:
                follower.send_fetch(replica.tp)
                cluster.exchange("fetch", broker, process.broker_id)


def settle(cluster: Cluster, broker: BrokerId, number: int) -> None:
    """Controllers do their work; data stands still."""
    for process in cluster.all_running():
        if not process.control.is_active:
            continue
        for turn in range(3):
            if number & 4:
                for index in range(len(cluster.network.messages) - 1, -1, -1):
                    if index < len(cluster.network.messages) and cluster.network.messages[index].purpose == "control":
                        cluster.deliver(index)
            process.control.turn(turn | number >> 12)
            if number & 1:
                process.client.apply()
            if number & 2:
                process.client.respond()
                learn(cluster, process, 0)
            number >>= 3


def progress(cluster: Cluster, process: Process, number: int) -> None:
    """Some of the ordinary work of one broker, chosen by bits."""
    if number & 1:
        cluster.join(process)
    if number & 2:
        apply(cluster, process, 0)
    if number & 4:
        respond(cluster, process, 0)
    if number & 8:
        process.control.turn(number >> 10)
    if number & 16:
        report(cluster, process, 3)
    if number & 32:
        learn(cluster, process, 0)
    if number & 64:
        fetch(cluster, process, 0)
    if number & 128:
        for _ in range(3):
            cluster.deliver(number >> 8)


def round_of_all(cluster: Cluster, broker: BrokerId, number: int) -> None:
    for process in cluster.all_running():
        progress(cluster, process, number | 0xFF)


def produce(cluster: Cluster, process: Process, replica: ModelReplica, number: int) -> None:
    cluster.produce(replica)


def consume(cluster: Cluster, process: Process, replica: ModelReplica, number: int) -> None:
    replica.consume(number % 3)


def flush(cluster: Cluster, process: Process, number: int) -> None:
    for replica in process.replicas.values():
        replica.flush()


def checkpoint(cluster: Cluster, process: Process, number: int) -> None:
    for replica in process.replicas.values():
        replica.checkpoint()


def shrink(cluster: Cluster, process: Process, replica: ModelReplica, number: int) -> None:
    cluster.shrink(process, replica, None if number % 4 == 0 else number // 4)


def retry(cluster: Cluster, process: Process, replica: ModelReplica, number: int) -> None:
    process.retry_proposal(replica)


def expand(cluster: Cluster, process: Process, replica: ModelReplica, number: int) -> None:
    """A follower that may join is proposed, if a fetch could not: the store was out of reach."""
    leader = replica.leader
    if leader is not None and not leader.is_proposing:
        joining = [each for each in leader.followers if leader.may_join(each)]
        if joining:
            process.propose(replica, leader.isr | {joining[number % len(joining)]})


# Faults and changes


def start(cluster: Cluster, broker: BrokerId, number: int) -> None:
    down = [each for each in cluster.settings.brokers if each not in cluster.processes]
    if down:
        cluster.start(down[number % len(down)])


def resume(cluster: Cluster, broker: BrokerId, number: int) -> None:
    for process in cluster.processes.values():
        process.paused = False


def pause(cluster: Cluster, process: Process, number: int) -> None:
    process.paused = True


def kill(cluster: Cluster, broker: BrokerId, number: int) -> None:
    cluster.kill(broker, expire=bool(number & 3))


def cut_power(cluster: Cluster, broker: BrokerId, number: int) -> None:
    cluster.cut_power(broker, number % 3, expire=bool(number // 4 & 3))


def wipe(cluster: Cluster, broker: BrokerId, number: int) -> None:
    cluster.wipe(broker)


def stop(cluster: Cluster, broker: BrokerId, number: int) -> None:
    cluster.stop(broker)


def strike_leader(cluster: Cluster, broker: BrokerId, number: int) -> None:
    """The leader that the metadata names fails, mostly as a process, sometimes only its session."""
    partitions = cluster.partitions()
    state = cluster.history.states[partitions[number % len(partitions)]]
    process = cluster.processes.get(state.leader)
    if process is None:
        return
    match number // 8 % 4:
        case 0 | 1:
            cluster.kill(state.leader, expire=True)
        case 2:
            cluster.cut_power(state.leader, number // 32 % 3, expire=True)
        case _:
            cluster.server.expire(process.client.session)


def suspend(cluster: Cluster, process: Process, number: int) -> None:
    process.suspend()


def strike_writer(cluster: Cluster, broker: BrokerId, number: int) -> None:
    """A broker with a transaction under way is cut off, or dies; perhaps its session ends."""
    process = next((each for each in cluster.all_running() if each.client.is_busy), None)
    if process is None:
        return
    session = process.client.session
    if number & 2:
        process.suspend()
    else:
        cluster.kill(process.broker_id, expire=False)
    if number & 1:
        cluster.server.expire(session)


def expire(cluster: Cluster, broker: BrokerId, number: int) -> None:
    process = cluster.processes.get(broker)
    if process is not None:
        cluster.history.say(f"the session of broker {broker} expires")
        cluster.server.expire(process.client.session)


def late(cluster: Cluster, broker: BrokerId, number: int) -> None:
    """A transaction is done long after its client was cut off, or is lost for good."""
    if cluster.server.late:
        cluster.history.say("a late transaction arrives")
        cluster.server.commit_late(number // 4, lost=number % 4 == 0)


def lose_reports(cluster: Cluster, process: Process, number: int) -> None:
    process.client.lose_reports()


def reset(cluster: Cluster, process: Process, number: int) -> None:
    """A connection between two brokers breaks."""
    brokers = cluster.settings.brokers
    server = brokers[number % len(brokers)]
    purpose = ("fetch", "control")[number // 4 % 2]
    cluster.network.reset(process, purpose, server, requests_lost=bool(number // 8 % 2))
    if purpose == "fetch":
        process.fetching = {tp: leader for tp, leader in process.fetching.items() if leader != server}


def cut(cluster: Cluster, broker: BrokerId, number: int) -> None:
    """Messages of one broker no longer reach another."""
    brokers = cluster.settings.brokers
    cluster.network.cuts.add((broker, brokers[number % len(brokers)]))


def heal(cluster: Cluster, broker: BrokerId, number: int) -> None:
    cluster.network.cuts.clear()


def change_min(cluster: Cluster, broker: BrokerId, number: int) -> None:
    """An administrator changes min.insync.replicas."""
    cluster.in_sync_min_wanted = 1 + number % 2


def rot(cluster: Cluster, process: Process, number: int) -> None:
    """A record on a disk can no longer be read; it is found later."""
    replicas = list(process.replicas.values())
    if not replicas:
        return
    log = replicas[number % len(replicas)].log
    if log.records and log.damaged_at is None:
        log.damaged_at = Offset(log.start + number // 4 % len(log.records))


def fail_log(cluster: Cluster, process: Process, number: int) -> None:
    """The directory of a log fails while its broker lives; a restart finds it whole."""
    replicas = list(process.replicas.values())
    if replicas:
        replicas[number % len(replicas)].fail()


def scrub(cluster: Cluster, process: Process, number: int) -> None:
    for replica in process.replicas.values():
        replica.find_damage()
    process.report_failures()
    process.repair()


def hand_over(cluster: Cluster, process: Process, number: int) -> None:
    """A broker asks the controller to move its leaderships away before it stops."""
    controller = BrokerId(process.image.controller_id)
    if controller >= 0:
        process.stopping = True
        cluster.network.send("control", process, controller, StopRequest(process.admitted_epoch))


def delete_records(cluster: Cluster, process: Process, replica: ModelReplica, number: int) -> None:
    replica.delete_records(Offset(replica.log.start + 1 + number % 3))


def reassign(cluster: Cluster, broker: BrokerId, number: int) -> None:
    """An administrator moves the replicas of a partition, or cancels that."""
    partitions = cluster.partitions()
    tp = partitions[number % len(partitions)]
    if number // 4 % 4 == 0:
        cluster.reassignment_wanted = Reassignment(tp=tp, replicas=None)
        return
    brokers = list(cluster.settings.brokers)
    choice = number // 16
    chosen: list[BrokerId] = []
    least = cluster.settings.replicas_min
    for _ in range(least + choice % (len(brokers) - least)):
        choice, at = divmod(choice, len(brokers))
        chosen.append(brokers.pop(at))
    cluster.reassignment_wanted = Reassignment(tp=tp, replicas=tuple(chosen))


Act = Callable[[Cluster, BrokerId, int], None]

WORK: dict[str, tuple[Act, float]] = {
    "deliver": (deliver, 12),
    "apply": (on_process(apply), 4),
    "respond": (on_process(respond), 4),
    "report": (on_process(report), 4),
    "read": (on_process(read), 3),
    "learn": (on_process(learn), 14),
    "join": (on_process(join), 14),
    "configure": (on_process(configure), 3),
    "control": (on_process(control), 4),
    "fetch": (on_process(fetch), 3),
    "data": (on_leader(data), 16),
    "settle": (settle, 14),
    "progress": (on_process(progress), 12),
    "round": (round_of_all, 3),
    "produce": (on_leader(produce), 2),
    "consume": (on_leader(consume), 5),
    "flush": (on_process(flush), 1),
    "checkpoint": (on_process(checkpoint), 2),
    "expand": (on_leader(expand), 4),
    "retry": (on_leader(retry), 5),
    "scrub": (on_process(scrub), 2),
    "start": (start, 8),
    "resume": (resume, 4),
    "heal": (heal, 2),
}
"""Steps that are always possible, and how often each is drawn."""

FAULTS: dict[str, tuple[Act, float]] = {
    "shrink": (on_leader(shrink), 5),
    "kill": (kill, 1),
    "power": (cut_power, 1),
    "wipe": (wipe, 0.15),
    "stop": (stop, 0.5),
    "strike leader": (strike_leader, 5),
    "strike writer": (strike_writer, 6),
    "suspend": (on_process(suspend), 1),
    "expire": (expire, 1),
    "late": (late, 6),
    "lose reports": (on_process(lose_reports), 2),
    "reset": (on_process(reset), 2),
    "cut": (cut, 1),
    "pause": (on_process(pause), 1),
    "min": (change_min, 3),
    "rot": (on_process(rot), 1),
    "hand over": (on_process(hand_over), 1),
    "fail log": (on_process(fail_log), 1),
    "delete": (on_leader(delete_records), 1),
}
"""Each run draws some of these."""

REASSIGN = "reassign"
"""Only where there are brokers to spare."""

KINDS: dict[str, Act] = {kind: act for kind, (act, _) in {**WORK, **FAULTS}.items()} | {REASSIGN: reassign}
