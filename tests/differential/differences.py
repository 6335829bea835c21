"""The intended differences: the comparison allows them, and docs/differences.md lists them.

The page is generated from here (`python tools/record_differential.py --page`) and compared by a test, so that every
allowed difference is documented with its reason.
"""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .compare import ABSENT, FieldDifference

PAGE = Path(__file__).parent.parent.parent / "docs" / "differences.md"
ANYTHING = "*"
PAGE_WIDTH = 120

INTRODUCTION = """# Where penstock differs from Apache Kafka

One script of requests is sent to Apache Kafka and to penstock, and the responses are compared field by field
(`tests/differential`). A difference that is not listed here is a bug.

This page is generated from `tests/differential/differences.py` by `python tools/record_differential.py --page`.

Some values differ between any two brokers and are compared by their meaning: topic ids, the cluster id, producer ids,
session ids, addresses, times set by the broker, paths and sizes of disks, the text of documentation. Lists that Kafka
returns in the order of a hash table are compared as sets.
"""


POLICIES = "String must be one of: compact, delete"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Fields of responses; a star in `scenario` or `field` stands for any text.

    `kafka` and `penstock` are the two values as JSON, or a star for any.
    """

    scenario: str
    field: str
    kafka: Any = ANYTHING
    penstock: Any = ANYTHING

    def covers(self, scenario: str, found: FieldDifference) -> bool:
        return (
            _fits(self.scenario, scenario)
            and _fits(self.field, found.path)
            and _is(self.kafka, found.kafka)
            and _is(self.penstock, found.penstock)
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One intended difference, its reason, and every place where it shows.

    A difference without a place shows in no single response, for example only after a restart.
    """

    title: str
    reason: str
    places: tuple[Place, ...]

    def covers(self, scenario: str, found: FieldDifference) -> bool:
        return any(place.covers(scenario, found) for place in self.places)


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), text, re.DOTALL) is not None


def _is(wanted: Any, value: Any) -> bool:
    return wanted == ANYTHING or (wanted == value and type(wanted) is type(value))


def unexpected(scenario: str, found: Iterable[FieldDifference]) -> list[FieldDifference]:
    """The differences that are not declared."""
    return [item for item in found if not any(difference.covers(scenario, item) for difference in DIFFERENCES)]


def page() -> str:
    """The text of docs/differences.md."""
    parts = [INTRODUCTION]
    for difference in DIFFERENCES:
        lines = [
            f"## {difference.title}",
            "",
            textwrap.fill(difference.reason, PAGE_WIDTH),
        ]
        if difference.places:
            lines += ["", "| where | field | Kafka | penstock |", "|---|---|---|---|"]
        rows: dict[tuple[str, str, str], list[str]] = {}
        for place in difference.places:
            key = (_cell(place.scenario), _cell(place.kafka), _cell(place.penstock))
            rows.setdefault(key, []).append(_cell(place.field))
        lines += [
            f"| {scenario} | {', '.join(fields)} | {kafka} | {penstock} |"
            for (scenario, kafka, penstock), fields in rows.items()
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "any" if text == ANYTHING else "`" + text.replace("|", "\\|") + "`"


LATER_APIS = ("alter_user_scram_credentials",)
KAFKA_ONLY_APIS = (
    "add_raft_voter",
    "describe_quorum",
    "remove_raft_voter",
    "streams_group_describe",
    "streams_group_heartbeat",
)

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        title="Credentials are not served yet",
        reason="An API is advertised when all of it works, so that no client uses half a feature. These come later.",
        places=(
            *(
                Place(scenario="api_versions/ranges_of_every_api", field=f"ranges.api_keys.{api}", penstock=ABSENT)
                for api in LATER_APIS
            ),
            Place(scenario="features_absent/scram_altered_wrongly", field="*"),
        ),
    ),
    Difference(
        title="APIs between Kafka's own nodes are not served",
        reason=(
            "penstock keeps its metadata in its own store and not in a Raft quorum; streams groups belong to one Java "
            "library."
        ),
        places=(
            *(
                Place(scenario="api_versions/ranges_of_every_api", field=f"ranges.api_keys.{api}", penstock=ABSENT)
                for api in KAFKA_ONLY_APIS
            ),
            Place(scenario="features_absent/quorum_described", field="*"),
            Place(scenario="features_absent/voters_*", field="*"),
        ),
    ),
    Difference(
        title="A cluster version of its own instead of metadata.version",
        reason=(
            "Kafka's feature levels say which records its metadata log may hold, so that its nodes can be "
            "upgraded one by one. penstock has other records, and its cluster version is `penstock.version`: tools "
            "take a level of `metadata.version` for a release of Kafka. Beside it are `transaction.version`, "
            "`group.version` and `share.version`, by which clients choose their protocol."
        ),
        places=(
            Place(
                scenario="api_versions/ranges_of_every_api",
                field="ranges.supported_features[penstock.version]",
                kafka=ABSENT,
            ),
            Place(
                scenario="api_versions/ranges_of_every_api",
                field="ranges.finalized_features[penstock.version]",
                kafka=ABSENT,
            ),
            Place(scenario="api_versions/ranges_of_every_api", field="ranges.supported_features[*]", penstock=ABSENT),
            Place(scenario="api_versions/ranges_of_every_api", field="ranges.finalized_features[*]", penstock=ABSENT),
        ),
    ),
    Difference(
        title="No client telemetry",
        reason=(
            "Kafka responds to telemetry requests although it does not advertise them, and describes settings of "
            "subscriptions that do not exist. penstock does not collect metrics from clients, and closes the "
            "connection as for any unknown API."
        ),
        places=(
            Place(scenario="framing/unknown_api", field="client telemetry.*"),
            Place(
                scenario="configs/groups_and_client_metrics",
                field="client metrics.results[*].configs[*]",
                penstock=ABSENT,
            ),
        ),
    ),
    Difference(
        title="An auto-created topic exists at once",
        reason=(
            "Kafka's broker forwards the creation to its controller and responds to the first request as if the topic "
            "did not exist; the client has to retry. penstock creates the topic before it responds."
        ),
        places=(
            Place(
                scenario="metadata/missing_topic_is_created", field="first.topics[<new>].error_code", penstock="none"
            ),
            Place(
                scenario="metadata/missing_topic_is_created", field="first.topics[<new>].partitions[0]", kafka=ABSENT
            ),
            Place(scenario="metadata/missing_topic_is_created", field="first.topics[<new>].topic_id", kafka=None),
            Place(
                scenario="metadata/two_topics_one_missing",
                field="response.topics[<missing>].error_code",
                penstock="none",
            ),
            Place(
                scenario="metadata/two_topics_one_missing",
                field="response.topics[<missing>].partitions[0]",
                kafka=ABSENT,
            ),
        ),
    ),
    Difference(
        title="Produce has error messages",
        reason=(
            "Kafka leaves the message of most errors empty and writes it to its own log. Clients show the message to "
            "their users, so penstock's names the invalid value."
        ),
        places=tuple(
            Place(scenario=f"{family}/*", field="*.partition_responses[*].error_message", kafka=None)
            for family in ("produce", "idempotence", "transactions_records")
        ),
    ),
    Difference(
        title="Records whose offsets are out of order are refused",
        reason="Kafka checks only their number. A reader that seeks inside such a batch would miss records.",
        places=(
            Place(
                scenario="produce/offsets_out_of_order",
                field="response.responses[*].error_code",
                penstock="invalid_record",
            ),
            Place(scenario="produce/offsets_out_of_order", field="response.responses[*].base_offset", penstock=-1),
            Place(scenario="produce/offsets_out_of_order", field="log.*"),
        ),
    ),
    Difference(
        title="Attributes that only brokers set are refused",
        reason="Kafka stores a client's batch with the delete horizon or with unknown attributes, and one that is "
        "transactional without a producer id. Compaction would take the first for its own delete horizon, a later "
        "version would give the second a meaning that the client did not intend, and the third belongs to no "
        "transaction. Replicas and stored logs keep the batches that their leader accepted.",
        places=tuple(
            place
            for scenario in (
                "produce/unused_attribute_bits",
                "produce/attributes_reserved_for_brokers",
                "transactions_records/write_a_transactional_batch_without_a_producer",
            )
            for place in (
                Place(scenario=scenario, field="*.responses[*].error_code", kafka="none", penstock="invalid_record"),
                Place(scenario=scenario, field="*.responses[*].base_offset", kafka=0, penstock=-1),
                Place(scenario=scenario, field="*log.*"),
            )
        ),
    ),
    Difference(
        title="Requests to which Kafka never responds get a response",
        reason="Null records, and AlterConfigs with a repeated resource, leave a client of Kafka waiting for ever.",
        places=(
            Place(scenario="produce/null_records", field="null.*"),
            Place(scenario="configs_change/replaced_whole_twice_in_one_request", field="twice.*"),
        ),
    ),
    Difference(
        title="Shorter heartbeat interval during a rebalance",
        reason=(
            "A partition moves between members in three heartbeats. For ten seconds after a change, responses have a "
            "heartbeat interval of half a second instead of the configured one, so that a rebalance takes a second or "
            "two instead of ten. A member of a share group gets its first partitions with its second heartbeat: after "
            "half a second instead of five."
        ),
        places=(
            Place(scenario="groups_consumer/*", field="*.heartbeat_interval", kafka=5000, penstock=500),
            Place(scenario="share_groups/*", field="*.heartbeat_interval", kafka=5000, penstock=500),
        ),
    ),
    Difference(
        title="Growing an internal topic moves no group and no transactional id",
        reason=(
            "Apache Kafka hashes names by the partition count it finds when it starts, so after CreatePartitions on "
            "`__consumer_offsets` or `__transaction_state` and a restart committed offsets and transactional ids are "
            "not found any more. penstock records the count at creation and hashes by that one: the new partitions "
            "stay empty."
        ),
        places=(),
    ),
    Difference(
        title="Invalid requests have specific error codes",
        reason=(
            "Kafka fails on some invalid requests and responds with UNKNOWN_SERVER_ERROR, which a client takes for a "
            "fault of the broker. penstock responds with the error code of the actual fault."
        ),
        places=(
            Place(
                scenario="metadata/topic_by_name_and_id",
                field="neither.*error_code",
                kafka="unknown_server_error",
                penstock="invalid_request",
            ),
            Place(
                scenario="partitions/grown_wrongly",
                field="two billion.results[<a>].error_code",
                kafka="unknown_server_error",
                penstock="policy_violation",
            ),
            Place(scenario="partitions/grown_wrongly", field="two billion.results[<a>].error_message", kafka=None),
            Place(
                scenario="partitions/described_missing",
                field="empty name.topics[*].error_code",
                kafka="unknown_server_error",
                penstock="invalid_topic_exception",
            ),
            Place(
                scenario="partitions/described_missing",
                field="empty name.topics[*].topic_authorized_operations",
                penstock=3576,
            ),
            Place(
                scenario="groups_offsets/fetch_as_a_member",
                field="without a member, with an epoch.groups[<h>].error_code",
                kafka="unknown_server_error",
                penstock="unknown_member_id",
            ),
            Place(
                scenario="groups_consumer/classic_groups_that_cannot_be_upgraded",
                field="with unreadable metadata.error_code",
                kafka="unknown_server_error",
                penstock="group_id_not_found",
            ),
            Place(
                scenario="groups_consumer/classic_groups_that_cannot_be_upgraded",
                field="with unreadable metadata.error_message",
                kafka=None,
            ),
            Place(
                scenario="configs_change/steps_wrongly",
                field="unknown operation.responses[*].error_code",
                kafka="unknown_server_error",
                penstock="invalid_request",
            ),
            Place(
                scenario="configs_change/steps_wrongly",
                field="unknown operation.responses[*].error_message",
                kafka=None,
                penstock="Unknown operations type 9",
            ),
        ),
    ),
    Difference(
        title="A fetch limit below one byte counts as zero",
        reason="Kafka fails with UNKNOWN_SERVER_ERROR; penstock returns one batch to a reader with such a limit.",
        places=(Place(scenario="fetch/partition_limit_below_a_batch", field="negative.*"),),
    ),
    Difference(
        title="Fetch returns whole batches only",
        reason=(
            "Kafka fills the last bytes of a limit with the beginning of a batch, which every client discards. "
            "penstock's response ends with a whole batch."
        ),
        places=(
            Place(
                scenario="fetch/partition_limit_between_batches",
                field="*.records[1]",
                kafka={"cut_batch_bytes": 44},
                penstock=ABSENT,
            ),
            Place(
                scenario="fetch/partition_limit_between_batches",
                field="*.records[1]",
                kafka={"cut_batch_bytes": 87},
                penstock=ABSENT,
            ),
            Place(
                scenario="fetch/whole_limit_over_partitions",
                field="three and a half.*.records[1]",
                kafka={"cut_batch_bytes": 10},
                penstock=ABSENT,
            ),
        ),
    ),
    Difference(
        title="Invalid lengths close the connection",
        reason="Kafka reads an array of -2 items as null. Only a broken client sends it.",
        places=(Place(scenario="framing/wrong_lengths", field="an array of -2 names.*"),),
    ),
    Difference(
        title="The default retention is two weeks",
        reason="Kafka's default is one week. `retention.ms` and `log.retention.hours` set it as in Kafka.",
        places=tuple(
            Place(
                scenario=f"{family}/*", field="*.configs[retention.ms].value", kafka="604800000", penstock="1209600000"
            )
            for family in ("topics", "configs")
        ),
    ),
    Difference(
        title="A topic can choose how it is flushed",
        reason="The key `flush` (`log.flush.policy` of the broker) is penstock's own: see docs/tuning.md.",
        places=tuple(
            Place(scenario=f"{family}/*", field="*.configs[flush]", kafka=ABSENT) for family in ("topics", "configs")
        ),
    ),
    Difference(
        title="A topic can have fewer active partitions",
        reason=(
            "The keys `partitions.active` and `partitions.finalized` are penstock's own: records for the other "
            "partitions are written to these, and the offset in a producer's response is the one there "
            "(docs/partitions.md)."
        ),
        places=tuple(
            Place(scenario=f"{family}/*", field=f"*.configs[partitions.{key}]", kafka=ABSENT)
            for family in ("topics", "configs")
            for key in ("active", "finalized")
        ),
    ),
    Difference(
        title="A topic can hold schedules",
        reason=(
            "The keys `schedule.*` are penstock's own: a topic with `schedule.target` holds messages that are "
            "delivered to another topic later (docs/scheduling.md)."
        ),
        places=tuple(
            Place(scenario=f"{family}/*", field=f"*.configs[schedule.{name}]", kafka=ABSENT)
            for family in ("topics", "configs")
            for name in ("catchup.rate", "misfire", "paused", "target")
        ),
    ),
    Difference(
        title="A topic can be a filtered view of another",
        reason=(
            "The keys `view.of` and `view.filter` are penstock's own: a topic that is created with them shows the "
            "records of its parent that pass the filter (docs/filtering.md)."
        ),
        places=tuple(
            Place(scenario=f"{family}/*", field=f"*.configs[{key}]", kafka=ABSENT)
            for family in ("topics", "configs")
            for key in ("view.of", "view.filter")
        ),
    ),
    Difference(
        title="Share groups have dead letters",
        reason=(
            "The keys `errors.deadletterqueue.*` of groups and topics have the names and meanings of Kafka 4.4, which "
            "4.3.1 does not have; copies have their record's key and value by default (docs/queues.md)."
        ),
        places=(
            *(
                Place(scenario=f"{family}/*", field="*.configs[errors.deadletterqueue.group.enable]", kafka=ABSENT)
                for family in ("topics", "configs")
            ),
            *(
                Place(scenario="configs/*", field=f"*.configs[errors.deadletterqueue.{key}]", kafka=ABSENT)
                for key in ("topic.name", "copy.record.enable", "topic.name.prefix")
            ),
        ),
    ),
    Difference(
        title="Records can have a time to live",
        reason=(
            "The key `ttl.enable` is penstock's own: share groups skip records that are older than their header "
            "`penstock-ttl-ms` (docs/queues.md)."
        ),
        places=tuple(
            Place(scenario=f"{family}/*", field="*.configs[ttl.enable]", kafka=ABSENT)
            for family in ("topics", "configs")
        ),
    ),
    Difference(
        title="Share groups can be ordered by key",
        reason="The group settings `share.order` and `share.order.in.flight` are penstock's own (docs/queues.md).",
        places=tuple(
            Place(scenario="configs/*", field=f"*.configs[{key}]", kafka=ABSENT)
            for key in ("share.order", "share.order.in.flight")
        ),
    ),
    Difference(
        title="Share groups can wait before they deliver again",
        reason="The group settings `share.retry.backoff.*` are penstock's own (docs/queues.md).",
        places=tuple(
            Place(scenario="configs/*", field=f"*.configs[share.retry.{key}]", kafka=ABSENT)
            for key in ("backoff.ms", "backoff.max.ms")
        ),
    ),
    Difference(
        title="A share group's start is written with what moves it",
        reason=(
            "Kafka writes the start that a share partition has before the acknowledgement that it writes, so that the "
            "coordinator learns with the next one how far the group is. Here the write names the start that it leads "
            "to, and the lag of an idle group is right."
        ),
        places=tuple(
            Place(
                scenario="share_acknowledge/offsets_move_on",
                field=f"{label}.groups[<g>].topics[<id of a>].partitions[0].start_offset",
                kafka=kafka,
                penstock=penstock,
            )
            for label, kafka, penstock in (("two finished", 0, 2), ("all finished", 2, 6), ("one more", 2, 6))
        ),
    ),
    Difference(
        title="Adjacent records with one delivery count are acquired as one range",
        reason=(
            "Where a strict record limit ends inside a batch, Kafka reports the rest of it as a range of its own when "
            "it is acquired, because it keeps its records by batches."
        ),
        places=(
            Place(scenario="share_fetch/strict_record_limits", field="*.acquired_records[0].last_offset"),
            Place(scenario="share_fetch/strict_record_limits", field="*.acquired_records[1]", penstock=ABSENT),
        ),
    ),
    Difference(
        title="A share fetch goes on where the log starts now",
        reason=(
            "When the start of the log has moved, Kafka responds to one ShareFetch with nothing, and the next one also "
            "acquires the deleted records of the first batch. Here the first one acquires what is left."
        ),
        places=(
            Place(
                scenario="share_fetch/start_of_the_log_moves",
                field="behind the new start.responses[<id of a>]",
                kafka=ABSENT,
            ),
            Place(
                scenario="share_fetch/start_of_the_log_moves",
                field="late acknowledgement.responses[<id of a>].partitions[0].*",
                penstock=ABSENT,
            ),
        ),
    ),
    Difference(
        title="A share fetch of an unknown topic fails for that topic only",
        reason="Kafka fails the whole request with UNKNOWN_SERVER_ERROR, for all topics of the member.",
        places=(
            Place(scenario="share_fetch/unknown_topics", field="*.error_code", kafka="unknown_server_error"),
            Place(scenario="share_fetch/unknown_topics", field="*.acquisition_lock_timeout", kafka=0),
            Place(scenario="share_fetch/unknown_topics", field="*.responses[<id of missing>]", kafka=ABSENT),
        ),
    ),
    Difference(
        title="A topic can remove what a group has consumed",
        reason=(
            "`cleanup.policy=consume` and its key `consume.group` are penstock's own: records below the committed "
            "offset of that group are removed, and commits of other groups are refused (docs/queues.md)."
        ),
        places=(
            *(
                Place(scenario=f"{family}/*", field="*.configs[consume.group]", kafka=ABSENT)
                for family in ("topics", "configs")
            ),
            *(
                Place(
                    scenario=scenario,
                    field="*.error_message",
                    kafka=f"Invalid value {value} for configuration cleanup.policy: {POLICIES}",
                    penstock=f"Invalid value {value} for configuration cleanup.policy: {POLICIES}, consume",
                )
                for scenario, value in (
                    ("topics/bad_configs", "shred"),
                    ("configs_change/appended_and_subtracted", "shred"),
                    ("configs_change/steps_wrongly", "soon"),
                )
            ),
        ),
    ),
    Difference(
        title="A topic can remove repeated messages",
        reason=(
            "The key `dedupe.window.records` is penstock's own: a record whose header `penstock-msg-id` is known is "
            "removed when it is produced (docs/queues.md)."
        ),
        places=tuple(
            Place(scenario=f"{family}/*", field="*.configs[dedupe.window.records]", kafka=ABSENT)
            for family in ("topics", "configs")
        ),
    ),
    Difference(
        title="The records of a compressed batch are not checked by default",
        reason=(
            "Kafka decompresses every batch to check its records. penstock checks the header and the CRC and stores "
            "the batch without decompression, which makes compressed traffic several times cheaper. With the topic's "
            "key `compressed.check=records` (`log.compressed.check` of the broker) it checks records as Kafka does."
        ),
        places=(
            *(
                Place(scenario=f"produce/{name}", field="*")
                for name in ("compressed_garbage", "count_wrong_and_compressed")
            ),
            *(
                Place(scenario=f"{family}/*", field="*.configs[compressed.check]", kafka=ABSENT)
                for family in ("topics", "configs")
            ),
        ),
    ),
    Difference(
        title="min.insync.replicas is a default",
        reason=(
            "A new Kafka cluster stores `min.insync.replicas` as a setting of the whole cluster, which its "
            "tracking of eligible leaders needs. In penstock it is an ordinary default; the value is the same."
        ),
        places=(
            Place(scenario="topics/*", field="*.configs[min.insync.replicas].config_source", kafka=3, penstock=5),
            Place(scenario="configs/*", field="*.configs[min.insync.replicas].config_source", kafka=3, penstock=5),
            Place(scenario="configs/*", field="*.configs[min.insync.replicas].synonyms[*].source", kafka=3, penstock=5),
            Place(scenario="configs/*", field="*.configs[min.insync.replicas].synonyms[*]", penstock=ABSENT),
            Place(scenario="configs/broker_default", field="all.*.configs[min.insync.replicas]", penstock=ABSENT),
        ),
    ),
    Difference(
        title="Broker settings without an effect are missing",
        reason=(
            "penstock has no pools of network and request threads, and no TLS yet. `background.threads` is the size "
            "of one pool of threads for disk work, created at the start. The default broker id is 1. Settings of "
            "penstock's own are described beside Kafka's."
        ),
        places=(
            Place(scenario="configs/broker_flags_of_every_key", field="flags.configs[*]", penstock=ABSENT),
            Place(scenario="configs/broker_flags_of_every_key", field="flags.configs[*]", kafka=ABSENT),
            Place(
                scenario="configs/broker_flags_of_every_key",
                field="flags.configs[background.threads].read_only",
                kafka=False,
                penstock=True,
            ),
            *(
                Place(scenario="configs/broker_some_keys", field=f"*.configs[{name}]", penstock=ABSENT)
                for name in ("num.io.threads", "num.network.threads", "ssl.keystore.password")
            ),
            Place(
                scenario="configs/broker_some_keys",
                field="*.configs[background.threads].*value",
                kafka="10",
                penstock="2",
            ),
            Place(
                scenario="configs/broker_some_keys",
                field="*.configs[background.threads].read_only",
                kafka=False,
                penstock=True,
            ),
            Place(
                scenario="configs/broker_some_keys",
                field="*.configs[broker.id].synonyms[*].value",
                kafka="-1",
                penstock="1",
            ),
        ),
    ),
    Difference(
        title="Clusters are kept in ZooKeeper",
        reason=(
            "Kafka 4 has no ZooKeeper any more, and does not know its settings. Brokers of penstock keep their "
            "cluster's metadata there, with the settings that Kafka 3 had."
        ),
        places=(Place(scenario="configs/broker_some_keys", field="*.configs[zookeeper.connect]", kafka=ABSENT),),
    ),
    Difference(
        title="Listeners change with a restart",
        reason=(
            "Kafka can open and close listeners while it runs. penstock opens them once, at the start, so `listeners` "
            "and `listener.security.protocol.map` are read-only: programs that manage brokers restart a broker to "
            "change them instead of waiting for an effect."
        ),
        places=tuple(
            Place(
                scenario="configs/broker_flags_of_every_key",
                field=f"flags.configs[{name}].read_only",
                kafka=False,
                penstock=True,
            )
            for name in ("listeners", "listener.security.protocol.map")
        ),
    ),
    Difference(
        title="Unknown broker settings are refused",
        reason=("Kafka stores a broker setting of any name. A misspelt name would never take effect."),
        places=tuple(
            Place(
                scenario="configs_change/broker_validated_only",
                field=f"unknown, {whose}.responses[*].{field}",
                kafka=kafka,
            )
            for whose in ("one broker", "all brokers")
            for field, kafka in (("error_code", "none"), ("error_message", None))
        ),
    ),
)
