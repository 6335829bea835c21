"""Lines in the admin log for requests and responses of rarer administrative APIs."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from penstock.api.admin_log import (
    HIDDEN,
    AdminLog,
    configs_replaced,
    features_updated,
    groups_deleted,
    markers_written,
    members_removed,
    offsets_deleted,
    offsets_set,
    replicas_moved,
    shown_value,
)
from penstock.api.group_offsets import CommitResponse
from penstock.api.registry import Api
from penstock.config.broker import BROKER_KEYS
from penstock.model.clock import SystemClock
from penstock.model.deferred import Deferred
from penstock.model.turns import Turns
from penstock.wire.api import (
    alter_configs,
    alter_replica_log_dirs,
    delete_groups,
    leave_group,
    offset_delete,
    update_features,
    write_txn_markers,
)
from penstock.wire.commit import CommitRequest

REFUSED = 42


def lines(changes: Any, request: Any, response: Any) -> list[Any]:
    return [line for line in changes(request, response) if line is not None]


def test_a_version_that_an_operator_finalized_is_logged_and_no_trial_of_it() -> None:
    wanted = update_features.FeatureUpdateKey(feature="penstock.version", max_version_level=2)
    request = update_features.Request(feature_updates=[wanted])
    trial = update_features.Request(feature_updates=[wanted], validate_only=True)

    assert lines(features_updated, request, update_features.Response()) == [
        ("feature_updated", {"feature": "penstock.version", "level": 2})
    ]
    assert not lines(features_updated, trial, update_features.Response())
    assert not lines(features_updated, request, update_features.Response(error_code=REFUSED))


def test_a_transaction_that_an_operator_ended_is_logged_with_its_partitions() -> None:
    request = write_txn_markers.Request(
        markers=[write_txn_markers.WritableTxnMarker(producer_id=7, transaction_result=False)]
    )
    result = write_txn_markers.WritableTxnMarkerPartitionResult
    topic = write_txn_markers.WritableTxnMarkerTopicResult(
        name="t", partitions=[result(partition_index=0), result(partition_index=1, error_code=REFUSED)]
    )
    response = write_txn_markers.Response(
        markers=[write_txn_markers.WritableTxnMarkerResult(producer_id=7, topics=[topic])]
    )

    assert lines(markers_written, request, response) == [
        ("txn_aborted_by_operator", {"producer_id": 7, "partitions": ["t-0"]})
    ]


def test_groups_and_offsets_that_were_deleted_are_logged_and_those_refused_are_not() -> None:
    groups = delete_groups.Response(
        results=[
            delete_groups.DeletableGroupResult(group_id="g"),
            delete_groups.DeletableGroupResult(group_id="busy", error_code=REFUSED),
        ]
    )
    partition = offset_delete.OffsetDeleteResponsePartition
    topic = offset_delete.OffsetDeleteResponseTopic(
        name="t", partitions=[partition(partition_index=0, error_code=REFUSED), partition(partition_index=2)]
    )

    assert lines(groups_deleted, delete_groups.Request(), groups) == [("group_deleted", {"group": "g"})]
    assert lines(offsets_deleted, offset_delete.Request(group_id="g"), offset_delete.Response(topics=[topic])) == [
        ("group_offsets_deleted", {"group": "g", "partitions": ["t-2"]})
    ]


def test_offsets_committed_by_an_operator_are_logged_with_their_partitions() -> None:
    request = CommitRequest("g", -1, "", -1, None, [("t", None, [(0, 5, -1, ""), (1, 6, -1, "")])])
    response = CommitResponse([("t", None, [(0, 0), (1, REFUSED)])])

    assert lines(offsets_set, request, response) == [("group_offsets_set", {"group": "g", "offsets": ["t-0:5"]})]


def test_members_that_an_operator_removed_are_logged_and_those_that_left_are_not() -> None:
    response = leave_group.Response(
        members=[
            leave_group.MemberResponse(member_id="", group_instance_id="one"),
            leave_group.MemberResponse(member_id="m-2", group_instance_id="two"),
        ]
    )

    assert lines(members_removed, leave_group.Request(group_id="g"), response) == [
        ("group_members_removed", {"group": "g", "instances": ["one"]})
    ]


def test_moves_of_replicas_to_another_directory_are_logged() -> None:
    topics = [alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0, 1])]
    request = alter_replica_log_dirs.Request(dirs=[alter_replica_log_dirs.AlterReplicaLogDir(path="/b", topics=topics)])
    partition = alter_replica_log_dirs.AlterReplicaLogDirPartitionResult
    result = alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
        topic_name="t", partitions=[partition(partition_index=0), partition(partition_index=1, error_code=REFUSED)]
    )

    assert lines(replicas_moved, request, alter_replica_log_dirs.Response(results=[result])) == [
        ("replica_move_started", {"to": "/b", "partitions": ["t-0"]})
    ]


def test_replaced_settings_are_logged_completely() -> None:
    configs = [alter_configs.AlterableConfig(name="retention.ms", value="1")]
    request = alter_configs.Request(
        resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)]
    )
    outcome = alter_configs.AlterConfigsResourceResponse(resource_type=2, resource_name="t")

    assert lines(configs_replaced, request, alter_configs.Response(responses=[outcome])) == [
        ("configs_replaced", {"kind": "topic", "name": "t", "configs": {"retention.ms": "1"}})
    ]


@pytest.mark.parametrize("name", sorted(BROKER_KEYS))
def test_the_value_of_a_sensitive_setting_is_hidden(name: str) -> None:
    assert shown_value(name, "v") == (HIDDEN if BROKER_KEYS[name].sensitive else "v")


class LeaveContext:
    """The context of a LeaveGroup request."""

    user = client_id = "c"

    class connection:
        peer = "127.0.0.1:1"

        @staticmethod
        def report(error: Exception) -> None:
            raise AssertionError(f"someone waits for {error}")


@pytest.mark.parametrize("fault", ["of the handler", "of the line"])
def test_a_bug_behind_a_logged_request_reaches_the_connection_that_waits(fault: str) -> None:
    inner = Deferred[Any]()
    admin = AdminLog(
        structlog.get_logger(), is_managed=lambda _: False, turns=Turns(lambda _: None, SystemClock().monotonic)
    )
    api = admin.logged(Api(key=13, versions=range(6), handle=lambda context, request: inner))
    failures: list[Exception] = []
    context: Any = LeaveContext()

    waiting = api.handle(context, leave_group.Request(group_id="g"))
    assert isinstance(waiting, Deferred)
    waiting.deliver_to(lambda response: None, failures.append)
    if fault == "of the handler":
        inner.fail(RuntimeError("a bug"))
    else:
        inner.resolve("no response that has members")

    assert len(failures) == 1
