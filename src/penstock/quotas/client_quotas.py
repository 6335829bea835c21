"""Quotas: how much a client may produce, fetch or occupy the broker, and how long it waits when it took more.

Usage is a rate over the last few windows. A client over its quota is answered at once, told how long to keep silent,
and not read from for that long: the wait is just what brings its rate back to the quota.

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
    """No name: a user or a client may be called anything, `<default>` too."""

    DEFAULT = auto()


DEFAULT = Default.DEFAULT
"""Stands for every user or client id without a quota of its own."""

IDLE_MS_MAX = 3_600_000
"""A client's usage is forgotten after an hour without any."""

VALUE_MAX = 2.0**63
"""More than any client can take at once."""

THROTTLE_MS_MAX = 2**31 - 1
"""The longest wait that a response has room for."""

CLIENTS_MAX = 10_000
"""Clients whose usage is tracked per kind; beyond it the one longest idle is forgotten."""


def is_valid_limit(limit: object) -> bool:
    """Whether a quota can have this limit: a finite number above zero."""
    return isinstance(limit, int | float) and math.isfinite(limit) and limit > 0


class QuotaEntity(NamedTuple):
    """Whom a quota is for; None leaves that side open. (None, "billing") is a client id's quota whoever the user is."""

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
        """Units per second, and the milliseconds that they were counted over.

        The span is taken to be at least all windows but one: a client that has just arrived is not over its quota
        because of its first request.
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
        """`throttle_ms_max` bounds a single wait: of request time, as in Kafka, by one window."""
        self.enabled = False
        """False while no quota is set: callers then skip everything here."""
        self._samples = samples
        self._window_ms = window_ms
        self._throttle_ms_max = throttle_ms_max
        self._by_entity: dict[QuotaEntity, float] = {}
        self._usage: dict[tuple[str, str], UsageRate] = {}
        self._resolved: dict[tuple[str, str], tuple[tuple[str, str], float] | None] = {}
        """(user, client id) -> the shared usage's key and the limit, so that the eight look-ups happen once."""

    def set(self, entity: QuotaEntity, limit: float | None) -> None:
        """None removes the quota. Usage so far counts toward a new limit."""
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
        """What the client may take per second; None is no limit."""
        resolved = self._resolve(user, client_id)
        return None if resolved is None else resolved[1]

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count what a client took; the milliseconds it has to wait for it, mostly 0."""
        resolved = self._resolve(user, client_id)
        if resolved is None:
            return 0
        key, limit = resolved
        usage = self._usage_of(key)
        usage.record(value, now_ms)
        rate, elapsed_ms = usage.measure(now_ms)
        if rate <= limit:
            return 0
        # rate * elapsed / (elapsed + wait) == limit. With a tiny limit that is beyond what a float can hold.
        return int(min((rate - limit) / limit * elapsed_ms + 0.5, self._throttle_ms_max))

    def unrecord(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Take back what was counted: a fetch answered empty because of its quota has taken nothing."""
        resolved = self._resolve(user, client_id)
        if resolved is not None:
            self._usage_of(resolved[0]).record(-value, now_ms)

    def value_max(self, user: str, client_id: str) -> float | None:
        """More than this at once is over the quota whatever went before, so a fetch reads no more; None: no limit."""
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
        asked = (user, client_id)
        try:
            return self._resolved[asked]
        except KeyError:
            if len(self._resolved) >= CLIENTS_MAX:
                self._resolved.clear()
            found = self._resolved[asked] = self._look_up(user, client_id)
            return found

    def _look_up(self, user: str, client_id: str) -> tuple[tuple[str, str], float] | None:
        """The most specific quota; the key says who shares the usage that it limits."""
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
    """All three kinds; `enabled` is all that a request looks at while no quota is set."""

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
        """Take on what the metadata says of an entity: (type, name) pairs, no name being the default of its type.

        Limits of addresses are not these: they bound connections. Returns the limits that no quota can have and that
        are ignored: the controller refuses them, but a store may hold what another program or version wrote.
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
