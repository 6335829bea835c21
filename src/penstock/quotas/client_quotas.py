"""Client quotas for produce and fetch bandwidth and for request time, and the throttle time of a client over its quota.

Usage is a rate over the last few windows. A client over its quota gets its response at once, with a throttle time, and
its connection is not read for that long, which brings its rate back to the quota.

The quota that applies is the most specific one set: for user and client id, for the user, for the client id, each
before the default of its kind. Clients matched by a user's quota share it; by a client id's, likewise.
"""

import math
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Literal, NamedTuple

QuotaKind = Literal["producer_byte_rate", "consumer_byte_rate", "request_percentage"]
KINDS: tuple[QuotaKind, ...] = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


class Default(Enum):
    """The default entity. Not a string, as a user or client id may have any name, even `<default>`."""

    DEFAULT = auto()


DEFAULT = Default.DEFAULT
"""Stands for every user or client id without a quota of its own."""

IDLE_MS_MAX = 3_600_000
"""A client's usage is dropped after an hour of inactivity."""

VALUE_MAX = 2.0**63
"""More than any client can use at once."""

THROTTLE_MS_MAX = 2**31 - 1
"""The longest throttle time that fits into a response."""

CLIENTS_MAX = 10_000
"""Clients whose usage is tracked per kind; beyond that the longest idle one is dropped."""


def is_valid_limit(limit: object) -> bool:
    """Whether a quota can have this limit: a finite number above zero."""
    return isinstance(limit, int | float) and math.isfinite(limit) and limit > 0


class QuotaEntity(NamedTuple):
    """The user and client id of a quota; None matches any. (None, "billing") is a client id's quota for any user."""

    user: str | Default | None
    client_id: str | Default | None


class UsageRate:
    """A sum over the last `samples` windows and one that overlaps them, divided by the time they span."""

    __slots__ = ("_samples", "_samples_max", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples: list[list[float]] = []
        """[start, last event, sum] each, oldest first; one more than `samples` at most."""
        self._samples_max = samples
        self._window_ms = window_ms

    @property
    def last_ms(self) -> float:
        return self._samples[-1][1] if self._samples else 0

    def record(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            if len(samples) > self._samples_max:
                del samples[0]
            samples.append([now_ms, now_ms, value])
        else:
            current = samples[-1]
            current[1] = now_ms
            current[2] += value

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate per second, and the milliseconds over which it was measured.

        The span is at least all windows but one, so that the first request of a new client does not exceed its quota.
        """
        horizon = now_ms - self._samples_max * self._window_ms
        samples = self._samples = [sample for sample in self._samples if sample[1] > horizon]
        elapsed = now_ms - int(samples[0][0]) if samples else 0
        missing = self._samples_max - 1 - elapsed // self._window_ms
        if missing > 0:
            elapsed += missing * self._window_ms
        elapsed = max(elapsed, 1)
        return sum(sample[2] for sample in samples) * 1000 / elapsed, elapsed


class Quotas:
    """The quotas of one kind, and the usage of the clients they apply to."""

    __slots__ = ("_by_entity", "_resolved", "_samples", "_throttle_ms_max", "_usage", "_window_ms", "enabled")

    def __init__(self, samples: int, window_ms: int, *, throttle_ms_max: int = THROTTLE_MS_MAX) -> None:
        """`throttle_ms_max` bounds a throttle time: for request time, as in Kafka, to one window."""
        self.enabled = False
        """False while no quota is set: callers then skip everything here."""
        self._samples = samples
        self._window_ms = window_ms
        self._throttle_ms_max = throttle_ms_max
        self._by_entity: dict[QuotaEntity, float] = {}
        self._usage: dict[tuple[str, str], UsageRate] = {}
        self._resolved: dict[tuple[str, str], tuple[tuple[str, str], float] | None] = {}
        """(user, client id) -> the shared usage's key and the limit, which saves the eight lookups."""

    def set(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set or, with None, remove a quota. Past usage counts toward a new limit."""
        assert limit is None or is_valid_limit(limit), f"a quota of {limit}"
        if limit is None:
            self._by_entity.pop(entity, None)
        else:
            self._by_entity[entity] = limit
        self._resolved.clear()
        self.enabled = bool(self._by_entity)
        if not self.enabled:
            self._usage.clear()

    def limits(self) -> dict[QuotaEntity, float]:
        return dict(self._by_entity)

    def limit(self, user: str, client_id: str) -> float | None:
        """The client's quota per second; None is no limit."""
        resolved = self._resolve(user, client_id)
        return None if resolved is None else resolved[1]

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count a client's usage; returns its throttle time in milliseconds, mostly 0."""
        resolved = self._resolve(user, client_id)
        if resolved is None:
            return 0
        key, limit = resolved
        usage = self._usage_of(key)
        usage.record(value, now_ms)
        rate, elapsed_ms = usage.measure(now_ms)
        if rate <= limit:
            return 0
        # rate * elapsed / (elapsed + throttle) == limit. With a tiny limit this may be infinite.
        return int(min((rate - limit) / limit * elapsed_ms + 0.5, self._throttle_ms_max))

    def unrecord(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Undo `record`: a fetch whose response is empty because of its quota used nothing."""
        resolved = self._resolve(user, client_id)
        if resolved is not None:
            self._usage_of(resolved[0]).record(-value, now_ms)

    def value_max(self, user: str, client_id: str) -> float | None:
        """The most that a fetch may read at once: more would exceed the quota of an idle client. None is no limit."""
        limit = self.limit(user, client_id)
        return None if limit is None else min(limit * (self._samples - 1) * self._window_ms / 1000, VALUE_MAX)

    def forget_idle(self, now_ms: int) -> None:
        idle = [key for key, usage in self._usage.items() if now_ms - usage.last_ms > IDLE_MS_MAX]
        for key in idle:
            del self._usage[key]

    def _usage_of(self, key: tuple[str, str]) -> UsageRate:
        usage = self._usage.get(key)
        if usage is None:
            if len(self._usage) >= CLIENTS_MAX:
                del self._usage[min(self._usage, key=lambda key: self._usage[key].last_ms)]
            usage = self._usage[key] = UsageRate(self._samples, self._window_ms)
        return usage

    def _resolve(self, user: str, client_id: str) -> tuple[tuple[str, str], float] | None:
        key = (user, client_id)
        try:
            return self._resolved[key]
        except KeyError:
            if len(self._resolved) >= CLIENTS_MAX:
                self._resolved.clear()
            found = self._resolved[key] = self._look_up(user, client_id)
            return found

    def _look_up(self, user: str, client_id: str) -> tuple[tuple[str, str], float] | None:
        """The most specific quota, and the key of the usage that it limits."""
        for entity, shared in (
            (QuotaEntity(user, client_id), (user, client_id)),
            (QuotaEntity(user, DEFAULT), (user, client_id)),
            (QuotaEntity(user, None), (user, "")),
            (QuotaEntity(DEFAULT, client_id), (user, client_id)),
            (QuotaEntity(DEFAULT, DEFAULT), (user, client_id)),
            (QuotaEntity(DEFAULT, None), (user, "")),
            (QuotaEntity(None, client_id), ("", client_id)),
            (QuotaEntity(None, DEFAULT), ("", client_id)),
        ):
            limit = self._by_entity.get(entity)
            if limit is not None:
                return shared, limit
        return None


class ClientQuotas:
    """The quotas of all three kinds; requests check only `enabled` while no quota is set."""

    __slots__ = ("enabled", "fetch", "produce", "request")

    def __init__(self, samples: int, window_ms: int) -> None:
        self.produce = Quotas(samples, window_ms)
        self.fetch = Quotas(samples, window_ms)
        self.request = Quotas(samples, window_ms, throttle_ms_max=window_ms)
        self.enabled = False

    def set(self, kind: QuotaKind, entity: QuotaEntity, limit: float | None) -> None:
        self.of(kind).set(entity, limit)
        self.enabled = self.produce.enabled or self.fetch.enabled or self.request.enabled

    def follow(self, entity: Iterable[tuple[str, str | None]], limits: Mapping[str, float]) -> dict[QuotaKind, float]:
        """Follow the metadata of an entity: (type, name) pairs; a name of None is the default of its type.

        Quotas of IP addresses limit connections and are skipped. Returns invalid limits, which are ignored: the
        controller rejects them, but another program or version may have written them to the store.
        """
        named: dict[str, str | Default] = {kind: DEFAULT if name is None else name for kind, name in entity}
        ignored: dict[QuotaKind, float] = {}
        if named.keys() <= {"user", "client-id"}:
            for kind in KINDS:
                limit = limits.get(kind)
                if limit is not None and not is_valid_limit(limit):
                    ignored[kind], limit = limit, None
                self.set(kind, QuotaEntity(named.get("user"), named.get("client-id")), limit)
        return ignored

    def of(self, kind: QuotaKind) -> Quotas:
        match kind:
            case "producer_byte_rate":
                return self.produce
            case "consumer_byte_rate":
                return self.fetch
            case "request_percentage":
                return self.request

    def forget_idle(self, now_ms: int) -> None:
        for kind in KINDS:
            self.of(kind).forget_idle(now_ms)
