"""Administrative changes in the broker's log: who did what, one line per change.

The lines are made from a request and its response, when the response is ready, so that the handlers of the APIs in
`CHANGES` need not log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar, cast

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, Handler, RequestContext
from penstock.config.broker import BROKER_KEYS
from penstock.controller.configs import ResourceType, Step
from penstock.model.deferred import Deferred, Eventual
from penstock.model.turns import Turns
from penstock.observe.log import Logger
from penstock.replication.peers import SOFTWARE_NAME as BROKER_SOFTWARE

LINES_PER_REQUEST_MAX = 100
"""Most lines for one request; a last line counts the rest."""
ITEMS_PER_LINE_MAX = 20
NO_GENERATION = -1
HIDDEN = "[hidden]"
OFFSET_COMMIT = 8
WRITE_TXN_MARKERS = 27

Line = tuple[str, dict[str, Any]]
"""An event and its fields."""
Changes = Callable[[Any, Any], Iterator[Line | None]]
"""The lines for a request and its response; None is a step without a line."""
T = TypeVar("T")


class AdminLog:
    """Writes the lines, with the user, client id and address of the request."""

    def __init__(self, log: Logger, *, is_managed: Callable[[str], bool], turns: Turns) -> None:
        self._log = log
        self._is_managed = is_managed
        self._turns = turns

    def logged(self, api: Api) -> Api:
        """The same API, whose changes are logged if it makes any."""
        if api.key == OFFSET_COMMIT:
            return replace(api, handle=self._of_commits(api))
        changes = CHANGES.get(api.key)
        if changes is None:
            return api

        def handle(context: RequestContext, request: Any) -> Eventual[Any]:
            if api.key == WRITE_TXN_MARKERS and context.connection.software[0] == BROKER_SOFTWARE:
                # A coordinator on another broker ends a transaction as its producer asked.
                return api.handle(context, request)
            return self._when_done(context, request, api.handle(context, request), changes)

        return replace(api, handle=handle)

    def write(self, context: RequestContext, lines: Iterable[Line | None]) -> None:
        for _ in self._steps(context, lines):
            pass

    def _steps(self, context: RequestContext, lines: Iterable[Line | None]) -> Iterator[None]:
        """Write the lines; the caller may pause between two steps."""
        who = {"user": context.user, "client_id": context.client_id, "peer": context.peer}
        count = 0
        for line in lines:
            if line is not None:
                count += 1
                if count <= LINES_PER_REQUEST_MAX:
                    event, fields = line
                    self._log.info(event, **fields, **who)
            yield
        if count > LINES_PER_REQUEST_MAX:
            self._log.info("more_of_the_same_request", lines=count - LINES_PER_REQUEST_MAX, **who)

    def _of_commits(self, api: Api) -> Handler:
        """Log only commits of operators: those from outside of a group that has had members."""
        handler, is_managed = api.handle, self._is_managed

        def handle(context: RequestContext, request: Any) -> Eventual[Any]:
            if request.generation > NO_GENERATION or request.member_id or not is_managed(request.group):
                return handler(context, request)
            return self._when_done(context, request, handler(context, request), offsets_set)

        return handle

    def _when_done(
        self, context: RequestContext, request: Any, result: Eventual[Any], changes: Changes
    ) -> Eventual[Any]:
        if not isinstance(result, Deferred):
            return self._log_changes(context, request, result, changes)
        # The change is made, and logged, also for a client that disconnects meanwhile.
        later = cast("Deferred[object]", result)
        return later.then(
            lambda response: self._log_changes(context, request, response, changes), shielded=context.connection.report
        )

    @in_turns
    async def _log_changes(self, context: RequestContext, request: Any, response: T, changes: Changes) -> T:
        """Log the changes in a response, over several turns of the loop if there are many."""
        if response is not None:
            await self._turns.run(self._steps(context, changes(request, response)))
        return response


def first(items: Iterable[T]) -> list[T | str]:
    """The first items, as many as a line may have, and the count of the rest."""
    left = iter(items)
    shown: list[T | str] = list(islice(left, ITEMS_PER_LINE_MAX))
    more = sum(1 for _ in left)
    return [*shown, f"and {more} more"] if more else shown


def topics_created(request: Any, response: Any) -> Iterator[Line | None]:
    given = {topic.name: {config.name: config.value for config in topic.configs} for topic in request.topics}
    for topic in response.topics:
        yield None
        if not topic.error_code and not request.validate_only:
            yield (
                "topic_created",
                {
                    "topic": topic.name,
                    "partitions": topic.num_partitions,
                    "replication_factor": topic.replication_factor,
                    "configs": given.get(topic.name, {}),
                },
            )


def topics_deleted(request: Any, response: Any) -> Iterator[Line | None]:
    for topic in response.responses:
        yield None
        if not topic.error_code:
            yield "topic_deleted", {"topic": topic.name}


def topics_grown(request: Any, response: Any) -> Iterator[Line | None]:
    counts = {topic.name: topic.count for topic in request.topics}
    for topic in response.results:
        yield None
        if not topic.error_code and not request.validate_only:
            yield "topic_grown", {"topic": topic.name, "partitions": counts[topic.name]}


def records_deleted(request: Any, response: Any) -> Iterator[Line | None]:
    for topic in response.topics:
        starts = [f"{each.partition_index}:{each.low_watermark}" for each in topic.partitions if not each.error_code]
        if starts:
            yield "records_deleted", {"topic": topic.name, "log_starts": first(starts)}


def configs_replaced(request: Any, response: Any) -> Iterator[Line | None]:
    failed = failed_resources(response)
    for resource in request.resources:
        if (resource.resource_type, resource.resource_name) not in failed and not request.validate_only:
            values = {config.name: shown_value(config.name, config.value) for config in resource.configs}
            yield "configs_replaced", {**named(resource), "configs": values}


def configs_changed(request: Any, response: Any) -> Iterator[Line | None]:
    failed = failed_resources(response)
    for resource in request.resources:
        changed = (resource.resource_type, resource.resource_name) not in failed and not request.validate_only
        if changed and resource.configs:
            steps = [
                f"{Step(config.config_operation).name.lower()} {config.name}"
                + ("" if config.value is None else f"={shown_value(config.name, config.value)}")
                for config in resource.configs
            ]
            yield "configs_changed", {**named(resource), "changes": first(steps)}


def failed_resources(response: Any) -> set[tuple[int, str]]:
    return {(each.resource_type, each.resource_name) for each in response.responses if each.error_code}


def named(resource: Any) -> Mapping[str, str]:
    return {"kind": ResourceType(resource.resource_type).name.lower(), "name": resource.resource_name}


def shown_value(name: str, value: str | None) -> str | None:
    declared = BROKER_KEYS.get(name)
    return HIDDEN if declared is not None and declared.sensitive else value


def quotas_changed(request: Any, response: Any) -> Iterator[Line | None]:
    for wanted, outcome in zip(request.entries, response.entries, strict=True):
        yield None
        if not outcome.error_code and not request.validate_only:
            entity = {part.entity_type: part.entity_name for part in wanted.entity}
            limits = {op.key: None if op.remove else op.value for op in wanted.ops}
            yield "quota_changed", {"entity": entity, "limits": limits}


def groups_deleted(request: Any, response: Any) -> Iterator[Line | None]:
    for group in response.results:
        yield None
        if not group.error_code:
            yield "group_deleted", {"group": group.group_id}


def offsets_deleted(request: Any, response: Any) -> Iterator[Line | None]:
    places = [
        f"{topic.name}-{each.partition_index}"
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code
    ]
    if places and not response.error_code:
        yield "group_offsets_deleted", {"group": request.group_id, "partitions": first(places)}


def offsets_set(request: Any, response: Any) -> Iterator[Line | None]:
    failed = {(topic[0], topic[1], index) for topic in response.topics for index, code in topic[2] if code}
    offsets = [
        f"{name or topic_id.hex()}-{index}:{offset}"
        for name, topic_id, partitions in request.topics
        for index, offset, *_ in partitions
        if (name, topic_id, index) not in failed
    ]
    if offsets:
        yield "group_offsets_set", {"group": request.group, "offsets": first(offsets)}


def members_removed(request: Any, response: Any) -> Iterator[Line | None]:
    """Log only members removed by an operator, who names static members; a member that leaves has its member id."""
    removed = [each.group_instance_id for each in response.members if not each.member_id and not each.error_code]
    if removed and not response.error_code:
        yield "group_members_removed", {"group": request.group_id, "instances": first(removed)}


def markers_written(request: Any, response: Any) -> Iterator[Line | None]:
    for marker, result in zip(request.markers, response.markers, strict=True):
        shown: list[str] = []
        count = 0
        for topic in result.topics:
            for each in topic.partitions:
                if not each.error_code:
                    count += 1
                    if count <= ITEMS_PER_LINE_MAX:
                        shown.append(f"{topic.name}-{each.partition_index}")
                yield None
            yield None
        yield None
        if count:
            if count > ITEMS_PER_LINE_MAX:
                shown.append(f"and {count - ITEMS_PER_LINE_MAX} more")
            outcome = "txn_committed_by_operator" if marker.transaction_result else "txn_aborted_by_operator"
            yield outcome, {"producer_id": marker.producer_id, "partitions": shown}


def replicas_moved(request: Any, response: Any) -> Iterator[Line | None]:
    failed = {
        (topic.topic_name, each.partition_index)
        for topic in response.results
        for each in topic.partitions
        if each.error_code
    }
    for directory in request.dirs:
        places = [
            f"{topic.name}-{index}"
            for topic in directory.topics
            for index in topic.partitions
            if (topic.name, index) not in failed
        ]
        if places:
            yield "replica_move_started", {"to": directory.path, "partitions": first(places)}


def features_updated(request: Any, response: Any) -> Iterator[Line | None]:
    if response.error_code or request.validate_only:
        return
    for wanted in request.feature_updates:
        yield "feature_updated", {"feature": wanted.feature, "level": wanted.max_version_level}


CHANGES: Mapping[int, Changes] = {
    13: members_removed,
    19: topics_created,
    20: topics_deleted,
    21: records_deleted,
    WRITE_TXN_MARKERS: markers_written,
    33: configs_replaced,
    34: replicas_moved,
    37: topics_grown,
    42: groups_deleted,
    44: configs_changed,
    47: offsets_deleted,
    49: quotas_changed,
    57: features_updated,
}
"""The lines of each API that makes administrative changes, by its key; `AdminLog.logged` handles OffsetCommit."""
