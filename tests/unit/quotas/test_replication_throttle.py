"""Throttles of replication: bytes beyond a second's worth have to wait."""

import pytest

from penstock.quotas.replication import ReplicationThrottle, is_named


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_bytes_of_one_second_go_at_once_and_more_have_to_wait() -> None:
    time = Time()
    throttle = ReplicationThrottle(lambda: 1_000, time)

    assert throttle.copied(1_000) == 0
    assert not throttle.exceeded
    assert throttle.copied(500) == 500
    assert throttle.exceeded
    time.now_s += 0.6
    assert not throttle.exceeded


def test_a_rate_that_is_raised_counts_from_then_on() -> None:
    time, rate = Time(), [10]
    throttle = ReplicationThrottle(lambda: rate[0], time)
    throttle.copied(100)
    rate[0] = 1_000_000

    time.now_s += 9.5
    assert throttle.copied(1) == 0


@pytest.mark.parametrize(
    ("replicas", "named"),
    [(("*",), True), (("1:2",), True), (("0:1", "1:2"), True), (("1:1", "2:2"), False), ((), False)],
)
def test_a_topic_names_its_throttled_replicas(replicas: tuple[str, ...], named: bool) -> None:
    assert is_named(replicas, 1, 2) is named
