"""Subscriptions by regular expression, in RE2's syntax as in Kafka.

RE2 matches in time linear in the text, so no expression can stall a broker; only the size of the compiled expression
needs a bound.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

import re2

from penstock.coordinator.step import Job, Step
from penstock.groups.consumer.events import ConsumerRegularExpression
from penstock.groups.consumer.state import Change, ConsumerState, Tally, count
from penstock.groups.consumer.target_assignment import JOB_MS_MAX
from penstock.groups.consumer.timers import Alarm, ConsumerTimer
from penstock.groups.draft import Draft
from penstock.groups.topics import TopicsView
from penstock.model.generated_errors import InvalidRegularExpression
from penstock.wire.group_values import ResolvedPattern

RE2: Any = re2
"""The module has no types."""

PATTERN_MEMORY_BYTES_MAX = 1 << 20

PATTERN_REFRESH_MS_MIN = 10_000
PATTERN_REFRESH_MS_MAX = 600_000
"""Patterns are matched again when topics are created or deleted, at most every MIN and at least every MAX."""

FAULTS: Final = (
    ("missing ]", "missing closing ]"),
    ("missing )", "missing closing )"),
    ("unexpected )", "regexp/syntax: internal error"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("invalid named capture group", "invalid named capture"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
)
"""RE2's messages and those of Kafka's RE2/J, where they differ."""


def compiled(pattern: str) -> Any:
    """Compile an expression. Raises InvalidRegularExpression with Kafka's message."""
    options = RE2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    try:
        return RE2.compile(pattern, options)
    except RE2.error as error:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {fault(error)}."
        ) from None


def fault(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    for words, kafkas in FAULTS:
        if text.startswith(words):
            return kafkas
    return text.partition(":")[0]


@dataclass(frozen=True, slots=True)
class PatternsResolved:
    """The topics that a group's patterns match."""

    group: str
    topics: Mapping[str, tuple[str, ...]]
    started_ms: int
    fault: str | None = None


def resolve(group: str, patterns: Iterable[str], names: Iterable[str], started_ms: int) -> PatternsResolved:
    """Match every whole name with every pattern. An invalid pattern matches nothing."""
    ordered = sorted(names)
    found: dict[str, tuple[str, ...]] = {}
    for pattern in patterns:
        try:
            matches = compiled(pattern).fullmatch
        except InvalidRegularExpression:
            found[pattern] = ()  # From a log that another broker wrote; requests are validated here.
            continue
        found[pattern] = tuple(name for name in ordered if matches(name))
    return PatternsResolved(group, found, started_ms)


class Repattern(Enum):
    """How a request changed a member's pattern."""

    KEPT = "kept"
    CHANGED = "changed"
    RESOLVED = "resolved"
    """Changed to one whose topics are known, or removed: the member can be assigned at once."""


class PatternSubscriptions:
    """The patterns of one group: when they are matched with all topics, and the result."""

    def __init__(self, state: ConsumerState, topics: TopicsView) -> None:
        self._state = state
        self._topics = topics
        # Not persisted: a job that is lost with the shard is started again.
        self._resolving_until_ms = 0
        self._topics_appeared = False

    def subscribe(self, change: Change, draft: Draft) -> Repattern:
        """Append what a member's new pattern changes, and match patterns if that is due.

        A pattern new to the group does not raise the epoch before it is matched, or the group would be assigned twice.
        """
        state, before, after = self._state, change.before.metadata.pattern, change.after.metadata.pattern
        result = Repattern.KEPT
        unmatched = False
        if before != after:
            result = Repattern.CHANGED
            if before and state.pattern_readers.get(before) == 1:
                draft.append(ConsumerRegularExpression(state.group, before, None))
            if after:
                if after not in state.pattern_readers:
                    compiled(after)
                    unmatched = True
                elif after in state.patterns:
                    result = Repattern.RESOLVED
            elif before:
                result = Repattern.RESOLVED
        if unmatched or state.pattern_readers:
            readers = dict(state.pattern_readers)
            count(readers, [before] if before and (change.known or change.replaced) else [], -1)
            count(readers, [after] if after else [], 1)
            self._match(readers, draft, unmatched=unmatched)
        return result

    def appeared(self, draft: Draft) -> None:
        """Topics were created or deleted: patterns may match others."""
        if self._state.pattern_readers:
            self._topics_appeared = True
            self.match(draft)

    def loaded(self) -> None:
        """Topics may have been created before the load."""
        self._topics_appeared = True

    def match(self, draft: Draft) -> None:
        """Match the group's patterns, if that is due."""
        self._match(self._state.pattern_readers, draft)

    def resolved(self, done: PatternsResolved, draft: Draft) -> tuple[Tally, bool]:
        """Append what the patterns match; returns the count of patterns per matched topic, and whether it changed."""
        state = self._state
        self._resolving_until_ms = 0
        matched = dict(state.matched)
        changed = False
        for pattern, topics in done.topics.items():
            if pattern not in state.pattern_readers:
                continue
            before = state.patterns.get(pattern)
            if before is None or before.topics != topics:
                changed = True
                count(matched, before.topics if before is not None else (), -1)
                count(matched, topics, 1)
            resolved = ResolvedPattern(topics, 0, done.started_ms)
            draft.append(ConsumerRegularExpression(state.group, pattern, resolved))
        if not state.pattern_readers.keys() <= done.topics.keys():
            self._match(state.pattern_readers, draft, unmatched=True)
        elif self._topics_appeared:
            draft.set_timer(self._refresh, done.started_ms + PATTERN_REFRESH_MS_MIN + 1)
        return matched, changed

    def _match(self, patterns: Iterable[str], draft: Draft, *, unmatched: bool = False) -> None:
        """Start a job that matches these patterns with all topics, if that is due."""
        wanted = frozenset(patterns)
        now_ms = draft.now_ms
        if not wanted or now_ms < self._resolving_until_ms:
            return
        last_ms = next((pattern.resolved_ms for pattern in self._state.patterns.values()), None)
        unmatched = unmatched or not wanted <= self._state.patterns.keys()
        if last_ms is not None and not unmatched and now_ms <= last_ms + PATTERN_REFRESH_MS_MIN:
            if self._topics_appeared:
                draft.set_timer(self._refresh, last_ms + PATTERN_REFRESH_MS_MIN + 1)
            return
        if unmatched or self._topics_appeared or last_ms is None or now_ms > last_ms + PATTERN_REFRESH_MS_MAX:
            self._resolving_until_ms = now_ms + JOB_MS_MAX
            self._topics_appeared = False
            names = tuple(self._topics.names())
            job = Job(self._state.group, partial(resolve, self._state.group, wanted, names, now_ms))
            draft.add(Step(jobs=(job,)))

    @property
    def _refresh(self) -> ConsumerTimer:
        return ConsumerTimer(self._state.group, Alarm.PATTERNS)
