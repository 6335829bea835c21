"""Full, failing and missing disks: writes get a storage error, reads are served, other disks are not affected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin.cluster import DescribeLogDirsRequest

from cluster.small_disks import MakeDisk, SmallDisk, vanish
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import ProcessFailed, free_port
from protocol.batches import batch, records_of
from protocol.raw import EARLIEST, KAFKA_STORAGE_ERROR, NONE, Wire
from protocol.topics import create_topic, wait_until

pytestmark = pytest.mark.penstock_only
LARGE = b"x" * 500_000
TIMEOUT = 60.0


@contextmanager
def running(*folders: Path, **settings: str) -> Iterator[PenstockProcess]:
    """A broker with its data in these folders."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    with PenstockProcess(data=folders[0], settings={"log.dirs": ",".join(map(str, folders)), **given}) as own:
        yield own


def write_until_refused(wire: Wire, topic: str) -> tuple[int, Any]:
    """Write large messages until one is refused; returns how many were acknowledged, and the error."""
    for written in range(1000):
        response = wire.produce(topic, batch(values=[b"%d " % written + LARGE]))
        if response.error_code != NONE:
            return written, response
        assert response.base_offset == written
    raise AssertionError("never refused")


def assert_readable(wire: Wire, topic: str, count: int) -> None:
    """Check that every acknowledged message can be read."""
    assert wire.offset(topic) == count
    offset = 0
    while offset < count:
        records = records_of(wire.fetch(topic, offset, partition_bytes_max=4 << 20).records)
        assert records, f"nothing at {offset}"
        for found, _, value in records:
            assert (found, value) == (offset, b"%d " % offset + LARGE)
            offset += 1


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(make_disk: MakeDisk) -> None:
    disk = make_disk("disk")
    with running(disk.folder / "data") as broker, Wire(broker.bootstrap) as wire:
        create_topic(broker.bootstrap, "t")
        disk.fill(leave_bytes=6 << 20)

        written, refusal = write_until_refused(wire, "t")

        assert written > 3
        assert refusal.error_code == KAFKA_STORAGE_ERROR
        assert_readable(wire, "t", written)
        assert wire.produce("t", batch(values=[LARGE])).error_code == KAFKA_STORAGE_ERROR
        assert broker.alive

        disk.free()
        wait_until(lambda: write(wire, "t", written), what="a write after room was made")
        assert_readable(wire, "t", written + 1)
        broker.restart()
        with Wire(broker.bootstrap) as again:
            assert_readable(again, "t", written + 1)


def write(wire: Wire, topic: str, number: int) -> bool:
    return bool(wire.produce(topic, batch(values=[b"%d " % number + LARGE])).error_code == NONE)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_that_stopped_on_a_full_disk_is_complete_when_there_is_room_again(
    make_disk: MakeDisk, end: str
) -> None:
    disk = make_disk("disk")
    with running(disk.folder / "data") as broker:
        create_topic(broker.bootstrap, "t")
        disk.fill(leave_bytes=5 << 20)
        with Wire(broker.bootstrap) as wire:
            written, _ = write_until_refused(wire, "t")
        disk.fill()

        getattr(broker, end)()
        start_or_refuse(broker)
        disk.free()
        if not broker.alive:
            broker.start()

        with Wire(broker.bootstrap) as wire:
            wait_until(lambda: write(wire, "t", written), what="a write after room was made")
            assert_readable(wire, "t", written + 1)


def start_or_refuse(broker: PenstockProcess) -> None:
    """Start a broker; on a full disk it may refuse, with a message that says why."""
    try:
        broker.start()
    except ProcessFailed as failure:
        if "full" not in str(failure).splitlines()[-1]:
            raise


def test_retention_makes_room_on_a_full_disk(make_disk: MakeDisk) -> None:
    disk = make_disk("disk")
    with running(disk.folder / "data", log_retention_check_interval_ms="100", log_segment_delete_delay_ms="100") as own:
        create_topic(own.bootstrap, "t", configs={"segment.bytes": "2097152", "retention.bytes": "6291456"})
        with Wire(own.bootstrap) as wire:
            disk.fill(leave_bytes=9 << 20)

            def wrote_more_than_fits() -> bool:
                write(wire, "t", 0)
                return wire.offset("t") > 20

            wait_until(wrote_more_than_fits, what="room made by retention", seconds_max=60)
            assert wire.offset("t", EARLIEST) > 0


def test_topics_on_a_full_disk_can_be_deleted(make_disk: MakeDisk) -> None:
    disk = make_disk("disk")
    with running(disk.folder / "data", log_segment_delete_delay_ms="100") as broker:
        for name in ("large", "small"):
            create_topic(broker.bootstrap, name)
        with Wire(broker.bootstrap) as wire:
            write_until_refused(wire, "large")

            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            [(_, done)] = admin.delete_topics(["large"]).items()
            done.result(TIMEOUT)

            wait_until(lambda: write(wire, "small", 0), what="room for the other topic")
            assert_readable(wire, "small", 1)


# Several disks, one of them bad


def folders_by_partition(wire: Wire) -> dict[tuple[str, int], str]:
    response = wire.ask(DescribeLogDirsRequest(version=4, topics=None))
    return {
        (topic.name, partition.partition_index): directory.log_dir
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
    }


def directory_errors(wire: Wire) -> dict[str, int]:
    response = wire.ask(DescribeLogDirsRequest(version=4, topics=None))
    return {directory.log_dir: directory.error_code for directory in response.results}


def partitions_by_folder(broker: PenstockProcess, first: SmallDisk, second: SmallDisk) -> tuple[list[int], list[int]]:
    """Create six partitions with one message each; returns those on the first and on the second disk."""
    create_topic(broker.bootstrap, "t", partitions=6)
    with Wire(broker.bootstrap) as wire:
        for partition in range(6):
            assert wire.produce("t", batch(values=[b"first"]), partition=partition).error_code == NONE
        placed = folders_by_partition(wire)
    on = [
        [partition for partition in range(6) if placed["t", partition].startswith(str(disk.folder))]
        for disk in (first, second)
    ]
    assert len(on[0]) == len(on[1]) == 3, f"partitions are not spread: {placed}"
    return on[0], on[1]


def codes(broker: PenstockProcess, partitions: list[int]) -> set[int]:
    with Wire(broker.bootstrap) as wire:
        return {wire.produce("t", batch(values=[b"x"]), partition=partition).error_code for partition in partitions}


def test_a_folder_that_disappears_takes_only_its_partitions_offline(make_disk: MakeDisk) -> None:
    good, bad = make_disk("good", 64), make_disk("bad", 64)
    with running(good.folder / "data", bad.folder / "data", log_segment_bytes="1048576") as broker:
        on_good, on_bad = partitions_by_folder(broker, good, bad)

        vanish(bad.folder / "data")

        # Open files stay usable; the first new one shows the loss.
        with Wire(broker.bootstrap) as wire:
            refused = [code_until_refused(wire, partition) for partition in on_bad]
        assert refused == [KAFKA_STORAGE_ERROR] * len(on_bad)
        assert codes(broker, on_bad) == {KAFKA_STORAGE_ERROR}
        assert codes(broker, on_good) == {NONE}
        create_topic(broker.bootstrap, "new", partitions=4)
        with Wire(broker.bootstrap) as wire:
            for partition in range(4):
                assert wire.produce("new", batch(values=[b"x"]), partition=partition).error_code == NONE
            placed = folders_by_partition(wire)
            assert all(placed["new", partition].startswith(str(good.folder)) for partition in range(4))


def test_a_broker_without_any_folder_is_not_ready(tmp_path: Path) -> None:
    data = tmp_path / "data"
    page = f"http://127.0.0.1:{free_port()}/readyz"
    with running(data, log_segment_bytes="1048576", metrics_listener=page.split("/")[2]) as broker:
        create_topic(broker.bootstrap, "t")
        wait_until(lambda: status_and_body(page) == (200, {"status": "ready"}), what="a broker that is ready")

        vanish(data)
        with Wire(broker.bootstrap) as wire:
            assert code_until_refused(wire, 0) == KAFKA_STORAGE_ERROR

        wait_until(lambda: status_and_body(page)[0] == 503, what="a broker that is not ready")
        _, body = status_and_body(page)
        assert body["status"] == "not ready"
        assert str(data) in body["waiting_for"][0]


def status_and_body(page: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(page, timeout=TIMEOUT) as response:
            return response.status, json.load(response)
    except HTTPError as response:
        return response.code, json.load(response)


def code_until_refused(wire: Wire, partition: int) -> int:
    """The first error of at most ten large writes, which need new files."""
    for _ in range(10):
        code = int(wire.produce("t", batch(values=[LARGE]), partition=partition).error_code)
        if code != NONE:
            return code
    return NONE


def test_a_disk_that_is_missing_at_the_start_does_not_affect_the_others(make_disk: MakeDisk) -> None:
    good, bad = make_disk("good"), make_disk("bad")
    with running(good.folder / "data", bad.folder / "data") as broker:
        on_good, on_bad = partitions_by_folder(broker, good, bad)
        broker.stop()
        bad.read_only()

        broker.start()

        assert codes(broker, on_good) == {NONE}
        assert codes(broker, on_bad) == {KAFKA_STORAGE_ERROR}
        with Wire(broker.bootstrap) as wire:
            errors = directory_errors(wire)
            assert errors[str(good.folder / "data")] == NONE
            assert errors[str(bad.folder / "data")] == KAFKA_STORAGE_ERROR
        broker.stop()
        bad.writable()
        broker.start()
        assert codes(broker, on_bad + on_good) == {NONE}


def test_a_full_disk_beside_one_with_room_refuses_only_its_own_partitions(make_disk: MakeDisk) -> None:
    roomy, full = make_disk("roomy"), make_disk("full")
    with running(roomy.folder / "data", full.folder / "data") as broker:
        on_roomy, on_full = partitions_by_folder(broker, roomy, full)

        full.fill()

        with Wire(broker.bootstrap) as wire:
            refused = {
                wire.produce("t", batch(values=[LARGE]), partition=partition).error_code for partition in on_full
            }
            assert refused == {KAFKA_STORAGE_ERROR}
            for partition in on_full:
                assert records_of(wire.fetch("t", partition=partition).records) == [(0, None, b"first")]
        assert codes(broker, on_roomy) == {NONE}

        full.free()
        wait_until(lambda: codes(broker, on_full) == {NONE}, what="writes after room was made")
