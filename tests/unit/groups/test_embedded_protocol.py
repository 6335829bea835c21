"""Subscriptions and assignments of the consumer embedded protocol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.groups.consumer_rig import subscription

from penstock.groups.consumer.embedded_protocol import (
    MalformedProtocolError,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)

names = st.text(st.characters(codec="ascii"), min_size=1, max_size=20)
indexes = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=5)


@given(topics=st.lists(names, max_size=5), owned=st.dictionaries(names, indexes), version=st.integers(0, 4))
def test_a_subscription_of_a_consumer_is_decoded(topics: list[str], owned: dict[str, list[int]], version: int) -> None:
    written = subscription(topics, owned, version)  # pyright: ignore[reportArgumentType]

    read = read_subscription(written)

    assert (read.version, read.topics, read.rack_id) == (version, tuple(topics), None)
    assert dict(read.owned) == ({name: tuple(sorted(held)) for name, held in owned.items()} if version else {})
    assert read_version(written) == version


def test_a_rack_is_read_from_version_3_on() -> None:
    without = subscription(["a"], {}, 3)

    read = read_subscription(without[:-2] + (4).to_bytes(2) + b"east")

    assert read.rack_id == "east"


@given(partitions=st.dictionaries(names, indexes), version=st.integers(0, 9))
def test_an_assignment_round_trips(partitions: dict[str, list[int]], version: int) -> None:
    written = write_assignment(partitions.items(), version)

    read = read_assignment(written)

    assert dict(read.partitions) == {name: tuple(sorted(held)) for name, held in partitions.items()}
    assert read_version(written) == min(version, 3)


@given(data=st.binary(max_size=200))
def test_random_bytes_raise_only_malformed(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except MalformedProtocolError:
            continue


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_truncated_subscription_is_malformed(cut: int) -> None:
    whole = subscription(["topic"], {"topic": [1, 2]}, 3)
    assert cut < len(whole)

    with pytest.raises(MalformedProtocolError):
        read_subscription(whole[:-cut])


def test_an_array_length_beyond_the_data_is_malformed() -> None:
    with pytest.raises(MalformedProtocolError, match="2147483647 items"):
        read_assignment(b"\0\1" + (2**31 - 1).to_bytes(4))
