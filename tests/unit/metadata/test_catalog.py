"""The catalog follows a store that reports late, several changes at once, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.unit.metadata.virtual_time import SeededRandomness, VirtualLoop, run_virtual

from penstock.metadata.catalog import Catalog
from penstock.metadata.following import HELD_MAX, Following
from penstock.metadata.image import ImageDelta
from penstock.metadata.nodes import Change, Changes, Gap, Snapshot
from penstock.metadata.operations import Create, Delete, Set
from penstock.metadata.records import BROKER_CONFIGS, CONFIGS, pack
from penstock.metadata.store import SessionEvent, StoreUnavailable
from penstock.testing.sim.store import SimSession, SimSource, SimStore, StoreFaults


def changes(number: int) -> Changes:
    return Changes(number=number, changes=(Change(path="/a", data=b"%d" % number),))


def read_at(following: Following, number: int) -> list[Changes]:
    return following.read(Snapshot(number=number, nodes={}), following.gaps)


def test_a_report_that_is_not_newer_changes_nothing() -> None:
    following = Following()
    assert read_at(following, 5) == []
    assert [following.arrived(changes(number)) is not None for number in (4, 5, 6, 6, 9, 7)] == [
        False,
        False,
        True,
        False,
        True,
        False,
    ]
    assert following.number == 9


def test_reports_wait_while_the_tree_is_read() -> None:
    following = Following()
    assert following.arrived(changes(4)) is None
    assert following.arrived(changes(7)) is None
    assert following.stale

    held = read_at(following, 5)

    assert (held, following.stale) == ([changes(4), changes(7)], False)
    assert [following.arrived(report) for report in held] == [None, changes(7)]


def test_a_gap_while_the_tree_is_read_has_it_read_once_more() -> None:
    following = Following()
    following.arrived(changes(4))
    before = following.gaps
    following.arrived(Gap())
    following.arrived(changes(9))

    assert following.read(Snapshot(number=6, nodes={}), before) == []
    assert (following.stale, following.number) == (True, 6)
    assert read_at(following, 8) == [changes(9)]


def test_an_older_tree_is_refused() -> None:
    following = Following()
    read_at(following, 8)
    following.arrived(Gap())
    assert not following.is_newer(Snapshot(number=7, nodes={}))
    assert following.is_newer(Snapshot(number=8, nodes={}))


def test_held_reports_are_bounded() -> None:
    following = Following()
    gaps = following.gaps
    for number in range(HELD_MAX + 1):
        following.arrived(changes(number))
    assert following.gaps == gaps + 1
    assert len(read_at(following, 0)) == 1


class Followed:
    """A catalog on a simulated store, with what it told its listeners."""

    def __init__(self, server: SimStore, session: SimSession) -> None:
        self.server = server
        self.session = session
        self.catalog = Catalog()
        self.deltas: list[ImageDelta] = []

    def setting(self, broker: str) -> str | None:
        return self.catalog.image.broker_settings(broker).get("k")


async def followed(seed: int = 1) -> Followed:
    server = SimStore(SeededRandomness(seed), session_timeout_s=4.0)
    session = await SimSource(server).open()
    await session.multi([Create(CONFIGS, b""), Create(BROKER_CONFIGS, b""), Create(path_of("1"), value("a"))])
    rig = Followed(server, session)
    await rig.catalog.open(session)
    rig.catalog.listen(rig.deltas.append)
    return rig


def path_of(broker: str) -> str:
    return f"{BROKER_CONFIGS}/{broker}"


def value(text: str) -> bytes:
    return pack({"k": text})


def run(act: Coroutine[Any, Any, None]) -> None:
    run_virtual(act)


def test_at_least_waits_for_a_late_report() -> None:
    async def act() -> None:
        rig = await followed()
        rig.server.faults = StoreFaults(watch_delay_s_max=5.0)
        number = await rig.session.multi([Set(path_of("1"), value("b"))])
        assert rig.setting("1") == "a", "the report is late"

        await rig.catalog.at_least(number)

        assert (rig.setting("1"), rig.catalog.number) == ("b", number)
        await rig.catalog.at_least(number)

    run(act())


def test_at_least_fails_when_the_catalog_is_closed() -> None:
    async def act() -> None:
        rig = await followed()
        waiting = asyncio.ensure_future(rig.catalog.at_least(rig.catalog.number + 1))
        await asyncio.sleep(0)
        rig.catalog.close()
        with pytest.raises(StoreUnavailable):
            await waiting
        with pytest.raises(StoreUnavailable):
            await rig.catalog.at_least(rig.catalog.number + 1)

    run(act())


def test_after_a_gap_the_difference_arrives_as_one_delta_with_what_was_deleted() -> None:
    async def act() -> None:
        rig = await followed()
        other = await SimSource(rig.server).open()
        await other.multi([Create(path_of("2"), value("x")), Create(path_of("3"), value("y"))])
        await rig.catalog.at_least(rig.server.number)
        rig.deltas.clear()

        rig.server.suspend(rig.session.session, 2.0)
        await asyncio.sleep(0.5)
        await other.multi([Set(path_of("1"), value("b"))])
        await other.multi([Delete(path_of("2"))])
        number = await other.multi([Create(path_of("4"), value("z"))])
        assert rig.setting("1") == "a"
        await rig.catalog.at_least(number)

        told = [delta for delta in rig.deltas if delta.broker_configs]
        assert [delta.broker_configs for delta in told] == [frozenset({"1", "2", "4"})]
        assert [rig.setting(broker) for broker in "1234"] == ["b", None, "y", "z"]

    run(act())


@pytest.mark.parametrize("event", [SessionEvent.RESUMED, SessionEvent.RENEWED])
def test_an_interrupted_session_has_the_tree_read_again(event: SessionEvent) -> None:
    async def act() -> None:
        rig = await followed()
        events: list[SessionEvent] = []
        rig.session.on_session(events.append)
        other = await SimSource(rig.server).open()
        rig.server.suspend(rig.session.session, 1.0 if event is SessionEvent.RESUMED else 8.0)
        await asyncio.sleep(0.1)
        number = await other.multi([Set(path_of("1"), value("b"))])
        await rig.catalog.at_least(number)
        assert events[-1] is event
        assert rig.setting("1") == "b"

    run(act())


def test_changes_made_while_it_loads_are_in_the_image() -> None:
    async def act() -> None:
        rig = await followed()
        for seed in range(20):
            catalog = Catalog()
            opening = asyncio.ensure_future(catalog.open(rig.session))
            text = f"while loading {seed}"
            number = await rig.session.multi([Set(path_of("1"), value(text))])
            await opening
            await catalog.at_least(number)
            assert catalog.image.broker_settings("1") == {"k": text}
            catalog.close()

    run(act())


def test_a_listener_that_fails_is_reported_and_hurts_no_other() -> None:
    failures: list[str] = []

    async def act() -> None:
        rig = await followed()

        def fail(delta: ImageDelta) -> None:
            raise ValueError("a bug")

        heard: list[ImageDelta] = []
        rig.catalog.listen(fail)
        rig.catalog.listen(heard.append)
        number = await rig.session.multi([Set(path_of("1"), value("b"))])
        await rig.catalog.at_least(number)
        assert len(heard) == 1

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
        runner.run(act())
    assert failures == ["a bug"]
