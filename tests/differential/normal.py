"""Normalises responses: values that differ between runs become tokens, equal values equal tokens.

A token keeps what can be compared: that a value is present, that it is the same as before, and what it belongs to.
"""

from __future__ import annotations

import base64
import re
import uuid
from typing import Any

from kio.schema.index import api_key_map

from .batches import NOW_MS_MIN, read_batches

NAME_FIELDS = ("name", "topic", "topic_name", "resource_name", "group_id", "transactional_id")
MEMBER_FIELDS = frozenset({"member_id", "leader"})
MEMBER_ID_MADE = re.compile(r"(?s)(?:(.*)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[\w-]{22})")
"""Member ids that a coordinator assigns: a client's or instance's name with a random id, or a random id alone."""
BROKER_FIELDS = frozenset(
    {
        "broker_id",
        "coordinator_id",
        "controller_id",
        "isr_nodes",
        "leader",
        "leader_id",
        "node_id",
        "offline_replicas",
        "preferred_read_replica",
        "replica_id",
        "replica_nodes",
        "replicas",
        "adding_replicas",
        "removing_replicas",
        "eligible_leader_replicas",
        "last_known_elr",
    }
)
WHOLE_FIELDS = {
    "cluster_id": "<cluster>",
    "documentation": "<text>",
    "host": "<host>",
    "log_dir": "<log dir>",
    "port": "<port>",
    "session_id": "<session>",
    "total_bytes": "<bytes>",
    "usable_bytes": "<bytes>",
    "client_instance_id": "<instance>",
    "subscription_id": "<subscription>",
    "finalized_features_epoch": "<epoch>",
    "replica_directory_id": "<directory>",
}
"""Replaced by a token unless null, zero, empty or negative: those mean "none" and are compared."""
TIME_FIELDS = frozenset(
    {
        "log_append_time",
        "base_timestamp",
        "max_timestamp",
        "timestamp",
        "last_timestamp",
        "last_fetch_timestamp",
        "transaction_start_time",
    }
)
IDENTITY_FIELDS = (
    "resource_type",
    *NAME_FIELDS,
    "member_id",
    "topic_id",
    "partition_index",
    "partition",
    "partition_id",
    "index",
    "node_id",
    "broker_id",
    "api_key",
    "key",
    "log_dir",
    "feature",
    "user",
    "producer_id",
)
"""Kafka returns many lists in the order of a hash table: lists are compared as sets of these fields."""
ORDERED_LISTS = frozenset({"synonyms", "records", "aborted_transactions"})
SETS = frozenset({"partitions", "subscribed_topic_names"})
"""Lists of plain values in the order of a hash table."""
LOWEST_TIME = re.compile(r"-92233\d{14}\b")
BROKER_TIME = re.compile(r"\b1[7-9]\d{11}\b")
TEXT_SHOWN_MAX = 300


class Tokens:
    """The tokens of names and ids in the responses of one run of a scenario."""

    def __init__(self, bootstrap: str, broker_id: int) -> None:
        self.bootstrap = bootstrap
        self.broker_id = broker_id
        self._names: dict[str, str] = {}
        self._topic_ids: dict[str, str] = {}
        self._producer_ids: dict[int, str] = {}
        self._member_ids: dict[str, str] = {}

    def add_name(self, name: str, token: str) -> None:
        self._names[name] = token

    def add_topic_id(self, topic_id: str, token: str) -> None:
        self._topic_ids[topic_id] = token

    def is_own(self, name: str) -> bool:
        return name in self._names

    def text(self, value: str) -> str:
        for name in sorted(self._names, key=len, reverse=True):
            value = value.replace(name, f"<{self._names[name]}>")
        for topic_id, token in self._topic_ids.items():
            value = value.replace(topic_id, token).replace(kafka_form(topic_id), token)
        for member_id, token in self._member_ids.items():
            value = value.replace(member_id, token)
        value = LOWEST_TIME.sub("<now - forever>", value.replace(self.bootstrap, "<address>"))
        value = BROKER_TIME.sub(lambda match: "<now>" if int(match[0]) > NOW_MS_MIN else match[0], value)
        return value if len(value) <= TEXT_SHOWN_MAX or " " in value else f"{value[:16]}... of {len(value)}"

    def topic_id(self, value: str) -> str:
        return self._topic_ids.setdefault(value, f"<id {len(self._topic_ids)}>")

    def producer_id(self, value: int) -> str:
        return self._producer_ids.setdefault(value, f"<producer {len(self._producer_ids)}>")

    def member_id(self, value: str) -> str:
        """The token of a member: its number in the order of first sight, and the name in its id."""
        made = MEMBER_ID_MADE.fullmatch(value)
        if made is None or value in self._names:
            return self.text(value)
        of = "" if made[1] is None else f" of {self.text(made[1])}"
        return self._member_ids.setdefault(value, f"<member {len(self._member_ids) + 1}{of}>")

    def learn(self, value: Any) -> None:
        """Learn the topic ids of a response from the names beside them."""
        if isinstance(value, dict):
            name = next((value[field] for field in NAME_FIELDS if value.get(field)), None)
            topic_id = value.get("topic_id")
            if name in self._names and topic_id:
                self._topic_ids.setdefault(topic_id, f"<id of {self._names[name]}>")
            for item in value.values():
                self.learn(item)
        elif isinstance(value, list):
            for item in value:
                self.learn(item)


def kafka_form(topic_id: str) -> str:
    """An id as Kafka prints it in messages: base64 without padding."""
    return base64.urlsafe_b64encode(uuid.UUID(topic_id).bytes).decode().rstrip("=")


def normalise(response: dict[str, Any], tokens: Tokens, *, own_only: bool) -> dict[str, Any]:
    tokens.learn(response)
    return _normal("", response, tokens, own_only)


def _normal(field: str, value: Any, tokens: Tokens, own_only: bool) -> Any:
    match value:
        case dict():
            if value.get("crc", "wrong") != "wrong" and (
                value["max_timestamp"] > NOW_MS_MIN or value["producer_id"] >= 0
            ):
                value = value | {"crc": "<right>"}
            return {name: _normal(name, item, tokens, own_only) for name, item in value.items()}
        case list() if field == "api_keys":
            return {_api_name(item["api_key"]): [item["min_version"], item["max_version"]] for item in value}
        case list():
            value = _merged(value) if field == "responses" else value
            kept = [item for item in value if not (own_only and _is_foreign(item, tokens))]
            items = [_normal(field, item, tokens, own_only) for item in kept]
            if field in SETS and not any(isinstance(item, dict) for item in items):
                return sorted(items)
            return items if field in ORDERED_LISTS else sorted(items, key=_identity)
        case bytes() if field == "records":
            return _normal(field, read_batches(value), tokens, own_only)
        case bytes():
            return value.hex()
        case _:
            return _leaf(field, value, tokens)


def _api_name(key: int) -> str:
    return api_key_map.get(key, str(key))


def _leaf(field: str, value: Any, tokens: Tokens) -> Any:
    if field in WHOLE_FIELDS:
        return value if value is None or value == "" or value == 0 or value == -1 else WHOLE_FIELDS[field]
    if field in NAME_FIELDS and value == str(tokens.broker_id):
        return "<broker>"
    if field in BROKER_FIELDS and value == tokens.broker_id and not isinstance(value, bool):
        return "<broker>"
    if field in TIME_FIELDS and isinstance(value, int) and value > NOW_MS_MIN:
        return "<now>"
    if field == "topic_id" and value is not None:
        return tokens.topic_id(value)
    if field in MEMBER_FIELDS and isinstance(value, str):
        return tokens.member_id(value)
    if field == "producer_id" and value >= 0:
        return tokens.producer_id(value)
    return tokens.text(value) if isinstance(value, str) else value


def _merged(topics: list[Any]) -> list[Any]:
    """One entry per topic: Kafka repeats a topic where errors precede data."""
    out: dict[Any, dict[str, Any]] = {}
    for index, topic in enumerate(topics):
        key = topic.get("topic") or topic.get("topic_id")
        if "partitions" not in topic or key is None:
            out[index] = topic
        elif key in out:
            out[key] = out[key] | {"partitions": [*out[key]["partitions"], *topic["partitions"]]}
        else:
            out[key] = topic
    return list(out.values())


def _is_foreign(item: Any, tokens: Tokens) -> bool:
    if not isinstance(item, dict):
        return False
    name = next((item[field] for field in NAME_FIELDS if field in item), None)
    return isinstance(name, str) and not tokens.is_own(name)


def _identity(item: Any) -> Any:
    if not isinstance(item, dict):
        return ()
    return tuple((type(item[field]).__name__, item[field]) for field in IDENTITY_FIELDS if item.get(field) is not None)
