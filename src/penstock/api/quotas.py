"""DescribeClientQuotas (48) and AlterClientQuotas (49), every version: quotas by user, client id or IP address.

Quotas are cluster metadata; the catalog passes changes to each broker's quota engine.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.controller import Controller
from penstock.controller.quotas import ENTITY_TYPES, IP, QuotaChange
from penstock.metadata.records import QuotaEntity
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest, UnsupportedVersion
from penstock.model.turns import Turns
from penstock.wire.api import alter_client_quotas as changed
from penstock.wire.api import describe_client_quotas as gen
from penstock.wire.slices import each

MATCH_EXACT = 0
MATCH_DEFAULT = 1
MATCH_SPECIFIED = 2


class ClientQuotas:
    """Describes the quotas, and passes changes to the controller."""

    def __init__(self, *, controller: Controller, turns: Turns) -> None:
        self._turns = turns
        self._controller = controller
        self._image = controller.image

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=48, versions=range(2), handle=self.describe_client_quotas),
            Api(key=49, versions=range(2), handle=self.alter_client_quotas, forwarded=True),
        )

    @in_turns
    async def describe_client_quotas(self, context: RequestContext, request: gen.Request) -> gen.Response:
        try:
            check_filter(request)
        except BrokerError as error:
            return gen.Response(error_code=error.code, error_message=error.wire_message, entries=None)
        wanted = {component.entity_type: component for component in request.components}
        found: list[tuple[QuotaEntity, Mapping[str, float]]] = []
        for entity, limits in list(self._image.quotas.items()):
            if matches(dict(entity), wanted, strict=request.strict):
                found.append((entity, limits))
            if self._turns.spent():
                await self._turns.pause()
        return gen.Response(entries=each(found, lambda one: entry(*one)))

    @in_turns
    async def alter_client_quotas(self, context: RequestContext, request: changed.Request) -> changed.Response:
        changes: list[QuotaChange] = []
        for wanted in request.entries:
            changes.append(quota_change(wanted))
            if self._turns.spent():
                await self._turns.pause()
        try:
            outcomes = await self._controller.change_quotas(changes, validate_only=request.validate_only)
        except BrokerError as error:
            outcomes = (error,) * len(changes)

        def result(at: int) -> changed.ResponseEntryData:
            outcome = outcomes[at]
            return changed.ResponseEntryData(
                error_code=outcome.code if isinstance(outcome, BrokerError) else 0,
                error_message=outcome.wire_message if isinstance(outcome, BrokerError) else None,
                entity=request.entries[at].entity,
            )

        return changed.Response(entries=each(range(len(outcomes)), result))


def quota_change(wanted: changed.RequestEntryData) -> QuotaChange:
    return QuotaChange(
        entity=tuple((part.entity_type, part.entity_name) for part in wanted.entity),
        limits=tuple((op.key, None if op.remove else op.value) for op in wanted.ops),
    )


def check_filter(request: gen.Request) -> None:
    """Reject a filter with repeated or unknown entity types, or unknown match types."""
    kinds: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if kind in kinds:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            if not kind:
                raise InvalidRequest("Unexpected empty filter component entity type")
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        kinds.add(kind)
        if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
            raise InvalidRequest(f"Unknown match type {component.match_type}")
        if component.match_type == MATCH_EXACT and component.match is None:
            raise InvalidRequest("Request specified EXACT_NAME, but the match string was null.")
        if component.match_type != MATCH_EXACT and component.match is not None:
            name = "DEFAULT_NAME" if component.match_type == MATCH_DEFAULT else "SPECIFIED"
            raise InvalidRequest(f"Request specified {name}, but the match string was non-null.")
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination: IP filter component should not be used with user or "
            "clientId filter component."
        )


def matches(entity: Mapping[str, str | None], wanted: Mapping[str, gen.ComponentData], *, strict: bool) -> bool:
    """Whether an entity matches every component of a filter; with `strict` it has no other entity type."""
    for kind, component in wanted.items():
        if kind not in entity:
            return False
        name = entity[kind]
        if component.match_type == MATCH_EXACT and name != component.match:
            return False
        if component.match_type == MATCH_DEFAULT and name is not None:
            return False
    return not strict or len(entity) == len(wanted)


def entry(entity: QuotaEntity, limits: Mapping[str, float]) -> gen.EntryData:
    return gen.EntryData(
        entity=[gen.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[gen.ValueData(key=key, value=value) for key, value in sorted(limits.items())],
    )
