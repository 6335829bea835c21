"""Rules of queues that are taken out one by one: what guards each must notice that it is missing.

The rules are those of docs/invariants.md. Q1 to Q9 are also taken out in simulations (`tests/sim/test_queue_seeds.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from tests.unit.groups import test_consumed_records
from tests.unit.partition import test_deduplication
from tests.unit.replication import test_share_states
from tests.unit.shares import test_consumed_by_shares
from tests.unit.shares.test_share_partition_machine import LIMITS, Coordinator, Ordering, Queueing, Sharing

from penstock.coordinator.step import NOTHING, Step
from penstock.groups import consumed_records
from penstock.model.generated_errors import OffsetOutOfRange
from penstock.model.ids import Offset, TopicId
from penstock.partition import deduplication
from penstock.partition.message_ids import IdWindow, MessageIds
from penstock.shares.leader import LedSharePartition
from penstock.shares.persister import ACKNOWLEDGED, AVAILABLE
from penstock.shares.share_partition import ACCEPT, RELEASE, Acknowledged, ReadBatch, SharePartition, Write
from penstock.shares.state.commands import StateCommand
from penstock.shares.state.shard import StateShard
from penstock.storage.view import LogView
from penstock.testing.sim.ablations import Ablation, replaced
from penstock.testing.sim.queue_ablations import key_order
from penstock.wire.decompression_budget import DecompressionBudget

Check = Callable[[], None]


@contextmanager
def write_says_everything() -> Generator[None]:
    """Q10: a write after one with an unknown outcome says only what has changed."""
    failed = SharePartition.__dict__["write_failed"]

    def forget(share: SharePartition, write: Write) -> None:
        failed(share, write)
        share._rewrite = False

    with replaced(SharePartition, "write_failed", forget):
        yield


@contextmanager
def unfinished_limit() -> Generator[None]:
    """Q11: new records are handed out whatever number is unfinished."""
    with replaced(SharePartition, "room", lambda share: 1_000):
        yield


@contextmanager
def topic_ids() -> Generator[None]:
    """Q12: a topic has the state of an earlier one of its name."""
    decide = StateShard.__dict__["decide"]
    any_id = TopicId(b"same for every topic"[:16])

    def decide_by_name(shard: StateShard, command: StateCommand, *rest: Any) -> Step:
        step: Step = decide(shard, replace(command, key=command.key._replace(topic_id=any_id)), *rest)
        return step

    def keep(shard: StateShard, topic_ids: Iterable[TopicId]) -> Step:
        return NOTHING

    with (
        replaced(StateShard, "decide", decide_by_name),
        replaced(StateShard, "_check_exists", lambda shard, key: None),
        replaced(StateShard, "on_topics_deleted", keep),
    ):
        yield


@contextmanager
def committed_starts() -> Generator[None]:
    """C1: what a share group has finished is removed before that is committed."""
    write = LedSharePartition.__dict__["_write"]

    def remove(led: LedSharePartition) -> None:
        write(led)
        if led.share is not None and led.share._writing is not None:
            led._remove_consumed(led.share._writing.start)

    with replaced(LedSharePartition, "_write", remove):
        yield


@contextmanager
def committed_offsets() -> Generator[None]:
    """C1: records are removed up to the high watermark, whatever a consumer group has committed."""

    def all_of_it(committed: Offset, log_start: Offset, high_watermark: Offset) -> Offset:
        return high_watermark

    with replaced(consumed_records, "removable", all_of_it):
        yield


@contextmanager
def repeated_ids() -> Generator[None]:
    """X1: a record is appended although one in the window has its id."""
    with replaced(IdWindow, "repeated", lambda *_: frozenset()):
        yield


@contextmanager
def ids_in_the_log() -> Generator[None]:
    """X2: the id of a record that was removed counts as one in the log."""
    add = IdWindow.__dict__["add"]

    def add_all(
        window: IdWindow, ids: MessageIds, base: Offset, log_floor: Offset, without: Collection[int] = ()
    ) -> None:
        add(window, ids, base, log_floor)

    with replaced(IdWindow, "add", add_all):
        yield


@contextmanager
def rebuilt_window() -> Generator[None]:
    """X3: a new leader begins with a window without ids."""

    def empty(view: LogView, records: int, budget: DecompressionBudget) -> IdWindow:
        return IdWindow(records)

    with replaced(deduplication, "read_window", empty):
        yield


def machine(kind: type[RuleBasedStateMachine]) -> None:
    """Random steps of a machine, always the same ones; what fails is not made smaller."""
    steps = settings(
        max_examples=300,
        stateful_step_count=60,
        phases=(Phase.generate,),
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        print_blob=False,
    )
    run_state_machine_as_test(kind, settings=steps)


def an_accept_whose_answer_is_lost() -> None:
    """1 is accepted. That of 0 is committed, and its leader does not hear of it: 0 is released, and comes again."""
    coordinator = Coordinator()
    share = SharePartition(coordinator.state(), Offset(0), LIMITS)
    share.acquire("m", [ReadBatch(0, 1)], fetch_offset=0, records_max=2, records_exact=False, batch_size=0, now_ms=0)
    for offset, kind, is_answered in ((1, ACCEPT, True), (0, ACCEPT, False), (0, RELEASE, True)):
        share.acknowledge("m", [Acknowledged(offset, offset, [kind])], now_ms=0)
        write = share.begin_write()
        assert write is not None
        coordinator.commit(write)
        (share.written if is_answered else share.write_failed)(write)

    next_leader = SharePartition(coordinator.state(), Offset(coordinator.start), LIMITS)

    assert list(next_leader.ranges()) == [(0, 0, AVAILABLE, 1), (1, 1, ACKNOWLEDGED, 1)]


def repeats(*batches: tuple[list[bytes | None], str]) -> None:
    """The story of X1 to X3 with these batches, and what happens after each."""
    story: Any = test_deduplication.test_of_one_id_in_the_window_one_record_is_readable_and_a_new_leader_knows_the_same
    story.hypothesis.inner_test([(ids, 0, then) for ids, then in batches])


RULES: dict[str, tuple[Ablation, Check]] = {
    "Q10": (write_says_everything, an_accept_whose_answer_is_lost),
    "Q11": (unfinished_limit, partial(machine, Sharing)),
    "Q12": (
        topic_ids,
        test_share_states.test_a_topic_that_is_created_again_begins_without_the_state_of_the_former_one,
    ),
    "C1-share-group": (
        committed_starts,
        test_consumed_by_shares.test_what_a_share_group_has_finished_is_removed_once_that_is_committed,
    ),
    "C1-consumer-group": (
        committed_offsets,
        test_consumed_records.test_what_the_group_has_committed_is_removed_and_what_others_committed_is_not,
    ),
    "QK1": (key_order, partial(machine, Ordering)),
    "QK1-in-flight": (key_order, partial(machine, Queueing)),
    "X1": (repeated_ids, partial(repeats, ([b"a"], "append"), ([b"a"], "append"))),
    "X2": (
        ids_in_the_log,
        partial(
            repeats,
            ([b"a"], "append"),
            ([None] * 3, "append"),
            ([b"a"], "append"),
            ([None] * 4, "append"),
            ([b"a"], "append"),
        ),
    ),
    "X3": (rebuilt_window, partial(repeats, ([b"a"], "restart"), ([b"a"], "append"))),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_missing_rule_of_queues_is_noticed(rule: str) -> None:
    ablation, check = RULES[rule]
    with ablation(), pytest.raises((AssertionError, OffsetOutOfRange)):
        check()


@pytest.mark.parametrize("rule", ["Q10", "X1", "X2", "X3"])
def test_nothing_is_noticed_with_the_rules(rule: str) -> None:
    """The machines and the other tests run by themselves; these stories are chosen to show a missing rule."""
    _, check = RULES[rule]
    check()
