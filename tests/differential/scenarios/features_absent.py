"""APIs of features that a new broker does not have: ACLs, quotas, credentials, tokens, features."""

from __future__ import annotations

from typing import Any

from differential.script import Run, scenarios

ANY = 1
ALL_ACLS = {
    "resource_type_filter": ANY,
    "pattern_type_filter": ANY,
    "operation": ANY,
    "permission_type": ANY,
}
ONE_ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def acls_described(run: Run) -> None:
    run.ask("all", ALL_ACLS)


def acls_created(run: Run) -> None:
    run.ask("one", {"creations": [ONE_ACL]})
    run.ask("none", {"creations": []})


def acls_deleted(run: Run) -> None:
    run.ask("all", {"filters": [ALL_ACLS]})


def quotas_described(run: Run) -> None:
    run.ask("all", {"components": [], "strict": False})
    by_name = {"entity_type": "client-id", "match_type": 0, "match": "nobody"}
    run.ask("of one client", {"components": [by_name], "strict": True})
    run.ask("of an unknown kind", {"components": [by_name | {"entity_type": "planet"}], "strict": False})
    run.ask("of an unknown match", {"components": [by_name | {"match_type": 9}], "strict": False})
    run.ask("of a kind twice", {"components": [by_name, by_name], "strict": False})


def quota(kind: str, name: str | None, key: str, value: float, remove: bool = False) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name}],
        "ops": [{"key": key, "value": value, "remove": remove}],
    }


def quotas_validated_only(run: Run) -> None:
    cases = {
        "produce": quota("client-id", "c", "producer_byte_rate", 1_000_000.0),
        "default": quota("client-id", None, "consumer_byte_rate", 1_000_000.0),
        "request time": quota("client-id", "c", "request_percentage", 12.5),
        "unknown key": quota("client-id", "c", "no_such_rate", 1.0),
        "unknown kind": quota("planet", "c", "producer_byte_rate", 1.0),
        "empty name": quota("client-id", "", "producer_byte_rate", 1.0),
        "zero": quota("client-id", "c", "producer_byte_rate", 0.0),
        "negative": quota("client-id", "c", "producer_byte_rate", -1.0),
        "a fraction": quota("client-id", "c", "producer_byte_rate", 1.5),
        "removal": quota("client-id", "c", "producer_byte_rate", 0.0, remove=True),
        "no entity": {"entity": [], "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]},
    }
    for label, case in cases.items():
        run.ask(label, {"entries": [case], "validate_only": True})
    run.ask("nothing", {"entries": [], "validate_only": True})


def quotas_set_and_removed(run: Run) -> None:
    name = f"client-{run.version}"
    run.tokens.add_name(name, "client")
    match = {"components": [{"entity_type": "client-id", "match_type": 0, "match": name}], "strict": True}

    def values() -> Any:
        return run.do("describe_client_quotas", 1, match)["entries"]

    run.ask("set", {"entries": [quota("client-id", name, "producer_byte_rate", 123_456_789.0)], "validate_only": False})
    run.until("the quota", values)
    run.ask("described", match, api="describe_client_quotas", version=1)
    run.ask(
        "removed",
        {"entries": [quota("client-id", name, "producer_byte_rate", 0.0, remove=True)], "validate_only": False},
    )
    run.until("no quota", lambda: not values())
    run.ask("described again", match, api="describe_client_quotas", version=1)


def scram_described(run: Run) -> None:
    run.ask("all", {"users": None})
    run.ask("one", {"users": [{"name": "nobody"}]})
    run.ask("one twice", {"users": [{"name": "nobody"}, {"name": "nobody"}]})
    run.ask("empty name", {"users": [{"name": ""}]})


def scram_altered_wrongly(run: Run) -> None:
    run.ask("delete unknown", {"deletions": [{"name": "nobody", "mechanism": 1}]})
    run.ask("unknown mechanism", {"deletions": [{"name": "nobody", "mechanism": 9}]})
    weak = {"name": "a", "mechanism": 1, "iterations": 1, "salt": b"s", "salted_password": b"p"}
    run.ask("too few iterations", {"upsertions": [weak]})
    run.ask("empty name", {"upsertions": [weak | {"name": "", "iterations": 4096}]})
    run.ask("nothing", {})


def tokens_created(run: Run) -> None:
    run.ask("response", {"renewers": [], "max_lifetime": -1})


def tokens_renewed(run: Run) -> None:
    run.ask("response", {"hmac": b"x", "renew_period": 1_000})


def tokens_expired(run: Run) -> None:
    run.ask("response", {"hmac": b"x", "expiry_time_period": 1_000})


def tokens_described(run: Run) -> None:
    run.ask("response", {"owners": None})


def quorum_described(run: Run) -> None:
    run.ask("another topic", {"topics": [{"topic_name": "t", "partitions": [{"partition_index": 0}]}]})
    run.ask("nothing", {"topics": []})


def features_updated_wrongly(run: Run) -> None:
    unknown = {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}
    run.ask("unknown", {"timeout": 10_000, "feature_updates": [unknown]})
    run.ask("empty", {"timeout": 10_000, "feature_updates": [unknown | {"feature": ""}]})
    run.ask("nothing", {"timeout": 10_000, "feature_updates": []})


def broker_unregistered(run: Run) -> None:
    run.ask("unknown", {"broker_id": 99})


def transactions_none(run: Run) -> None:
    run.ask("nothing", {"transactional_ids": []})


def voters_changed(run: Run) -> None:
    run.ask("add", {"voter_id": 99, "timeout": 1_000, "voter_directory_id": None, "listeners": []})


def voters_removed(run: Run) -> None:
    run.ask("remove", {"voter_id": 99, "voter_directory_id": None})


SCENARIOS = (
    *scenarios("features_absent", "describe_acls", (acls_described,)),
    *scenarios("features_absent", "create_acls", (acls_created,)),
    *scenarios("features_absent", "delete_acls", (acls_deleted,)),
    *scenarios("features_absent", "describe_client_quotas", (quotas_described,)),
    *scenarios("features_absent", "alter_client_quotas", (quotas_validated_only, quotas_set_and_removed)),
    *scenarios("features_absent", "describe_user_scram_credentials", (scram_described,)),
    *scenarios("features_absent", "alter_user_scram_credentials", (scram_altered_wrongly,)),
    *scenarios("features_absent", "create_delegation_token", (tokens_created,)),
    *scenarios("features_absent", "renew_delegation_token", (tokens_renewed,)),
    *scenarios("features_absent", "expire_delegation_token", (tokens_expired,)),
    *scenarios("features_absent", "describe_delegation_token", (tokens_described,)),
    *scenarios("features_absent", "describe_quorum", (quorum_described,)),
    *scenarios("features_absent", "update_features", (features_updated_wrongly,)),
    *scenarios("features_absent", "unregister_broker", (broker_unregistered,)),
    *scenarios("features_absent", "describe_transactions", (transactions_none,)),
    *scenarios("features_absent", "add_raft_voter", (voters_changed,)),
    *scenarios("features_absent", "remove_raft_voter", (voters_removed,)),
)
