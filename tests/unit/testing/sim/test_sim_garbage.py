"""The garbage of a simulation is collected after it, and only then."""

import gc
import weakref

from penstock.testing.sim.garbage import collected_after


class Knot:
    """Refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_is_collected_at_the_end_of_the_block() -> None:
    with collected_after():
        knot = weakref.ref(Knot())
        assert not gc.isenabled()
        assert knot() is not None

    assert knot() is None
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collected_after():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
