"""The records of __consumer_offsets against bytes that Kafka 4.3.1's own serializers wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import group_records as wire
from penstock.wire import group_values as values
from penstock.wire.primitives import Malformed

ID = bytes(range(1, 17))
TIME_MS = 1_700_000_000_000

MEMBER = values.ClassicMember(
    member_id="m",
    group_instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=45_000,
    subscription=b"\1\2",
    assignment=b"\3",
)
STABLE = values.ClassicGroupValue(
    protocol_type="consumer", generation=5, protocol="range", leader="m", state_ms=TIME_MS, members=(MEMBER,)
)
CONSUMER_MEMBER = values.MemberMetadata(
    instance_id="i",
    client_id="c",
    client_host="/h",
    topics=("a", "b"),
    pattern="x.*",
    rebalance_timeout_ms=1000,
    assignor="uniform",
)
CURRENT = values.CurrentAssignment(
    member_epoch=4, previous_epoch=3, state=values.MemberState.UNREVOKED_PARTITIONS, assigned={ID: {0: 3, 2: 4}}
)
CURRENT_FRONT = "000000000004000000030102" + ID.hex() + "030000000000000002"
CURRENT_EPOCHS = "010009030000000300000004"
NOTHING_REVOKING = "01"
REVOKING_WITHOUT_EPOCHS = "02" + ID.hex() + "020000000100"

KEYS = {
    "0001000367c3bc00017400000007": values.Key(values.OFFSET, "gü", topic="t", partition=7),
    "0002000167": values.Key(values.GROUP, "g"),
    "0003000167": values.Key(values.CONSUMER_GROUP, "g"),
    "000500016700016d": values.Key(values.CONSUMER_MEMBER, "g", "m"),
    "0006000167": values.Key(values.CONSUMER_TARGET, "g"),
    "000700016700016d": values.Key(values.CONSUMER_TARGET_MEMBER, "g", "m"),
    "000800016700016d": values.Key(values.CONSUMER_CURRENT_MEMBER, "g", "m"),
    "00100001670003782e2a": values.Key(values.CONSUMER_REGEX, "g", "x.*"),
}

OFFSETS = {
    "0004000000000000002a00000003046dc3bc0000018bcfe5680000": values.OffsetValue(42, 3, "mü", TIME_MS),
    "0004000000000000002a00000003046dc3bc0000018bcfe568000100100102030405060708090a0b0c0d0e0f10": values.OffsetValue(
        42, 3, "mü", TIME_MS, topic_id=ID
    ),
    "0004000000000000002a00000003010000018bcfe568000100100102030405060708090a0b0c0d0e0f10": values.OffsetValue(
        42, 3, "", TIME_MS, topic_id=ID
    ),
    "0001000000000000002a00036dc3bc0000018bcfe568000000018bcfe65260": values.OffsetValue(
        42, -1, "mü", TIME_MS, TIME_MS + 60_000
    ),
}

OLD_OFFSETS = {
    "0000000000000000002a00036dc3bc0000018bcfe56800": values.OffsetValue(42, -1, "mü", TIME_MS),
    "0002000000000000002a00036dc3bc0000018bcfe56800": values.OffsetValue(42, -1, "mü", TIME_MS),
    "0003000000000000002a0000000300036dc3bc0000018bcfe56800": values.OffsetValue(42, 3, "mü", TIME_MS),
}

GROUP_V3 = (
    "00030008636f6e73756d657200000005000572616e676500016d0000018bcfe568000000000100016d00016900016300022f68000493e0"
    "0000afc80000000201020000000103"
)
OLD_GROUPS = {
    "00000008636f6e73756d657200000005000572616e676500016d0000000100016d00016300022f680000afc80000000201020000000103": (
        replace(STABLE, state_ms=-1, members=(replace(MEMBER, group_instance_id=None, rebalance_timeout_ms=45_000),))
    ),
    "00010008636f6e73756d657200000005000572616e676500016d0000000100016d00016300022f68000493e00000afc80000000201020000"
    "000103": replace(STABLE, state_ms=-1, members=(replace(MEMBER, group_instance_id=None),)),
    "00020008636f6e73756d657200000005000572616e676500016d0000018bcfe568000000000100016d00016300022f68000493e00000afc8"
    "0000000201020000000103": replace(STABLE, members=(replace(MEMBER, group_instance_id=None),)),
    "000409636f6e73756d6572000000050672616e6765026d0000018bcfe5680002026d02690263032f68000493e00000afc803010202030000"
    "": STABLE,
}

CONSUMER_VALUES = [
    (
        values.CONSUMER_GROUP,
        "0000000000090100081122334455667788",
        values.GroupEpoch(9, 0x1122334455667788),
        wire.consumer_group_value,
    ),
    (values.CONSUMER_GROUP, "00000000000900", values.GroupEpoch(9), wire.consumer_group_value),
    (
        values.CONSUMER_MEMBER,
        "00000269000263032f68030261026204782e2a000003e808756e69666f726d00",
        CONSUMER_MEMBER,
        wire.consumer_member_value,
    ),
    (
        values.CONSUMER_MEMBER,
        "00000269000263032f68030261026204782e2a000003e808756e69666f726d010010010000afc8020672616e676502070000",
        replace(CONSUMER_MEMBER, classic=values.ClassicMetadata(45_000, (("range", b"\7"),))),
        wire.consumer_member_value,
    ),
    (
        values.CONSUMER_TARGET,
        "0000000000090100080000018bcfe56800",
        values.AssignmentEpoch(9, TIME_MS),
        wire.consumer_target_value,
    ),
    (
        values.CONSUMER_TARGET_MEMBER,
        "0000020102030405060708090a0b0c0d0e0f100300000000000000020000",
        {ID: frozenset({0, 2})},
        wire.consumer_target_member_value,
    ),
    (
        values.CONSUMER_CURRENT_MEMBER,
        CURRENT_FRONT + CURRENT_EPOCHS + NOTHING_REVOKING + "00",
        CURRENT,
        wire.consumer_current_member_value,
    ),
    (
        values.CONSUMER_REGEX,
        "000003037831037832000000000000000c0000018bcfe5680000",
        values.ResolvedPattern(("x1", "x2"), 12, TIME_MS),
        wire.consumer_regex_value,
    ),
]


def read_value(kind: int, raw: bytes) -> object:
    return wire.read_offset(raw) if kind == values.OFFSET else wire.read_group_value(kind, raw)


@pytest.mark.parametrize(("raw", "key"), KEYS.items(), ids=[str(key.kind) for key in KEYS.values()])
def test_keys_equal_kafkas(raw: str, key: values.Key) -> None:
    if key.kind == values.OFFSET:
        written = wire.offset_key(key.group, key.topic, key.partition)
    else:
        written = wire.group_key(key.kind, key.group, key.name or None)

    assert written.hex() == raw
    assert wire.read_key(bytes.fromhex(raw)) == key


def test_a_key_of_version_0_is_an_offset() -> None:
    assert wire.read_key(bytes.fromhex("0000000167000174") + (7).to_bytes(4, "big")) == values.Key(
        values.OFFSET, "g", topic="t", partition=7
    )


@pytest.mark.parametrize("kind", [4, 9, 17, 99])
def test_an_unknown_kind_is_skipped(kind: int) -> None:
    assert wire.read_key(kind.to_bytes(2, "big") + b"whatever") is None


@pytest.mark.parametrize(("raw", "value"), OFFSETS.items())
def test_offsets_are_written_as_kafka_writes_them(raw: str, value: values.OffsetValue) -> None:
    assert wire.offset_value(*value).hex() == raw
    assert wire.read_offset(bytes.fromhex(raw)) == value


@pytest.mark.parametrize(("raw", "value"), OLD_OFFSETS.items())
def test_offsets_of_every_version_are_read(raw: str, value: values.OffsetValue) -> None:
    assert wire.read_offset(bytes.fromhex(raw)) == value


def test_a_group_is_written_as_kafka_writes_it() -> None:
    assert wire.group_value(STABLE).hex() == GROUP_V3
    assert wire.read_group_value(values.GROUP, bytes.fromhex(GROUP_V3)) == STABLE


@pytest.mark.parametrize(("raw", "value"), OLD_GROUPS.items(), ids=["v0", "v1", "v2", "v4"])
def test_groups_of_every_version_are_read(raw: str, value: values.ClassicGroupValue) -> None:
    assert wire.read_group_value(values.GROUP, bytes.fromhex(raw)) == value


@pytest.mark.parametrize(("kind", "raw", "value", "write"), CONSUMER_VALUES)
def test_consumer_groups_are_written_as_kafka_writes_them(
    kind: int, raw: str, value: values.GroupValue, write: object
) -> None:
    assert callable(write)
    assert write(value).hex() == raw
    assert read_value(kind, bytes.fromhex(raw)) == value


def test_an_unknown_version_is_malformed() -> None:
    with pytest.raises(Malformed):
        wire.read_offset(b"\0\5" + bytes(30))
    with pytest.raises(Malformed):
        wire.read_group_value(values.CONSUMER_GROUP, b"\0\1" + bytes(30))


def test_partitions_without_epochs_get_the_member_epoch() -> None:
    raw = CURRENT_FRONT + CURRENT_EPOCHS + REVOKING_WITHOUT_EPOCHS + "00"

    assert read_value(values.CONSUMER_CURRENT_MEMBER, bytes.fromhex(raw)) == replace(CURRENT, revoking={ID: {1: 4}})


def test_partitions_with_too_few_epochs_are_malformed() -> None:
    damaged = CURRENT_FRONT + "0100050200000003" + NOTHING_REVOKING + "00"

    with pytest.raises(Malformed):
        wire.read_group_value(values.CONSUMER_CURRENT_MEMBER, bytes.fromhex(damaged))


ALL_KINDS = [values.OFFSET, values.GROUP, *(kind for kind, *_ in CONSUMER_VALUES)]
EVERY_VALUE = [
    *((values.OFFSET, bytes.fromhex(raw)) for raw in (*OFFSETS, *OLD_OFFSETS)),
    *((values.GROUP, bytes.fromhex(raw)) for raw in (GROUP_V3, *OLD_GROUPS)),
    *((kind, bytes.fromhex(raw)) for kind, raw, _, _ in CONSUMER_VALUES),
]


@pytest.mark.parametrize(("kind", "raw"), EVERY_VALUE)
def test_a_value_cut_anywhere_is_malformed_and_nothing_else(kind: int, raw: bytes) -> None:
    for end in range(len(raw)):
        with pytest.raises(Malformed):
            read_value(kind, raw[:end])


@given(kind=st.sampled_from(ALL_KINDS), raw=st.binary(max_size=80), version=st.integers(0, 4))
def test_random_records_decode_or_raise_malformed(kind: int, raw: bytes, version: int) -> None:
    try:
        read_value(kind, version.to_bytes(2, "big") + raw)
        wire.read_key(raw)
    except Malformed:
        pass
