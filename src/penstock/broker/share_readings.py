"""Metrics of share groups that are read from their parts at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.observe import catalog
from penstock.observe.metric import Sample
from penstock.shares.fetch import ShareFetches
from penstock.shares.sessions import ShareSessions


class ShareReadings:
    """Numbers of the share partitions that this broker leads, added up for each group and topic."""

    def __init__(self, *, fetches: ShareFetches, sessions: ShareSessions) -> None:
        self._fetches = fetches
        self._sessions = sessions

    def samples(self) -> Iterator[Sample]:
        led = self._fetches.led
        yield catalog.SHARE_SESSIONS.sample(len(self._sessions))
        yield catalog.SHARE_FETCHES_WAITING.sample(self._fetches.waiting)
        yield catalog.SHARE_RECORDS_DELIVERED.sample(led.delivered)
        yield catalog.SHARE_RECORDS_REDELIVERED.sample(led.redelivered)
        yield catalog.SHARE_RECORDS_EXPIRED.sample(led.expired)
        yield catalog.SHARE_ACQUISITION_WAIT_SECONDS.sample(self._fetches.acquisition_wait.copy())
        yield catalog.SHARE_DEAD_LETTERS.sample(0 if led.dead_letters is None else led.dead_letters.copied)
        held: Counter[tuple[str, str]] = Counter()
        unfinished: Counter[tuple[str, str]] = Counter()
        longest: dict[tuple[str, str], float] = {}
        for each in led:
            if each.share is None:
                continue
            labels = each.group, each.replica.tp.topic
            held[labels] += each.share.held
            unfinished[labels] += each.share.unfinished
            longest[labels] = max(longest.get(labels, 0.0), each.start_seconds())
        for labels, count in held.items():
            yield catalog.SHARE_RECORDS_HELD.sample(count, *labels)
        for labels, count in unfinished.items():
            yield catalog.SHARE_RECORDS_UNFINISHED.sample(count, *labels)
        for labels, seconds in longest.items():
            yield catalog.SHARE_START_SECONDS.sample(seconds, *labels)
