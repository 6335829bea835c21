"""The report of `penstock group describe`: one row per partition that a group has committed or reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cli.output import Number, counted
from penstock.client.groups import GroupInfo, GroupMember, Place
from penstock.client.positions import Bounds

COLUMNS = (
    "topic",
    Number("partition"),
    Number("committed"),
    Number("start"),
    Number("end"),
    Number("lag"),
    "member",
    "client",
    "host",
    Number("per_second"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One partition of a group. Without a commit there is no lag: the reset policy decides where reading begins."""

    place: Place
    committed: int | None
    held: Bounds
    owner: GroupMember | None
    per_second: float | None
    told_lag: int | None = None
    """What the broker says of a share group, which finishes records in any order."""

    @property
    def lag(self) -> int | None:
        """Offsets still to read; those below the log start are deleted and do not count."""
        if self.told_lag is not None:
            return self.told_lag
        return None if self.committed is None else max(0, self.held.end - max(self.committed, self.held.start))

    def row(self) -> tuple[object, ...]:
        owner = self.owner
        who = (None, None, None) if owner is None else (owner.member_id, owner.client_id, owner.host)
        rate = None if self.per_second is None else round(self.per_second, 1)
        return (*self.place, self.committed, self.held.start, self.held.end, self.lag, *who, rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A group at one moment."""

    group: GroupInfo
    taken_ms: int
    partitions: tuple[PartitionReport, ...]

    @property
    def lag(self) -> int:
        return sum(each.lag or 0 for each in self.partitions)

    def heading(self) -> list[str]:
        group = self.group
        assignor = f"  assignor {group.assignor}" if group.assignor else ""
        members = counted(len(group.members), "member")
        lines = [f"{group.name}  {group.kind}  {group.state}{assignor}  {members}  lag {self.lag}"]
        idle = [member for member in group.members if not member.places]
        return lines + [f"  {member} reads nothing" for member in idle]

    def rows(self, *, with_rate: bool) -> list[tuple[object, ...]]:
        rows = [each.row() for each in self.partitions]
        return rows if with_rate else [row[:-1] for row in rows]

    def as_json(self) -> dict[str, Any]:
        group = self.group
        return {
            "group": group.name,
            "type": group.kind,
            "state": group.state,
            "assignor": group.assignor or None,
            "coordinator": group.coordinator,
            "lag": self.lag,
            "members": [
                {
                    "member": member.member_id,
                    "client": member.client_id,
                    "host": member.host,
                    "instance": member.instance_id,
                    "partitions": [{"topic": topic, "partition": index} for topic, index in member.places],
                }
                for member in group.members
            ],
            "partitions": [dict(zip(COLUMNS, each.row(), strict=True)) for each in self.partitions],
        }


def make_report(
    group: GroupInfo,
    committed: Mapping[Place, int],
    bounds: Mapping[Place, Bounds],
    *,
    now_ms: int,
    earlier: Report | None,
    lags: Mapping[Place, int | None] | None = None,
) -> Report:
    """The current report; with an earlier one, also the rate at which each partition was read since.

    `lags` are those of a share group.
    """
    owners = group.owners()
    before = {} if earlier is None else {each.place: each.committed for each in earlier.partitions}
    seconds = 0.0 if earlier is None else (now_ms - earlier.taken_ms) / 1000
    partitions: list[PartitionReport] = []
    for place, held in sorted(bounds.items()):
        offset, was = committed.get(place), before.get(place)
        moved = None if offset is None or was is None or seconds <= 0 else (offset - was) / seconds
        partitions.append(
            PartitionReport(
                place=place,
                committed=offset,
                held=held,
                owner=owners.get(place),
                per_second=moved,
                told_lag=None if lags is None else lags.get(place),
            )
        )
    return Report(group=group, taken_ms=now_ms, partitions=tuple(partitions))
