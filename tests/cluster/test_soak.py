"""Bad days of a real cluster in random order, for as long as `make soak` says, and nothing acknowledged is lost.

Each bad day is printed as it begins, and the counts of all at the end. PENSTOCK_SOAK_SEED repeats an order, though not
its times.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.replicated import SteadyProducer, check, cluster_on, create, in_sync, leader_of, until
from penstock.testing.cluster import ClusterBroker, PenstockCluster
from penstock.testing.packet_filter import PacketFilter
from penstock.testing.zookeeper import ZooKeeper
from soak_time import SEED_VARIABLE, soak_seed, soak_time

PARTITIONS = 3
TOPIC = "orders"
DAYS_OF_A_CHECK = 20
"""A topic is read from its start to its end after so many bad days, and another one begins."""


class BadDays:
    """What can happen to a cluster. Each method leaves it to `heal` to end what it began."""

    def __init__(
        self, cluster: PenstockCluster, zookeeper: ZooKeeper, packets: PacketFilter, draw: random.Random
    ) -> None:
        self._cluster = cluster
        self._zookeeper = zookeeper
        self._packets = packets
        self._draw = draw
        self.topic = TOPIC
        self.kinds: tuple[Callable[[], None], ...] = (
            self.pair_cut,
            self.isolation,
            self.cut_from_zookeeper,
            self.cut_and_killed,
            self.leader_killed,
            self.all_killed,
            self.killed_while_it_starts,
            self.paused,
            self.slow,
            self.restarted,
            self.rolling_restart,
            self.disk_wiped,
            self.zookeeper_leader_killed,
            self.zookeeper_away,
        )

    def _broker(self) -> ClusterBroker:
        return self._draw.choice(self._cluster.brokers)

    def _pass(self, seconds_max: float) -> None:
        time.sleep(self._draw.uniform(0.2, seconds_max))

    def heal(self) -> None:
        self._packets.heal()
        for server in self._zookeeper.servers:
            if server.alive:
                server.resume()
            else:
                server.start()
        for broker in self._cluster.brokers:
            if broker.alive:
                broker.resume()
        self._cluster.start()
        until(self._cluster, lambda found: len(found.brokers) == 3 and in_sync(found, self.topic, 3))

    def pair_cut(self) -> None:
        source, target = self._draw.sample(self._cluster.brokers, 2)
        self._packets.cut(source.port, target.port)
        if self._draw.random() < 0.5:
            self._packets.cut(target.port, source.port)
        self._pass(15)

    def _cut_off(self, broker: ClusterBroker) -> None:
        for other in self._cluster.brokers:
            if other is not broker:
                self._packets.cut_both(broker.port, other.port)

    def isolation(self) -> None:
        broker = self._cluster.broker(leader_of(self._cluster, self.topic))
        self._cut_off(broker)
        for server in self._zookeeper.servers:
            self._packets.cut_both(broker.port, server.port)
        self._pass(15)

    def cut_from_zookeeper(self) -> None:
        broker, direction = self._broker(), self._draw.choice(("to", "from", "both"))
        for server in self._zookeeper.servers:
            if direction != "from":
                self._packets.cut(broker.port, server.port)
            if direction != "to":
                self._packets.cut(server.port, broker.port)
        self._pass(15)

    def cut_and_killed(self) -> None:
        broker = self._broker()
        self._cut_off(broker)
        self._pass(8)
        broker.kill()
        self._pass(3)

    def leader_killed(self) -> None:
        self._cluster.broker(leader_of(self._cluster, self.topic, self._draw.randrange(PARTITIONS))).kill()
        self._pass(5)

    def all_killed(self) -> None:
        for broker in self._cluster.brokers:
            broker.kill()
        for broker in self._draw.sample(self._cluster.brokers, 3):
            broker.start()
            self._pass(1)

    def killed_while_it_starts(self) -> None:
        broker = self._broker()
        broker.kill()
        for _ in range(3):
            starting = threading.Timer(self._draw.uniform(0.1, 1.5), broker.kill)
            starting.start()
            try:
                broker.start()
            except Exception as ended:
                print(f"  {type(ended).__name__} while it starts, as it should")
            starting.join()
            broker.kill()

    def paused(self) -> None:
        self._broker().pause()
        self._pass(8)

    def slow(self) -> None:
        broker = self._broker()
        for _ in range(30):
            broker.pause()
            time.sleep(0.1)
            broker.resume()
            time.sleep(0.1)

    def restarted(self) -> None:
        self._broker().restart()

    def rolling_restart(self) -> None:
        for broker in self._cluster.brokers:
            broker.restart()
            until(self._cluster, lambda found: in_sync(found, self.topic, 3))

    def disk_wiped(self) -> None:
        broker = self._broker()
        broker.kill()
        shutil.rmtree(broker.data)
        self._pass(3)

    def zookeeper_leader_killed(self) -> None:
        self._zookeeper.leader().kill()
        self._pass(5)

    def zookeeper_away(self) -> None:
        for server in self._zookeeper.servers:
            server.pause()
        self._pass(60)


@pytest.mark.soak
@pytest.mark.needs("packet-filter")
@pytest.mark.timeout(0)
def test_no_order_of_bad_days_loses_or_doubles_what_was_acknowledged(tmp_path: Path) -> None:
    seed, counts, records = soak_seed(), Counter[str](), 0
    print(f"\n{SEED_VARIABLE}={seed}")
    deadline = soak_time()
    with (
        ZooKeeper(3) as zookeeper,
        PacketFilter() as packets,
        cluster_on(zookeeper, tmp_path, packets=packets) as cluster,
    ):
        days = BadDays(cluster, zookeeper, packets, random.Random(seed))
        draw = random.Random(seed)
        while not deadline.passed:
            days.topic = f"{TOPIC}-{sum(counts.values())}"
            create(cluster, days.topic, partitions=PARTITIONS)
            with SteadyProducer(cluster, days.topic, PARTITIONS) as producer:
                for _ in range(DAYS_OF_A_CHECK):
                    # Every kind once, before any comes again.
                    kind = draw.choice([each for each in days.kinds if counts[each.__name__] == fewest(counts, days)])
                    print(f"{time.strftime('%H:%M:%S')} {kind.__name__.replace('_', ' ')}", flush=True)
                    kind()
                    counts[kind.__name__] += 1
                    days.heal()
                    producer.wait_for_more()
                    if deadline.passed:
                        break
            check(cluster, producer)
            records += len(producer.acknowledged)
    print(f"cluster: {sum(counts.values())} bad days, {records} records acknowledged and read: {dict(counts)}")


def fewest(counts: Counter[str], days: BadDays) -> int:
    return min(counts[each.__name__] for each in days.kinds)
