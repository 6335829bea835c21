import threading
from collections.abc import Iterator

import pytest

from penstock.model.threads import ThreadPool

PATIENCE_S = 60.0


@pytest.fixture
def threads() -> Iterator[ThreadPool]:
    pool = ThreadPool(1)
    yield pool
    pool.shutdown()


def test_work_for_several_items_is_done_at_once_and_keeps_their_order(threads: ThreadPool) -> None:
    together = threading.Barrier(3, timeout=PATIENCE_S)

    def work(item: int) -> int:
        together.wait()
        return item * 10

    assert threads.run_all(work, [3, 1, 2], at_once=3) == [30, 10, 20]


def test_no_more_work_is_done_at_once_than_allowed(threads: ThreadPool) -> None:
    names = threads.run_all(lambda _: threading.current_thread().name, range(20), at_once=1)

    assert len(set(names)) == 1


def test_a_failure_of_one_item_is_raised(threads: ThreadPool) -> None:
    with pytest.raises(ZeroDivisionError):
        threads.run_all(lambda item: 1 // item, [1, 0, 2], at_once=2)


def test_a_pause_ends_when_its_event_is_set(threads: ThreadPool) -> None:
    stop = threading.Event()
    pausing = threads.executor.submit(threads.pause, 10 * PATIENCE_S, stop)
    stop.set()
    pausing.result(PATIENCE_S)
