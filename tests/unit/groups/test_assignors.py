"""The properties of each assignor, on random groups."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.assignors import ASSIGNORS
from penstock.groups.assignors.range import assign_ranges, order
from penstock.groups.assignors.spec import Assignor, GroupSpec, MemberSpec
from penstock.groups.assignors.uniform import assign_uniformly
from penstock.model.ids import TopicId
from penstock.wire.group_values import Partitions

Targets = Mapping[str, Partitions]


def topic(number: int) -> TopicId:
    return TopicId(number.to_bytes(16))


def spec(
    subscriptions: Mapping[str, Sequence[int]],
    counts: Mapping[int, int],
    targets: Targets | None = None,
    racks: Mapping[str, str] | None = None,
    partition_racks: Mapping[int, Sequence[str]] | None = None,
) -> GroupSpec:
    read = {number for numbers in subscriptions.values() for number in numbers}
    return GroupSpec(
        members=[
            MemberSpec(
                member_id=member_id,
                topics=frozenset(map(topic, numbers)),
                target=(targets or {}).get(member_id, {}),
                rack_id=(racks or {}).get(member_id),
            )
            for member_id, numbers in sorted(subscriptions.items())
        ],
        partition_counts={topic(number): count for number, count in counts.items() if number in read},
        racks={topic(n): tuple(frozenset([rack]) for rack in names) for n, names in (partition_racks or {}).items()},
    )


def again(before: GroupSpec, targets: Targets) -> GroupSpec:
    """The same group, once it has these targets."""
    subscriptions = {m.member_id: [int.from_bytes(t) for t in m.topics] for m in before.members}
    return spec(subscriptions, {int.from_bytes(t): n for t, n in before.partition_counts.items()}, targets)


def size(target: Partitions) -> int:
    return sum(map(len, target.values()))


def slots(target: Partitions) -> set[tuple[TopicId, int]]:
    return {(t, partition) for t, partitions in target.items() for partition in partitions}


counts_drawn = st.dictionaries(st.integers(0, 5), st.integers(1, 9), min_size=1)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> GroupSpec:
    """Members, topics, and a previous target that may no longer fit them."""
    counts = draw(counts_drawn)
    numbers = sorted(counts)
    names = [f"m{index}" for index in range(draw(st.integers(1, 7)))]
    subset = st.lists(st.sampled_from(numbers), unique=True, max_size=len(numbers))
    subscriptions = {name: numbers if alike else draw(subset) for name in names}
    former_counts = {number: draw(st.integers(0, 9)) for number in numbers}
    former_names = [*draw(st.lists(st.sampled_from(names), unique=True)), "gone"]
    owners = {
        (number, partition): draw(st.sampled_from(former_names))
        for number, count in former_counts.items()
        for partition in range(count)
    }
    former: dict[str, dict[TopicId, frozenset[int]]] = {}
    for (number, partition), owner in owners.items():
        had = former.setdefault(owner, {})
        had[topic(number)] = had.get(topic(number), frozenset()) | {partition}
    return spec(subscriptions, counts, former)


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS.keys())
@given(group=groups())
def test_every_partition_has_one_owner_that_subscribes_to_it(assignor: Assignor, group: GroupSpec) -> None:
    targets = assignor(group)

    owners = Counter(slot for target in targets.values() for slot in slots(target))
    assert set(owners) == {(t, p) for t, count in group.partition_counts.items() for p in range(count)}
    assert set(owners.values()) <= {1}
    assert targets.keys() == {member.member_id for member in group.members}
    for member in group.members:
        assert targets[member.member_id].keys() <= member.topics
        assert all(targets[member.member_id].values()), "a topic without partitions is left out"


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS.keys())
@given(group=groups())
def test_a_group_that_has_not_changed_is_assigned_as_before(assignor: Assignor, group: GroupSpec) -> None:
    targets = assignor(group)

    assert assignor(again(group, targets)) == targets


# Uniform


@given(group=groups(alike=True))
def test_uniform_is_even_if_all_members_subscribe_to_the_same_topics(group: GroupSpec) -> None:
    sizes = [size(target) for target in assign_uniformly(group).values()]

    assert max(sizes) - min(sizes) <= 1


@given(group=groups(alike=True))
def test_uniform_moves_no_more_partitions_than_balance_requires(group: GroupSpec) -> None:
    targets = assign_uniformly(group)

    had = {
        member.member_id: {
            (t, p) for t, p in slots(member.target) if t in member.topics and p < group.partition_counts[t]
        }
        for member in group.members
    }
    least, larger = divmod(sum(group.partition_counts.values()), len(group.members))
    could_keep = sum(min(len(slots_had), least) for slots_had in had.values())
    could_keep += min(larger, sum(len(slots_had) > least for slots_had in had.values()))
    kept = sum(len(slots(targets[member_id]) & slots_had) for member_id, slots_had in had.items())
    assert kept == could_keep


@given(group=groups())
def test_no_single_move_makes_uniform_more_even(group: GroupSpec) -> None:
    targets = assign_uniformly(group)

    sizes = {member_id: size(target) for member_id, target in targets.items()}
    for owner, target in targets.items():
        for t in target:
            for member in group.members:
                if t in member.topics:
                    assert sizes[member.member_id] >= sizes[owner] - 1


@given(group=groups())
def test_uniform_revokes_nothing_from_a_member_that_it_assigns_more(group: GroupSpec) -> None:
    if len({member.topics for member in group.members}) > 1:
        return  # With different subscriptions, one topic may be balanced at the cost of another.
    targets = assign_uniformly(group)

    for member in group.members:
        valid = {(t, p) for t, p in slots(member.target) if t in member.topics and p < group.partition_counts[t]}
        now = slots(targets[member.member_id])
        assert not (valid - now and now - valid)


def test_uniform_prefers_members_in_the_partitions_rack() -> None:
    group = spec(
        {"m1": [0], "m2": [0], "m3": [0]},
        {0: 6},
        racks={"m1": "c", "m2": "a", "m3": "b"},
        partition_racks={0: ["a", "b", "c", "a", "b", "c"]},
    )

    targets = assign_uniformly(group)

    assert targets == {"m1": {topic(0): {2, 5}}, "m2": {topic(0): {0, 3}}, "m3": {topic(0): {1, 4}}}


@given(group=groups(alike=True), data=st.data())
def test_racks_cost_neither_balance_nor_stickiness(group: GroupSpec, data: st.DataObject) -> None:
    rack = st.sampled_from(["a", "b", "c"])
    racked = GroupSpec(
        members=[
            MemberSpec(
                member_id=member.member_id,
                topics=member.topics,
                target=member.target,
                rack_id=data.draw(st.none() | rack),
            )
            for member in group.members
        ],
        partition_counts=group.partition_counts,
        racks={
            t: tuple(data.draw(st.frozensets(rack)) for _ in range(count))
            for t, count in group.partition_counts.items()
        },
    )

    targets, blind = assign_uniformly(racked), assign_uniformly(group)

    assert {m: size(target) for m, target in targets.items()} == {m: size(target) for m, target in blind.items()}
    for member in group.members:
        had = slots(member.target)
        assert slots(targets[member.member_id]) & had >= slots(blind[member.member_id]) & had


def test_an_unchanged_target_is_the_same_object() -> None:
    first = assign_uniformly(spec({"m1": [0], "m2": [0]}, {0: 4}))

    second = assign_uniformly(spec({"m1": [0], "m2": [0]}, {0: 4}, first))

    assert all(second[member_id] is first[member_id] for member_id in first)


# Range


@given(group=groups())
def test_ranges_are_contiguous_in_order_and_even_per_topic(group: GroupSpec) -> None:
    targets = assign_ranges(group)

    for t, count in group.partition_counts.items():
        readers = [member for member in sorted(group.members, key=order) if t in member.topics]
        parts = [sorted(targets[member.member_id].get(t, ())) for member in readers]
        assert [partition for part in parts for partition in part] == list(range(count))
        sizes = list(map(len, parts))
        assert sizes == sorted(sizes, reverse=True)
        assert max(sizes) - min(sizes) <= 1


def test_topics_with_the_same_partition_count_are_co_partitioned() -> None:
    targets = assign_ranges(spec({"m1": [0, 1], "m2": [0, 1]}, {0: 3, 1: 3}))

    assert targets["m1"] == {topic(0): {0, 1}, topic(1): {0, 1}}
    assert targets["m2"] == {topic(0): {2}, topic(1): {2}}


def test_static_members_come_first_in_the_order_of_their_instances() -> None:
    group = GroupSpec(
        members=[
            MemberSpec(member_id="a", topics=frozenset([topic(0)]), target={}),
            MemberSpec(member_id="z", topics=frozenset([topic(0)]), target={}, instance_id="1"),
            MemberSpec(member_id="y", topics=frozenset([topic(0)]), target={}, instance_id="2"),
        ],
        partition_counts={topic(0): 3},
    )

    targets = assign_ranges(group)

    assert {member_id: set(target[topic(0)]) for member_id, target in targets.items()} == {"z": {0}, "y": {1}, "a": {2}}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS.keys())
def test_a_group_without_members_or_topics_gets_an_empty_target(assignor: Assignor) -> None:
    assert assignor(GroupSpec(members=[], partition_counts={})) == {}
    assert assignor(spec({"m1": []}, {})) == {"m1": {}}
