"""Subscriptions by regular expression."""

import pytest
from tests.unit.groups.consumer_rig import Rig, Topics, assigned, refusal_of

from penstock.groups.consumer.events import ConsumerRegularExpression


def patterns(rig: Rig) -> dict[str, tuple[str, ...]]:
    return {pattern: resolved.topics for pattern, resolved in rig.group().state.patterns.items()}


def test_a_pattern_is_matched_by_a_job_and_assigned_afterwards() -> None:
    rig = Rig(Topics(ab=2, ac=1, b=1))
    rig.jobs_wait = True

    reply = rig.join("m1", regex="a.*")
    assert (reply.member_epoch, reply.assignment) == (1, ())

    rig.run_jobs()
    rig.pass_ms(0)
    response = rig.beat("m1", 1)
    assert response.member_epoch == 2
    assert (assigned(response, "ab"), assigned(response, "ac"), assigned(response, "b")) == ({0, 1}, {0}, set())


def test_a_pattern_matches_whole_names() -> None:
    rig = Rig(Topics(a=1, ab=1, ba=1))

    rig.join("m1", regex="a")

    assert patterns(rig) == {"a": ("a",)}


def test_a_second_member_with_a_known_pattern_is_assigned_at_once() -> None:
    rig = Rig(Topics(ab=2))
    rig.join("m1", regex="a.*")
    rig.beat("m1", 1)

    reply = rig.join("m2", regex="a.*")

    assert reply.member_epoch == 3
    assert rig.group().described_consumer().group_epoch == 3


def test_a_member_may_subscribe_by_names_and_a_pattern() -> None:
    rig = Rig(Topics(ab=1, b=1, c=1))

    rig.join("m1", "b", regex="a.*")

    reply = rig.beat("m1", 2)
    assert (assigned(reply, "ab"), assigned(reply, "b"), assigned(reply, "c")) == ({0}, {0}, set())


def test_created_topics_are_matched_at_most_every_ten_seconds() -> None:
    rig = Rig(Topics(a1=1))
    rig.join("m1", regex="a.*")
    rig.pass_ms(1_000)
    rig.change_topics(a2=1)
    assert patterns(rig) == {"a.*": ("a1",)}

    rig.pass_ms(9_001)

    assert patterns(rig) == {"a.*": ("a1", "a2")}
    assert assigned(rig.beat("m1", 1), "a2") == {0}


def test_a_deleted_topic_no_longer_matches() -> None:
    rig = Rig(Topics(a1=1, a2=1))
    rig.join("m1", regex="a.*")
    rig.beat("m1", 1)
    rig.pass_ms(20_000)

    rig.change_topics(a2=0)

    assert patterns(rig) == {"a.*": ("a1",)}
    assert assigned(rig.beat("m1", 2), "a2") == set()


def test_a_changed_pattern_revokes_the_old_topics_at_once() -> None:
    rig = Rig(Topics(a=1, b=1))
    rig.join("m1", regex="a")
    rig.beat("m1", 1)
    rig.jobs_wait = True

    reply = rig.beat("m1", 2, regex="b")

    assert assigned(reply, "a") == set()
    rig.run_jobs()
    rig.pass_ms(0)
    assert patterns(rig) == {"b": ("b",)}
    response = rig.beat("m1", 2, owned={})
    assert assigned(response, "b") == {0}


def test_a_member_that_replaces_its_pattern_by_names_is_assigned_at_once() -> None:
    rig = Rig(Topics(a=1, b=1))
    rig.join("m1", regex="a")
    rig.beat("m1", 1)

    reply = rig.beat("m1", 2, topics=["b"], regex="", owned={})

    assert (assigned(reply, "a"), assigned(reply, "b")) == (set(), {0})
    assert patterns(rig) == {}


def test_an_unused_pattern_is_deleted() -> None:
    rig = Rig(Topics(a=1))
    rig.join("m1", regex="a")
    rig.join("m2", "a")
    rig.leave("m1")

    assert patterns(rig) == {}
    assert ConsumerRegularExpression("g", "a", None) in rig.log


def test_a_pattern_that_another_member_uses_stays() -> None:
    rig = Rig(Topics(a=1))
    rig.join("m1", regex="a")
    rig.join("m2", regex="a")

    rig.leave("m1")

    assert patterns(rig) == {"a": ("a",)}


def test_a_new_pattern_during_a_job_is_matched_by_the_next_job() -> None:
    rig = Rig(Topics(a=1, b=1))
    rig.join("m1", regex="a")
    rig.pass_ms(20_000)
    rig.jobs_wait = True
    rig.change_topics(c=1)
    rig.join("m2", regex="b")
    assert len(rig.jobs) == 1

    rig.run_jobs()

    assert patterns(rig) == {"a": ("a",), "b": ("b",)}


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("(abc", "missing closing )"),
        ("[a", "missing closing ]"),
        ("*a", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("(?P<n", "invalid named capture"),
        ("\\", "trailing backslash at end of expression"),
        ("\\8", "invalid escape sequence"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("[z-a]", "invalid character class range"),
    ],
)
def test_an_invalid_pattern_is_rejected_with_kafkas_message(pattern: str, fault: str) -> None:
    rig = Rig()

    reply = rig.join("m1", regex=pattern)

    assert refusal_of(reply) == (
        "INVALID_REGULAR_EXPRESSION",
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {fault}.",
    )
    assert rig.log == []


def test_a_pattern_that_compiles_too_large_is_rejected() -> None:
    rig = Rig()

    reply = rig.join("m1", regex="((a{100}){100}){100}")

    assert refusal_of(reply)[0] == "INVALID_REGULAR_EXPRESSION"


def test_after_a_restart_patterns_are_matched_again() -> None:
    rig = Rig(Topics(a1=1))
    rig.join("m1", regex="a.*")
    rig.beat("m1", 1)
    rig.topics.counts["a2"] = 1
    rig.pass_ms(20_000)
    rig.restart()

    rig.beat("m1", 2)

    assert patterns(rig) == {"a.*": ("a1", "a2")}
