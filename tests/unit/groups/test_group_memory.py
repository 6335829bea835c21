"""The memory of groups: a coordinator may have ten thousands of them."""

import gc
from enum import Enum

from tests.unit.groups import consumer_rig, rig

from penstock.groups.shard import GroupShard


def parts_of(shard: GroupShard) -> set[type]:
    """The classes of this project whose instances a shard's groups consist of."""
    found: set[type] = set()
    seen: set[int] = set()
    left: list[object] = [shard._groups]  # pyright: ignore[reportPrivateUsage]
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, (type, Enum)) or callable(each):
            continue
        seen.add(id(each))
        if type(each).__module__.startswith("penstock."):
            found.add(type(each))
        left += gc.get_referents(each)
    return found


def test_no_part_of_a_group_has_a_dictionary_of_attributes() -> None:
    """One costs more than the attributes of a small object."""
    consumers = consumer_rig.Rig(consumer_rig.Topics(a=4))
    consumers.join("m1", "a")
    consumers.join("m2", regex="a.*", instance="i2")
    mixed = consumer_rig.Rig(consumer_rig.Topics(a=4), group_initial_rebalance_delay_ms=0)
    mixed.ask(consumer_rig.classic_join("", version=3))
    classic = rig.Rig()
    rig.settled(classic, rig.Client(classic), rig.Client(classic))

    parts = set().union(*(parts_of(each.shard) for each in (consumers, mixed, classic)))

    names = {part.__name__ for part in parts}
    assert names >= {"ConsumerGroup", "ConsumerState", "Membership", "ClassicMembers", "ClassicGroup", "Rebalance"}
    assert {part.__name__ for part in parts if part.__dictoffset__} == set()
