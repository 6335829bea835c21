"""Administrative changes are logged with their user; refused and only validated ones are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_world import World, in_world
from structlog.testing import capture_logs

from penstock.api.admin_log import ITEMS_PER_LINE_MAX, LINES_PER_REQUEST_MAX
from penstock.wire.api import (
    alter_client_quotas,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    incremental_alter_configs,
    metadata,
    write_txn_markers,
)

METADATA, CREATE, DELETE, DELETE_RECORDS, MARKERS, GROW, ALTER, QUOTAS = 3, 19, 20, 21, 27, 37, 44, 49
TOPIC, BROKER_LOGGER = 2, 8
WHO = {"user": "ANONYMOUS", "client_id": "test", "peer": "127.0.0.1:1"}


def create(*names: str, validate_only: bool = False) -> create_topics.Request:
    configs = [create_topics.CreatableTopicConfig(name="retention.ms", value="5000")]
    return create_topics.Request(
        topics=[
            create_topics.CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=configs)
            for name in names
        ],
        validate_only=validate_only,
    )


def alter(kind: int, name: str, *steps: tuple[str, int, str | None]) -> incremental_alter_configs.Request:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=step, value=value)
        for key, step, value in steps
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return incremental_alter_configs.Request(resources=[resource])


async def lines_of(world: World, key: int, request: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events that a request logs, with their own fields."""
    with capture_logs() as lines:
        await world.ask(key, request)
    admin = [line for line in lines if line.get("part") == "admin"]
    assert all(line["log_level"] == "info" and WHO.items() <= line.items() for line in admin)
    common = {*WHO, "part", "log_level", "event"}
    return [(line["event"], {name: line[name] for name in line if name not in common}) for line in admin]


def test_topics_created_grown_truncated_and_deleted_are_logged(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        made = await lines_of(world, CREATE, create("t"))
        grown = create_partitions.Request(
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=3, assignments=None)]
        )
        emptied = delete_records.Request(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="t", partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
                )
            ]
        )
        gone = delete_topics.Request(topics=[delete_topics.DeleteTopicState(name="t")])

        assert made == [
            (
                "topic_created",
                {"topic": "t", "partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "5000"}},
            )
        ]
        assert await lines_of(world, GROW, grown) == [("topic_grown", {"topic": "t", "partitions": 3})]
        truncated = await lines_of(world, DELETE_RECORDS, emptied)
        assert truncated == [("records_deleted", {"topic": "t", "log_starts": ["0:0"]})]
        assert await lines_of(world, DELETE, gone) == [("topic_deleted", {"topic": "t"})]

    in_world(tmp_path, act)


def test_an_automatically_created_topic_is_logged_once(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        request = metadata.Request(topics=[metadata.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)

        assert await lines_of(world, METADATA, request) == [("topic_auto_created", {"topic": "t", "partitions": 1})]
        assert await lines_of(world, METADATA, request) == []

    in_world(tmp_path, act)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (
            alter(TOPIC, "t", ("retention.ms", 0, "1"), ("segment.ms", 1, None)),
            {"kind": "topic", "name": "t", "changes": ["set retention.ms=1", "delete segment.ms"]},
        ),
        (
            alter(BROKER_LOGGER, "1", ("root", 0, "DEBUG")),
            {"kind": "broker_logger", "name": "1", "changes": ["set root=DEBUG"]},
        ),
    ],
)
def test_changed_settings_are_logged_with_their_values(
    tmp_path: Path, change: incremental_alter_configs.Request, fields: dict[str, Any]
) -> None:
    async def act(world: World) -> None:
        await world.ask(CREATE, create("t"))

        assert await lines_of(world, ALTER, change) == [("configs_changed", fields)]

    in_world(tmp_path, act)


def test_a_changed_quota_is_logged(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        entry = alter_client_quotas.RequestEntryData(
            entity=[alter_client_quotas.EntityData(entity_type="client-id", entity_name="c")],
            ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1024.0)],
        )
        logged = await lines_of(world, QUOTAS, alter_client_quotas.Request(entries=[entry]))

        assert logged == [("quota_changed", {"entity": {"client-id": "c"}, "limits": {"producer_byte_rate": 1024.0}})]

    in_world(tmp_path, act)


def test_refused_and_only_validated_changes_are_not_logged(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await world.ask(CREATE, create("t"))

        assert await lines_of(world, CREATE, create("t")) == []
        assert await lines_of(world, CREATE, create("other", validate_only=True)) == []
        assert await lines_of(world, ALTER, alter(TOPIC, "t", ("nope", 0, "1"))) == []
        gone = delete_topics.Request(topics=[delete_topics.DeleteTopicState(name="missing")])
        assert await lines_of(world, DELETE, gone) == []

    in_world(tmp_path, act)


def test_a_large_request_is_logged_in_part(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        logged = await lines_of(world, CREATE, create(*(f"t{n}" for n in range(LINES_PER_REQUEST_MAX + 5))))
        parts = [delete_records.DeleteRecordsPartition(partition_index=n, offset=0) for n in range(50)]
        wide = create_topics.CreatableTopic(name="wide", num_partitions=50, replication_factor=1)
        await world.ask(CREATE, create_topics.Request(topics=[wide]))
        emptied = delete_records.Request(topics=[delete_records.DeleteRecordsTopic(name="wide", partitions=parts)])
        [(_, truncated)] = await lines_of(world, DELETE_RECORDS, emptied)

        assert len(logged) == LINES_PER_REQUEST_MAX + 1
        assert logged[-1] == ("more_of_the_same_request", {"lines": 5})
        assert truncated["log_starts"][ITEMS_PER_LINE_MAX:] == ["and 30 more"]

    in_world(tmp_path, act)


@pytest.mark.parametrize(("software", "logged"), [("penstock-broker", False), ("penstock-cli", True)])
def test_a_marker_is_logged_where_an_operator_wrote_it(tmp_path: Path, software: str, logged: bool) -> None:
    async def act(world: World) -> None:
        await world.ask(CREATE, create("t"))
        topic = write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
        marker = write_txn_markers.WritableTxnMarker(producer_id=7, transaction_result=False, topics=[topic])
        world.connection.software = (software, "1")

        lines = await lines_of(world, MARKERS, write_txn_markers.Request(markers=[marker]))

        assert [event for event, _ in lines] == ["txn_aborted_by_operator"] * logged

    in_world(tmp_path, act)
