"""The offsets of share groups, as administrators ask for them."""

from __future__ import annotations

from typing import Any

from tests.unit.eventual import deliver
from tests.unit.groups.share_rig import ShareRig

from penstock.groups.share.offsets import ShareOffsets
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import UnknownTopicOrPartition
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.shares.persister import SharePartitionSummary


class Summaries:
    """Share coordinators that know a start for every partition, and count who asks."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def read_summary(self, group: str, topic_id: object, partition: int, epoch: object) -> Deferred[Any]:
        self.asked.append(partition)
        answer: Deferred[SharePartitionSummary] = Deferred()
        answer.resolve(
            SharePartitionSummary(
                state_epoch=1, leader_epoch=LeaderEpoch(0), start_offset=Offset(5), delivery_complete_count=1
            )
        )
        return answer


class Ends:
    """Logs that end at 10."""

    def of(self, partitions: Any) -> dict[TopicPartition, Offset]:
        return dict.fromkeys(partitions, Offset(10))


def test_share_coordinators_are_asked_only_about_partitions_that_exist() -> None:
    """A request may name any number of others, and each question takes time of the loop."""
    shares = Summaries()
    topics: Any = ShareRig(a=2).topics
    offsets = ShareOffsets(coordinators=None, shares=shares, topics=topics, ends=Ends())  # type: ignore[arg-type]
    found: list[Any] = []

    deliver(offsets.describe("g", {"a": [-1, *range(1_000)], "unknown": [0]}), found)

    (described,) = found
    assert shares.asked == [0, 1]
    assert [(described["a", at].start_offset, described["a", at].lag) for at in (0, 1)] == [(5, 4)] * 2
    for at in (-1, 2, 999):
        assert isinstance(described["a", at].error, UnknownTopicOrPartition)
    assert described["unknown", 0].error is None
    assert described["unknown", 0].start_offset == -1
