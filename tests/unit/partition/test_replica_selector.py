"""The replica that a consumer reads from: in its rack if one can serve it, else the leader."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.config.replica import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from penstock.partition.replica_selector import SELECTORS, ReplicaView, select_in_rack

LEADER = 0
RACKS = st.sampled_from([None, "", "a", "b", "c"])


def view(broker_id: int, rack: str | None, log_end: int = 10, behind_ms: int = 0) -> ReplicaView:
    return ReplicaView(broker_id=broker_id, rack=rack, log_end=log_end, behind_ms=behind_ms)


@st.composite
def follower_lists(draw: st.DrawFn) -> list[ReplicaView]:
    ids = draw(st.lists(st.integers(1, 9), unique=True, max_size=6))
    return [view(each, draw(RACKS), draw(st.integers(0, 3)), draw(st.integers(0, 3))) for each in ids]


@given(rack=st.sampled_from(["", "a", "b", "c", "d"]), leader_rack=RACKS, followers=follower_lists())
def test_the_replica_selected_is_the_leader_or_the_best_of_the_consumers_rack(
    rack: str, leader_rack: str | None, followers: list[ReplicaView]
) -> None:
    chosen = select_in_rack(rack, view(LEADER, leader_rack), followers)

    near = [each for each in followers if each.rack == rack]
    if not rack or leader_rack == rack or not near:
        assert chosen == LEADER
    else:
        [best] = [each for each in near if each.broker_id == chosen]
        assert all(best.log_end >= each.log_end for each in near)
        rivals = [each for each in near if each.log_end == best.log_end]
        assert all(best.behind_ms <= each.behind_ms for each in rivals)
        assert all(best.broker_id >= each.broker_id for each in rivals if each.behind_ms == best.behind_ms), (
            "the same replica for the same facts"
        )


@given(followers=follower_lists(), order=st.randoms(use_true_random=False))
def test_the_order_of_the_replicas_does_not_matter(followers: list[ReplicaView], order: object) -> None:
    shuffled = list(followers)
    order.shuffle(shuffled)  # type: ignore[attr-defined]

    assert select_in_rack("a", view(LEADER, "b"), followers) == select_in_rack("a", view(LEADER, "b"), shuffled)


def test_kafkas_class_names_select() -> None:
    assert {RACK_AWARE_SELECTOR: select_in_rack, LEADER_SELECTOR: None} == SELECTORS
