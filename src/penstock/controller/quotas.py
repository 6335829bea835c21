"""Plans changes of client quotas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.controller.plan import Plan
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Create, Delete, Operation, Set
from penstock.metadata.records import QuotaEntity, pack, quota_path
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest
from penstock.quotas.client_quotas import is_valid_limit

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
ENTITY_TYPES = frozenset({USER, CLIENT_ID, IP})

RATES_WHOLE = {
    "producer_byte_rate": ("a LONG", 2**63 - 1),
    "consumer_byte_rate": ("a LONG", 2**63 - 1),
    "connection_creation_rate": ("an INT", 2**31 - 1),
}
"""Quotas that Kafka stores as integers: the type's name in its messages, and its greatest value."""

CLIENT_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_KEYS = ("connection_creation_rate",)
WHOLE_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """Quotas of one entity to set, or to remove (None)."""

    entity: tuple[tuple[str, str | None], ...]
    limits: tuple[tuple[str, float | None], ...]


def plan_quota_changes(image: MetadataImage, changes: Sequence[QuotaChange]) -> Plan[Mapping[str, float]]:
    """Plan every valid change; the outcome of each is the entity's quotas after it.

    Several changes of one entity apply in their order, as in Kafka.
    """
    wanted: dict[QuotaEntity, Mapping[str, float]] = {}
    outcomes: list[Mapping[str, float] | BrokerError] = []
    for change in changes:
        try:
            entity = checked_entity(change.entity)
            before = wanted[entity] if entity in wanted else image.quotas.get(entity, {})
            after = changed_limits(before, change, entity)
        except BrokerError as error:
            outcomes.append(error)
            continue
        wanted[entity] = after
        outcomes.append(after)
    operations = (write(image, entity, after) for entity, after in wanted.items())
    return Plan(
        steps=tuple((operation,) for operation in operations if operation is not None), outcomes=tuple(outcomes)
    )


def checked_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """An entity, sorted as in the store: user, client id or both, or an IP address."""
    if not parts:
        raise InvalidRequest("Invalid empty client quota entity")
    types = [kind for kind, _ in parts]
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    if len(set(types)) != len(types):
        raise InvalidRequest("Duplicate client quota entity type")
    if IP in types and len(types) > 1:
        raise InvalidRequest("Invalid client quota entity: an ip cannot be combined with a user or a client id")
    return tuple(sorted(parts))


def changed_limits(before: Mapping[str, float], change: QuotaChange, entity: QuotaEntity) -> dict[str, float]:
    after = dict(before)
    known = IP_KEYS if entity[0][0] == IP else CLIENT_KEYS
    for key, value in change.limits:
        if key not in known:
            raise InvalidRequest(f"Invalid configuration key {key}")
        if value is None:
            after.pop(key, None)
            continue
        if not is_valid_limit(value):
            raise InvalidRequest(f"Quota {key} must be greater than 0")
        if key in RATES_WHOLE:
            if value > RATES_WHOLE[key][1]:
                raise InvalidRequest(f"Proposed value for {key} is too large for {RATES_WHOLE[key][0]}.")
            whole = round(value)
            if abs(whole - value) > WHOLE_TOLERANCE:
                raise InvalidRequest(f"{key} cannot be a fractional value.")
            value = float(whole)
        after[key] = value
    return after


def write(image: MetadataImage, entity: QuotaEntity, after: Mapping[str, float]) -> Operation | None:
    path = quota_path(entity)
    if entity not in image.quotas:
        return Create(path, pack(after)) if after else None
    if not after:
        return Delete(path)
    return Set(path, pack(after)) if after != image.quotas[entity] else None
