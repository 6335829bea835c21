"""The scrubber finds bit rot in finished segments, reports its position, and is throttled."""

from tests.unit.storage.logs import ManualClock, Seeded, Settings, batch_of, put

from penstock.model.ids import TOPIC_ID_ZERO, TopicPartition
from penstock.model.threads import ThreadPool
from penstock.observe.log import logger
from penstock.storage.names import LOG
from penstock.storage.scrubber import Scrubber
from penstock.storage.store import LogStore
from penstock.storage.throttle import Throttle
from penstock.testing.mem_disk import MemDisk


def store_of(disk: MemDisk, clock: ManualClock) -> LogStore:
    store = LogStore(
        ["/data"], disk=disk, threads=ThreadPool(1), clock=clock, randomness=Seeded(), log=logger("storage")
    )
    store.load(Settings(), broker_id=1, cluster_id="c")
    for partition in range(3):
        log = store.create(TopicPartition("t", partition), TOPIC_ID_ZERO, Settings(segment_bytes_effective=500))
        for at in range(20 if partition != 1 else 1):
            put(log, batch_of(b"%d" % at))
    return store


def throttle_of(clock: ManualClock) -> Throttle:
    def sleep(seconds: float) -> None:
        clock.ms += round(seconds * 1000)

    return Throttle(10_000, clock, sleep)


def test_every_finished_segment_is_read_in_a_round():
    clock = ManualClock()
    store = store_of(MemDisk(), clock)
    scrubber = Scrubber()
    seen = []

    while jobs := scrubber.next_jobs(store):
        for job in jobs:
            assert not scrubber.note(job, job.run(throttle_of(clock)))
            seen.append((job.tp.partition, job.segment.base))

    expected = [(log.tp.partition, segment.base) for log in store for segment in log.segments[:-1]]
    assert seen == expected
    assert {partition for partition, _ in seen} == {0, 2}


def test_damage_is_reported_once_with_its_position_until_it_is_repaired():
    disk = MemDisk()
    clock = ManualClock()
    store = store_of(disk, clock)
    log = store.get(TopicPartition("t", 2))
    path = log.segments[1].path(log.path, LOG)
    disk.flip(path, 65)
    scrubber = Scrubber()
    jobs = scrubber.next_jobs(store) + scrubber.next_jobs(store)

    found = [(job, finding) for job in jobs if (finding := job.run(throttle_of(clock))) is not None]

    [(job, finding)] = found
    assert (finding.event, finding.path, finding.offset, finding.serious) == (
        "segment_damaged",
        path,
        log.segments[1].base,
        True,
    )
    assert scrubber.note(job, finding)
    assert not scrubber.note(job, finding)
    disk.flip(path, 65)
    assert not scrubber.note(job, job.run(throttle_of(clock)))
    assert scrubber.damaged == {}


def test_a_segment_that_was_dropped_meanwhile_is_skipped():
    clock = ManualClock()
    store = store_of(MemDisk(), clock)
    jobs = Scrubber().next_jobs(store)
    store.get(TopicPartition("t", 0)).drop_oldest(1)

    assert jobs[0].run(throttle_of(clock)) is None


def test_the_throttle_limits_the_rate():
    clock = ManualClock(0)
    throttle = throttle_of(clock)

    for _ in range(100):
        throttle.done(1000)

    assert 9_500 <= clock.ms <= 10_000


def test_idle_time_does_not_accumulate_in_the_throttle():
    clock = ManualClock(0)
    throttle = throttle_of(clock)
    throttle.done(1000)
    clock.ms += 60_000
    throttle.done(1000)
    before = clock.ms

    for _ in range(20):
        throttle.done(1000)

    assert clock.ms - before >= 1500
