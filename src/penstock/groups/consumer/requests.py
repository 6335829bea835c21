"""Validation of ConsumerGroupHeartbeat requests that does not depend on the group."""

from penstock.config.broker import BrokerConfig
from penstock.groups.commands import ConsumerHeartbeat
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest, UnsupportedAssignor
from penstock.wire.group_values import JOINING_EPOCH, LEFT_EPOCH, STATIC_LEFT_EPOCH

MEMBER_ID_VERSION_MIN = 1
"""From this version on the client generates the member id."""


def refusal(command: ConsumerHeartbeat, config: BrokerConfig) -> BrokerError | None:
    """The error of an invalid heartbeat, with Kafka's messages and order of checks."""
    epoch = command.member_epoch
    if blank(command.member_id) and (
        command.version >= MEMBER_ID_VERSION_MIN or epoch > JOINING_EPOCH or epoch == LEFT_EPOCH
    ):
        return InvalidRequest("MemberId can't be empty.")
    for value, name in (
        (command.group, "GroupId"),
        (command.group_instance_id, "InstanceId"),
        (command.rack_id, "RackId"),
    ):
        if value is not None and blank(value):
            return InvalidRequest(f"{name} can't be empty.")
    if epoch == JOINING_EPOCH:
        fault = joining_fault(command)
        if fault is not None:
            return InvalidRequest(fault)
    elif epoch == STATIC_LEFT_EPOCH and command.group_instance_id is None:
        return InvalidRequest("InstanceId can't be null.")
    elif epoch < STATIC_LEFT_EPOCH:
        return InvalidRequest("MemberEpoch is invalid.")
    assignors = config.group_consumer_assignors
    if command.server_assignor is not None and command.server_assignor not in assignors:
        return UnsupportedAssignor(
            f"ServerAssignor {command.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )
    return None


def blank(text: str) -> bool:
    return not text.strip()


def joining_fault(command: ConsumerHeartbeat) -> str | None:
    """The fault of a joining heartbeat, which must have all fields and no owned partitions."""
    if command.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if command.owned is None or command.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if command.subscribed_topics is None and command.subscribed_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None
