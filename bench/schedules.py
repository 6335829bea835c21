"""``python -m bench.schedules``: how many schedules fit into a broker, how fast it restarts, and how late it delivers.

The report goes to the terminal. Lateness is from the due time of a message to the time at which a consumer has it; the
broker's processor time is that of the process.
"""

from __future__ import annotations

import argparse
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing.broker_process import PenstockProcess

DELIVER_AT = "penstock-deliver-at"
DUE = "penstock-due-ms"
YEAR_MS = 365 * 24 * 3_600_000
LEAD_MS = 4_000
"""Before the first message is due, all are written."""
TICKS_PER_S = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What pending schedules cost."""

    schedules: int
    bytes_more: int
    restart_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How late messages came."""

    partitions: int
    rate: int
    median_ms: float
    p99_ms: float
    cores: float


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def make_topics(bootstrap: str, partitions: int, later: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("due", partitions)])["due"].result(30)
    admin.create_topics([NewTopic("later", later, config={"schedule.target": "due"})])["later"].result(30)


def pending_of(broker: PenstockProcess) -> int:
    """Schedules that the broker has loaded, by its log."""
    lines = [line for line in broker.log.read_text().splitlines() if '"schedules_loaded"' in line]
    return int(lines[-1].partition('"schedules": ')[2].partition(",")[0]) if lines else -1


def measure_held(count: int) -> Held:
    with PenstockProcess() as broker:
        make_topics(broker.bootstrap, 1)
        to = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 200_000})
        begun = int(time.time() * 1000) + YEAR_MS
        before = memory_of(broker.pid)
        for number in range(count):
            due = begun + random.randrange(YEAR_MS)
            while True:
                try:
                    to.produce("later", key=f"reminder-{number}", value=b"x" * 50, headers={DELIVER_AT: str(due)})
                    break
                except BufferError:
                    to.poll(0.05)
        to.flush(300)
        broker.stop()
        loads = broker.log.read_text().count('"schedules_loaded"')
        began_s = time.monotonic()
        broker.start()
        while broker.log.read_text().count('"schedules_loaded"') <= loads:
            time.sleep(0.05)
        restart_s = time.monotonic() - began_s
        assert pending_of(broker) == count, f"{pending_of(broker)} of {count} schedules are loaded"
        return Held(schedules=count, bytes_more=memory_of(broker.pid) - before, restart_s=restart_s)


def measure_lateness(partitions: int, rate: int, seconds: int) -> Lateness:
    count = rate * seconds
    with PenstockProcess() as broker, ThreadPoolExecutor(1) as threads:
        make_topics(broker.bootstrap, partitions)
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "lateness", "fetch.wait.max.ms": 10})
        reader.assign([TopicPartition("due", index, 0) for index in range(partitions)])

        def read() -> list[int]:
            found: list[int] = []
            while len(found) < count:
                for message in reader.consume(5_000, 0.05):
                    now_ms = time.time_ns() // 1_000_000
                    found.append(now_ms - int(dict(message.headers() or [])[DUE]))
            return found

        reading = threads.submit(read)
        to = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 10**6})
        first = int(time.time() * 1000) + LEAD_MS + count // 50
        for number in range(count):
            # Written in another order than they are due in.
            at = first + (number * 7_919 % count) * 1_000 // rate
            to.produce("later", key=f"{number}", value=b"x" * 50, headers={DELIVER_AT: str(at)})
            if number % 10_000 == 0:
                to.poll(0)
        to.flush(60)
        left_s = first / 1000 - time.time()
        assert left_s > 0, f"the schedules were written {-left_s:.1f} s too late"
        time.sleep(left_s)
        begun = processor_s(broker.pid), time.monotonic()
        found = sorted(reading.result())
        cores = (processor_s(broker.pid) - begun[0]) / (time.monotonic() - begun[1])
        reader.close()
        return Lateness(
            partitions=partitions,
            rate=rate,
            median_ms=found[len(found) // 2],
            p99_ms=found[len(found) * 99 // 100],
            cores=cores,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=10_000, help="messages a second")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--partitions", type=int, nargs="*", default=[1, 50], help="of the target")
    options = parser.parse_args()
    if options.schedules:
        held = measure_held(options.schedules)
        print(f"{held.schedules:,} schedules: {held.bytes_more / 1e6:.0f} MB more, restart {held.restart_s:.1f} s")
    for partitions in options.partitions:
        late = measure_lateness(partitions, options.rate, options.seconds)
        print(
            f"{late.rate:,} messages/s to {late.partitions} partition(s): median {late.median_ms:.0f} ms, "
            f"p99 {late.p99_ms:.0f} ms late, {late.cores:.2f} cores"
        )


if __name__ == "__main__":
    main()
