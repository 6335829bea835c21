"""Validation of ShareGroupHeartbeat requests that does not depend on the group."""

from penstock.groups.commands import ShareHeartbeat
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest
from penstock.wire.group_values import JOINING_EPOCH, LEFT_EPOCH

MEMBER_ID_LENGTH_MAX = 36
"""Of the text of a UUID with dashes."""


def refusal(command: ShareHeartbeat) -> BrokerError | None:
    """The error of an invalid heartbeat, with Kafka's messages and order of checks."""
    if not command.member_id or len(command.member_id) > MEMBER_ID_LENGTH_MAX:
        return InvalidRequest()
    for value, name in ((command.member_id, "MemberId"), (command.group, "GroupId"), (command.rack_id, "RackId")):
        if value is not None and not value.strip():
            return InvalidRequest(f"{name} can't be empty.")
    if command.member_epoch == JOINING_EPOCH and not command.subscribed_topics:
        return InvalidRequest("SubscribedTopicNames must be set in first request.")
    if command.member_epoch < LEFT_EPOCH:
        return InvalidRequest("MemberEpoch is invalid.")
    return None
