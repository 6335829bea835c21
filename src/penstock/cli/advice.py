"""Advice for each error, for `penstock explain`, failing commands and the reference page."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.model.error_codes import ERRORS_BY_CODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """An error with its meaning and advice."""

    code: int
    name: str
    meaning: str
    retriable: bool
    advice: str


ADVICE: dict[int, str] = {
    -1: (
        "The broker hit a bug or a condition without an error code: its log has the event with a traceback. Report "
        "it with that event; a retry may work."
    ),
    1: (
        "The offset is older than the log's start (retention or truncation removed it) or beyond its end (the "
        "topic was created again). Set auto.offset.reset, or seek: `penstock topic describe TOPIC` shows start and "
        "end."
    ),
    2: (
        "The batch was damaged on its way, or has no key on a compacted topic. Retry once; if it persists, check for "
        "a proxy that rewrites traffic, give every record a key, and look at the disk with `penstock log verify`."
    ),
    3: (
        "The topic or partition does not exist here. Check the name with `penstock topic list`; create it with "
        "`penstock topic create`, or set auto.create.topics.enable=true. Just after creation a retry is enough."
    ),
    5: (
        "No leader yet: the topic is being created, or every replica is down. Clients retry by themselves; if it "
        "lasts, `penstock topic describe` shows partitions with leader -1, whose brokers must come back."
    ),
    6: (
        "The client's metadata is old: leadership has moved. Clients refresh and retry by themselves; if it "
        "persists, check that advertised.listeners lead to the right broker."
    ),
    7: (
        "The broker could not respond within the timeout of the request: too few replicas in sync, a slow disk, or "
        "load. Look at penstock_flush_seconds and penstock_loop_lag_seconds, then raise request.timeout.ms."
    ),
    8: "The broker is not alive. Start it, or bring the cluster's metadata up to date.",
    9: "A replica is not available yet. Retry; if it lasts, its broker or log directory is down.",
    10: (
        "The batch is larger than the topic's max.message.bytes. Lower batch.size (or message.max.bytes) in the "
        "producer, compress, or raise it: `penstock topic alter TOPIC max.message.bytes=N`."
    ),
    13: (
        "The connection broke before the response. Clients reconnect; if it repeats, look for a proxy, a firewall "
        "or an idle timeout (connections.max.idle.ms) between them."
    ),
    14: "The coordinator has just moved and loads its state. Wait: clients retry by themselves.",
    15: (
        "There is no coordinator: the internal topic is being created, or its broker is down. Clients retry; if "
        "it lasts, look at the partitions of __consumer_offsets or __transaction_state."
    ),
    16: "The group or transaction is coordinated by another broker. Clients look it up again by themselves.",
    17: (
        "A topic name has 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'; writing "
        "to the broker's own topics is refused too."
    ),
    18: (
        "The batch does not fit into one segment. Lower the producer's batch.size, or raise the topic's segment.bytes."
    ),
    19: (
        "Fewer replicas are in sync than min.insync.replicas requires, so acks=all is refused and nothing is written. "
        "Bring brokers back, or lower min.insync.replicas and accept the risk."
    ),
    20: (
        "Written by the leader, but too few replicas have it: it may or may not survive. Retry with an idempotent "
        "producer, which cannot duplicate it."
    ),
    21: "acks must be 0, 1 or -1 (all).",
    22: (
        "The member belongs to an earlier generation of its group. It must join again; clients do so by "
        "themselves. If it repeats, processing takes longer than max.poll.interval.ms."
    ),
    23: (
        "The members have no assignor or protocol type in common. Give all members the same "
        "partition.assignment.strategy, changing it in two rolling steps."
    ),
    24: "Set group.id to a name that is not empty.",
    25: (
        "The group does not know the member: it was away for longer than its session or poll interval. It must "
        "join again; poll more often, or raise max.poll.interval.ms."
    ),
    26: (
        "session.timeout.ms must lie between the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms."
    ),
    27: "The group is being rebalanced. Join again; clients do so by themselves.",
    29: (
        "The user may not do this to the topic. Ask for an ACL on it, or check the name: unknown topics get "
        "this error too."
    ),
    30: "The user may not use this group. Ask for an ACL on the group.",
    31: "The user may not do this to the cluster.",
    32: (
        "The timestamp is further from the broker's clock than message.timestamp.before.max.ms or "
        "message.timestamp.after.max.ms allow. It is in milliseconds: check for seconds or microseconds, and the "
        "clock."
    ),
    33: "The listener does not offer this SASL mechanism. Use one that the response lists.",
    34: (
        "A request arrived before the authentication was finished. Check security.protocol: a SASL listener needs "
        "SASL_PLAINTEXT or SASL_SSL."
    ),
    35: (
        "The broker does not support the version of the request. Use a newer client (Kafka 2.1 or later), "
        "and do not disable api.version.request."
    ),
    36: "A topic of this name exists. Use it, choose another name, or pass --if-not-exists.",
    37: ("The number of partitions must be at least 1, and can only grow: give a number larger than the topic has."),
    38: "The replication factor must be at least 1 and at most the number of live brokers.",
    39: "Each partition needs a list of distinct brokers that exist, the same number for all.",
    40: (
        "The message names the setting, its value and what is allowed; `penstock config describe topic NAME --all` "
        "shows every setting."
    ),
    41: "Another broker is the controller. Clients look it up again by themselves.",
    42: (
        "The request contradicts itself, or is not supported by the broker, such as changing a setting that is "
        "read only at start; the message says why. Without a message, look at the client's log."
    ),
    44: (
        "The message says what forbids it. Without one: the records of a topic that is only compacted cannot be "
        "truncated, its cleanup.policy must contain delete."
    ),
    45: (
        "Earlier records of this producer are missing: they were lost, or the log was truncated. The "
        "producer must fail the batch; idempotent clients bump their epoch and go on. Look for data loss before."
    ),
    46: "The broker already has this batch. Treat it as acknowledged.",
    47: "A newer instance of this producer took over. Close this one; do not share a transactional.id.",
    48: "The transaction is not in a state that allows this: mind the order begin, send, commit or abort.",
    49: "The producer id does not belong to this transactional.id. Call init_transactions again.",
    50: "transaction.timeout.ms is larger than the broker's transaction.max.timeout.ms.",
    51: ("The last transaction of this producer is still being completed. Retry shortly; clients do so by themselves."),
    56: (
        "The disk is full or failing. Free space, and the broker recovers by itself; the broker's log names the "
        'directory, penstock_log_directory_free_bytes and penstock_log_directories{state="offline"} show it.'
    ),
    57: "The broker has no such log directory; log.dirs lists those it has.",
    58: "User or password is wrong, or the mechanism does not match.",
    59: (
        "The broker has forgotten the producer (expired after producer.id.expiration.ms, or its records were "
        "deleted). Idempotent clients start a new sequence by themselves."
    ),
    68: "The group has members. Stop them first, then delete it.",
    69: "There is no such group. Names are case-sensitive.",
    70: ("The broker has dropped the fetch session (restart, or too many). Clients start a new one by themselves."),
    71: "Client and broker disagree about the fetch session. Clients start a new one by themselves.",
    74: "The request names an older leader epoch: metadata is out of date. Clients refresh it by themselves.",
    75: "The broker does not know this newer leader epoch yet. Retry.",
    76: (
        "The topic's or the batch's codec is not supported in this version: zstd needs clients of Kafka 2.1 or later."
    ),
    79: "A member without an id has to join again with the id in the response. Clients do so by themselves.",
    82: "Another member uses the same group.instance.id. Give each instance its own.",
    87: ("The broker refused a record: the message says which and why (size, key on a compacted topic, timestamp)."),
    89: "A quota on changes to topics is used up. Retry after the throttle time.",
    90: "A newer instance with the same transactional.id took over. Close this one.",
    100: "The broker does not know the topic's id: the topic was deleted, or created again. Refresh the metadata.",
    103: "Topic id and name do not match: the topic was created again. Refresh the metadata.",
}
"""The advice by error code, for errors that users see."""

LOCAL: dict[int, tuple[str, str, bool, str]] = {
    -199: (
        "_BAD_COMPRESSION",
        "The client cannot decompress what it read.",
        False,
        "A producer wrote a damaged batch, or the client was built without its codec.",
    ),
    -195: (
        "_TRANSPORT",
        "The client lost its connection, or never got one.",
        True,
        "Is the broker running, is --bootstrap right, does the listener require TLS?",
    ),
    -193: (
        "_RESOLVE",
        "The client cannot find the broker's host name.",
        True,
        "Brokers are reached under the name in advertised.listeners: it must resolve where the client runs.",
    ),
    -192: (
        "_MSG_TIMED_OUT",
        "A record was not acknowledged within message.timeout.ms.",
        False,
        "The partition has no leader, the broker is down, or acks=all waits for replicas: `penstock topic describe`.",
    ),
    -191: (
        "_PARTITION_EOF",
        "The consumer has read everything there is.",
        True,
        "Not an error.",
    ),
    -190: (
        "_UNKNOWN_PARTITION",
        "The topic has no such partition.",
        False,
        "`penstock topic describe` shows those it has.",
    ),
    -188: (
        "_UNKNOWN_TOPIC",
        "The cluster has no such topic.",
        False,
        "Create it with `penstock topic create`, or check the name with `penstock topic list`.",
    ),
    -187: (
        "_ALL_BROKERS_DOWN",
        "The client cannot reach any of the brokers it knows.",
        True,
        "Start one, or check advertised.listeners: clients connect to these and not to the bootstrap address.",
    ),
    -186: (
        "_INVALID_ARG",
        "A setting or an argument of the client is invalid.",
        False,
        "The message names it; -X KEY=VALUE takes librdkafka's properties.",
    ),
    -185: (
        "_TIMED_OUT",
        "The broker did not respond in time.",
        True,
        "It is overloaded, paused, or not a Kafka broker: look at /healthz and at its log.",
    ),
    -184: (
        "_QUEUE_FULL",
        "The producer's own queue is full.",
        True,
        "Call poll() between sends, or raise queue.buffering.max.messages.",
    ),
    -181: (
        "_SSL",
        "The TLS handshake failed.",
        False,
        "Check security.protocol, the listener's port, ssl.ca.location and the name in the certificate.",
    ),
    -169: (
        "_AUTHENTICATION",
        "The broker refused the login.",
        False,
        "Check sasl.mechanism, user and password.",
    ),
}
"""librdkafka's own errors, which no broker sends, by its codes."""


def every() -> tuple[Explained, ...]:
    """All errors of the protocol in order of their codes, then librdkafka's own."""
    return (*(of_protocol(code) for code in sorted(ERRORS_BY_CODE)), *(of_library(code) for code in sorted(LOCAL)))


def of_protocol(code: int) -> Explained:
    error = ERRORS_BY_CODE[code]
    return Explained(
        code=code,
        name=error.name,
        meaning=error.meaning(),
        retriable=error.retriable,
        advice=ADVICE.get(code, ""),
    )


def of_library(code: int) -> Explained:
    name, meaning, retriable, advice = LOCAL[code]
    return Explained(code=code, name=name, meaning=meaning, retriable=retriable, advice=advice)


def find(text: str) -> Explained | None:
    """Find an error by code or name in any spelling: 6, NOT_LEADER_OR_FOLLOWER, NotLeaderOrFollowerException."""
    if re.fullmatch(r"-?\d{1,6}", text):
        code = int(text)
        if code in ERRORS_BY_CODE:
            return of_protocol(code)
        return of_library(code) if code in LOCAL else None
    wanted = _plain(text)
    return next((each for each in every() if _plain(each.name) == wanted), None)


def _plain(name: str) -> str:
    """A name without case, underscores and the suffixes that languages add."""
    return re.sub(r"(exception|error)$", "", name.replace("_", "").lower())
