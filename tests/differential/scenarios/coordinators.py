"""FindCoordinator and InitProducerId without transactions."""

from __future__ import annotations

from typing import Any

from differential.script import Body, Run, scenarios

from .idempotence import producer

GROUP, TRANSACTION, SHARE = 0, 1, 2


def find(kind: int, *keys: str) -> Body:
    """One key below version 4, several from it on."""
    return {"key": keys[0] if keys else "", "key_type": kind, "coordinator_keys": list(keys)}


def found(run: Run, label: str, body: Body) -> None:
    """Record a found coordinator; Kafka creates its internal topics at the first request, so retry until then."""

    def is_there() -> bool:
        response = run.do("find_coordinator", run.version, body)
        codes = [response.get("error_code", "none"), *(item["error_code"] for item in response.get("coordinators", []))]
        return "coordinator_not_available" not in codes

    run.until("a coordinator", is_there)
    run.ask(label, body)


def of_a_group(run: Run) -> None:
    found(run, "response", find(GROUP, "some-group"))


def of_a_transaction(run: Run) -> None:
    found(run, "response", find(TRANSACTION, "some-transaction"))


def of_several_groups(run: Run) -> None:
    found(run, "response", find(GROUP, "g1", "g2", "g1"))
    run.ask("none", find(GROUP))


def of_an_empty_key(run: Run) -> None:
    found(run, "group", find(GROUP, ""))
    if run.version > 0:
        found(run, "transaction", find(TRANSACTION, ""))


def of_a_share_partition(run: Run) -> None:
    run.ask("bad key", find(SHARE, "no-colons"))
    run.ask("bad id", find(SHARE, "group:topic:0"))


def of_an_unknown_kind(run: Run) -> None:
    run.ask("kind 9", find(9, "x"))
    run.ask("kind -1", find(-1, "x"))


def init(**fields: Any) -> Body:
    return {
        "transactional_id": None,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    } | fields


def producer_new(run: Run) -> None:
    producer(run)
    first = run.ask("first", init())
    second = run.ask("second", init())
    run.record("ids", {"grow": second["producer_id"] > first["producer_id"]})


def producer_again(run: Run) -> None:
    """An id and epoch without a transaction: the epoch is bumped, or a new id assigned."""
    producer(run)
    first = run.ask("first", init())
    run.ask("same epoch", init(producer_id=first["producer_id"], producer_epoch=0))
    run.ask("epoch 5", init(producer_id=first["producer_id"], producer_epoch=5))
    run.ask("last epoch", init(producer_id=first["producer_id"], producer_epoch=32_767))
    run.ask("unknown id", init(producer_id=999_999, producer_epoch=3))


def producer_fields_that_do_not_fit(run: Run) -> None:
    producer(run)
    run.ask("id without epoch", init(producer_id=5))
    run.ask("epoch without id", init(producer_epoch=5))
    run.ask("negative id", init(producer_id=-3, producer_epoch=-3))
    run.ask("empty transaction", init(transactional_id=""))
    run.ask("no timeout", init(transaction_timeout=0))
    run.ask("negative timeout", init(transaction_timeout=-1))


SCENARIOS = (
    *scenarios("coordinators", "find_coordinator", (of_a_group, of_an_empty_key)),
    *scenarios("coordinators", "find_coordinator", (of_a_transaction, of_an_unknown_kind), versions=range(1, 99)),
    *scenarios("coordinators", "find_coordinator", (of_several_groups,), versions=range(4, 99)),
    *scenarios("coordinators", "find_coordinator", (of_a_share_partition,), versions=range(1, 99)),
    *scenarios("coordinators", "init_producer_id", (producer_new, producer_again, producer_fields_that_do_not_fit)),
)
