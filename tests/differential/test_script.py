"""The script's own tools: batches, tokens, and the comparison itself."""

from __future__ import annotations

import pytest

from .batches import GZIP, LZ4, NONE, SNAPPY, T0, ZSTD, Batch, Record, read_batches
from .compare import FieldDifference, differences_between
from .differences import ANYTHING, Place
from .normal import Tokens, normalise
from .script import TIMED_PLAYS_MAX, Run, Scenario, Target, play


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_reads_back_as_it_was_made(codec: int) -> None:
    records = (Record(key=b"k", value=None, headers=(("h", b"1"),)), Record(value=b"two", timestamp_delta=7))
    [found] = read_batches(Batch(records=records, codec=codec, base_offset=5).to_bytes())
    assert found["records"] == [[0, 0, "k", None, [["h", "1"]]], [1, 7, None, "two"]]
    assert (found["base_offset"], found["max_timestamp"], found["crc"] != "wrong") == (5, T0 + 7, True)


def test_an_incomplete_batch_is_shown_with_its_size() -> None:
    whole = Batch().to_bytes()
    assert read_batches(whole + whole[:-1])[1] == {"cut_batch_bytes": len(whole) - 1}


def test_a_wrong_crc_is_shown() -> None:
    assert read_batches(Batch(crc_xor=1).to_bytes())[0]["crc"] == "wrong"


def test_a_differing_field_is_named_by_its_path() -> None:
    kafka = {"topics": [{"name": "a", "error_code": "none"}, {"name": "b", "error_code": "none"}]}
    ours = {"topics": [{"name": "b", "error_code": "corrupt_message"}]}
    assert differences_between(kafka, ours) == [
        FieldDifference(path="topics[a]", kafka={"name": "a", "error_code": "none"}, penstock="<absent>"),
        FieldDifference(path="topics[b].error_code", kafka="none", penstock="corrupt_message"),
    ]


def test_true_is_not_one() -> None:
    assert differences_between({"a": 1}, {"a": True})


def test_a_place_covers_only_what_it_names() -> None:
    found = FieldDifference(path="response.topics[a].error_code", kafka="none", penstock="corrupt_message")
    assert Place(scenario="produce/*", field="*.error_code", penstock="corrupt_message").covers("produce/x", found)
    assert not Place(scenario="fetch/*", field=ANYTHING).covers("produce/x", found)
    assert not Place(scenario="produce/*", field="response.error_code").covers("produce/x", found)
    assert not Place(scenario="produce/*", field=ANYTHING, kafka="corrupt_message").covers("produce/x", found)


def test_the_same_id_gets_the_same_token() -> None:
    tokens = Tokens("127.0.0.1:9", broker_id=1)
    tokens.add_name("long.name.a", "a")
    first, second = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
    seen = normalise({"topics": [{"name": "long.name.a", "topic_id": first}]}, tokens, own_only=False)
    assert seen == {"topics": [{"name": "<a>", "topic_id": "<id of a>"}]}
    later = normalise({"ids": [{"topic_id": first}, {"topic_id": second}]}, tokens, own_only=False)
    assert later == {"ids": [{"topic_id": "<id 1>"}, {"topic_id": "<id of a>"}]}


def test_topics_of_other_scenarios_are_left_out_of_requests_for_all() -> None:
    tokens = Tokens("127.0.0.1:9", broker_id=1)
    tokens.add_name("mine", "a")
    assert normalise({"topics": [{"name": "mine"}, {"name": "other"}]}, tokens, own_only=True) == {
        "topics": [{"name": "<a>"}]
    }


TARGET = Target(bootstrap="127.0.0.1:9", broker_id=1, advertised={})


@pytest.mark.parametrize(("is_timed", "plays"), [(True, 3), (False, 1)])
def test_only_scenarios_that_depend_on_real_time_are_repeated(is_timed: bool, plays: int) -> None:
    names: list[str] = []

    def scene(run: Run) -> None:
        names.append(run.name("a"))
        if is_timed:
            run.timed()

    play(Scenario(family="f", api="fetch", name="s", play=scene), 4, TARGET, is_right=lambda _: len(names) == 3)

    assert len(set(names)) == len(names) == plays


def test_a_scenario_that_is_never_right_is_repeated_a_bounded_number_of_times() -> None:
    plays: list[Run] = []

    def scene(run: Run) -> None:
        plays.append(run)
        run.timed()
        raise AssertionError("a session was over")

    with pytest.raises(AssertionError, match="a session was over"):
        play(Scenario(family="f", api="fetch", name="s", play=scene), 4, TARGET)
    assert len(plays) == TIMED_PLAYS_MAX
