"""The settings of share groups that a partition's leader applies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.config.broker import BrokerConfig
from penstock.config.group_settings import GroupConfig
from penstock.shares.share_partition import Limits

GROUPS_KEPT_MAX = 1_000
"""Groups whose resolved settings are kept."""

DURATION = re.compile(
    r"by_duration:P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


class ShareSettings(NamedTuple):
    """The settings of one share group."""

    limits: Limits
    read_committed: bool
    auto_offset_reset: str
    """`earliest`, `latest` or `by_duration:...`."""
    dead_letter_topic: str = ""
    """Empty: what is given up is archived at once."""
    copies_dead: bool = True
    """Whether dead letters have what their records have."""

    @property
    def reset_duration_ms(self) -> int | None:
        """How far back a new group begins; None where that is no duration."""
        return duration_ms(self.auto_offset_reset)


def duration_ms(reset: str) -> int | None:
    """The milliseconds of `by_duration:PnDTnHnMn.nS`."""
    found = DURATION.fullmatch(reset)
    if found is None:
        return None
    return round(sum(float(text) * SECONDS[unit] * 1000 for unit, text in found.groupdict().items() if text))


class GroupSettings:
    """The settings of every share group, resolved once for each of its overrides."""

    def __init__(self, overrides: Mapping[str, Mapping[str, str]], config: Callable[[], BrokerConfig]) -> None:
        self._overrides = overrides
        self._config = config
        self._resolved: dict[str, tuple[Mapping[str, str] | None, BrokerConfig, ShareSettings]] = {}

    def of(self, group: str) -> ShareSettings:
        overrides, config = self._overrides.get(group), self._config()
        known = self._resolved.get(group)
        if known is not None and known[0] is overrides and known[1] is config:
            return known[2]
        found = GroupConfig.of(overrides or {}, config)
        settings = ShareSettings(
            limits=Limits(
                deliveries_max=found.share_delivery_count_limit,
                unfinished_max=found.share_partition_max_record_locks,
                lock_ms=found.share_record_lock_duration_ms,
                may_renew=found.share_renew_acknowledge_enable,
                backoff_ms=found.share_retry_backoff_ms,
                backoff_ms_max=found.share_retry_backoff_max_ms,
                by_key=found.share_order == "key",
                in_flight_max=found.share_order_in_flight,
                has_dead_letters=bool(found.errors_deadletterqueue_topic_name),
            ),
            read_committed=found.share_isolation_level == "read_committed",
            auto_offset_reset=found.share_auto_offset_reset,
            dead_letter_topic=found.errors_deadletterqueue_topic_name,
            copies_dead=found.errors_deadletterqueue_copy_record_enable,
        )
        if len(self._resolved) >= GROUPS_KEPT_MAX:
            self._resolved.clear()
        self._resolved[group] = (overrides, config, settings)
        return settings
