"""Counters for hot paths, plain integers, and their samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.observe import catalog
from penstock.observe.histogram import Histogram
from penstock.observe.metric import Sample


class RequestCounters:
    """Responses by API and version. A dispatcher fetches its row once and then only adds to it."""

    __slots__ = ("_api_names", "_error_names", "errors", "refused", "rows")

    def __init__(self, api_names: Mapping[int, str], error_names: Mapping[int, str]) -> None:
        self._api_names = api_names
        self._error_names = error_names
        self.rows: dict[tuple[int, int], Histogram] = {}
        self.errors: dict[tuple[int, int], int] = {}
        self.refused: dict[str, int] = {}

    def row(self, api_key: int, version: int) -> Histogram:
        """The histogram of one API and version; it also counts the requests."""
        return self.rows.setdefault((api_key, version), Histogram())

    def failed(self, api_key: int, code: int, count: int = 1) -> None:
        """Count error codes of responses; 0 is not an error."""
        assert code != 0, "0 is success"
        pair = (api_key, code)
        self.errors[pair] = self.errors.get(pair, 0) + count

    def refuse(self, reason: str) -> None:
        """Count a frame that closed its connection. The reason is a constant, never text of the client."""
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def samples(self) -> Iterator[Sample]:
        by_api: dict[int, list[Histogram]] = {}
        for (api_key, version), row in list(self.rows.items()):
            by_api.setdefault(api_key, []).append(row)
            yield catalog.REQUESTS.sample(row.count, self._api(api_key), str(version))
        for api_key, rows in by_api.items():
            yield catalog.REQUEST_SECONDS.sample(Histogram.merged(rows), self._api(api_key))
        for (api_key, code), count in list(self.errors.items()):
            error = self._error_names.get(code, str(code))
            yield catalog.REQUEST_ERRORS.sample(count, self._api(api_key), error)
        for reason, count in list(self.refused.items()):
            yield catalog.REQUESTS_REFUSED.sample(count, reason)

    def _api(self, api_key: int) -> str:
        return self._api_names.get(api_key, str(api_key))


class TopicRow:
    """The traffic of one topic since the broker started."""

    __slots__ = ("bytes_in", "bytes_out", "produce_refused", "records_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.produce_refused = 0


class TopicTraffic:
    """A row for each topic; dropped with the topic, so the number of topics bounds the rows."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[str, TopicRow] = {}

    def row(self, topic: str) -> TopicRow:
        """The row of a topic, which its replicas fetch once."""
        row = self.rows.get(topic)
        if row is None:
            row = self.rows[topic] = TopicRow()
        return row

    def forget(self, topic: str) -> None:
        self.rows.pop(topic, None)

    def samples(self) -> Iterator[Sample]:
        for topic, row in list(self.rows.items()):
            yield catalog.TOPIC_BYTES_IN.sample(row.bytes_in, topic)
            yield catalog.TOPIC_BYTES_OUT.sample(row.bytes_out, topic)
            yield catalog.TOPIC_RECORDS_IN.sample(row.records_in, topic)
            yield catalog.TOPIC_PRODUCE_REFUSED.sample(row.produce_refused, topic)


class ScheduleRow:
    """The schedules of one partition that this broker leads, and what it has delivered since it started."""

    __slots__ = ("fired", "lateness", "pending", "refused", "skipped", "too_late")

    def __init__(self) -> None:
        self.pending = 0
        self.fired = 0
        self.refused = 0
        self.skipped = 0
        self.too_late = 0
        self.lateness = Histogram()


class ScheduleCounters:
    """A row for each partition of schedules; dropped with its topic."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, ScheduleRow]] = {}

    def row(self, topic: str, partition: int) -> ScheduleRow:
        return self.rows.setdefault(topic, {}).setdefault(partition, ScheduleRow())

    def forget(self, topic: str) -> None:
        self.rows.pop(topic, None)

    def samples(self) -> Iterator[Sample]:
        for topic, partitions in list(self.rows.items()):
            rows = list(partitions.values())
            yield catalog.SCHEDULES_PENDING.sample(sum(row.pending for row in rows), topic)
            yield catalog.SCHEDULES_FIRED.sample(sum(row.fired for row in rows), topic)
            yield catalog.SCHEDULES_REFUSED.sample(sum(row.refused for row in rows), topic)
            yield catalog.SCHEDULES_SKIPPED.sample(sum(row.skipped for row in rows), topic)
            yield catalog.SCHEDULES_TOO_LATE.sample(sum(row.too_late for row in rows), topic)
            yield catalog.SCHEDULE_LATENESS.sample(Histogram.merged(row.lateness for row in rows), topic)


class StorageCounters:
    """Counters of storage operations; changed only on the event loop."""

    __slots__ = (
        "compaction_bytes_read",
        "compaction_bytes_written",
        "compaction_errors",
        "compactions",
        "coordinator_damage",
        "flush_errors",
        "flush_seconds",
        "scrub_findings",
        "scrubbed_segments",
        "segments_deleted",
        "uncleanable_partitions",
    )

    def __init__(self) -> None:
        self.flush_seconds = Histogram()
        self.flush_errors = 0
        self.segments_deleted = 0
        self.compactions = 0
        self.compaction_bytes_read = 0
        self.compaction_bytes_written = 0
        self.compaction_errors = 0
        self.uncleanable_partitions = 0
        self.scrubbed_segments = 0
        self.scrub_findings = 0
        self.coordinator_damage = 0

    def samples(self) -> Iterator[Sample]:
        yield catalog.FLUSHES.sample(self.flush_seconds.count)
        yield catalog.FLUSH_SECONDS.sample(self.flush_seconds.copy())
        yield catalog.FLUSH_ERRORS.sample(self.flush_errors)
        yield catalog.SEGMENTS_DELETED.sample(self.segments_deleted)
        yield catalog.COMPACTIONS.sample(self.compactions)
        yield catalog.COMPACTION_BYTES_READ.sample(self.compaction_bytes_read)
        yield catalog.COMPACTION_BYTES_WRITTEN.sample(self.compaction_bytes_written)
        yield catalog.COMPACTION_ERRORS.sample(self.compaction_errors)
        yield catalog.UNCLEANABLE_PARTITIONS.sample(self.uncleanable_partitions)
        yield catalog.SCRUBBED_SEGMENTS.sample(self.scrubbed_segments)
        yield catalog.SCRUB_FINDINGS.sample(self.scrub_findings)
        yield catalog.COORDINATOR_DAMAGE.sample(self.coordinator_damage)


class ThrottleCounters:
    """How often and for how long quotas throttled requests."""

    __slots__ = ("count", "millis")

    def __init__(self) -> None:
        self.count: dict[str, int] = {}
        self.millis: dict[str, int] = {}

    def throttled(self, api: str, throttle_ms: int) -> None:
        """Count a throttled request."""
        self.count[api] = self.count.get(api, 0) + 1
        self.millis[api] = self.millis.get(api, 0) + throttle_ms

    def samples(self) -> Iterator[Sample]:
        for api, count in list(self.count.items()):
            yield catalog.THROTTLES.sample(count, api)
            yield catalog.THROTTLE_SECONDS.sample(self.millis[api] / 1000, api)
