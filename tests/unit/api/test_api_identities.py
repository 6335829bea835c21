"""FindCoordinator, InitProducerId, and APIs of features that are not available."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_world import LISTENER, World, in_world

from penstock.metadata.records import Admission, BrokerEndpoint, BrokerState
from penstock.model.generated_errors import (
    BrokerIdNotRegistered,
    CoordinatorNotAvailable,
    DelegationTokenRequestNotAllowed,
    DuplicateResource,
    IllegalSaslState,
    InvalidRequest,
    InvalidUpdateVersion,
    NotCoordinator,
    ResourceNotFound,
    SecurityDisabled,
)
from penstock.model.topic import GROUP_OFFSETS_TOPIC, NO_LEADER, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.wire.api import (
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_delegation_token,
    describe_transactions,
    describe_user_scram_credentials,
    expire_delegation_token,
    find_coordinator,
    init_producer_id,
    list_transactions,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    unregister_broker,
    update_features,
)

FIND_COORDINATOR, INIT_PRODUCER_ID = 10, 22
GROUP, TRANSACTION, SHARE = 0, 1, 2
OTHER = 2
SHARE_KEY = f"g:{urlsafe_b64encode(bytes(range(16))).decode().rstrip('=')}:0"


@pytest.mark.parametrize("version", range(7))
def test_this_broker_coordinates_everything(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        kinds = (GROUP,) if version == 0 else (GROUP, TRANSACTION)
        for kind in kinds:
            if version < 4:
                request = find_coordinator.Request(key="k", key_type=kind)
                found: Any = await world.ask(FIND_COORDINATOR, request, version)
                assert found.error_message in ("NONE", "")
            else:
                request = find_coordinator.Request(key_type=kind, coordinator_keys=["k", "l"])
                found, other = (await world.ask(FIND_COORDINATOR, request, version)).coordinators
                assert (found.key, other.key, found.error_message) == ("k", "l", "")
            assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "broker.example", 9092)

    in_world(tmp_path, act)


@pytest.mark.parametrize(
    ("kind", "key", "error"),
    [
        (9, "k", InvalidRequest.code),
        (-1, "k", InvalidRequest.code),
        (SHARE, "no-colons", InvalidRequest.code),
        (SHARE, "group:topic:0", InvalidRequest.code),
        (SHARE, SHARE_KEY.replace(":0", ":x"), InvalidRequest.code),
        (SHARE, SHARE_KEY, 0),
    ],
)
def test_an_invalid_key_has_no_coordinator(tmp_path: Path, kind: int, key: str, error: int) -> None:
    async def act(world: World) -> None:
        request = find_coordinator.Request(key_type=kind, coordinator_keys=[key])
        (found,) = (await world.ask(FIND_COORDINATOR, request)).coordinators
        assert (found.error_code, found.node_id) == (error, -1 if error else 1)
        # Versions before 6 know no share partitions.
        single = await world.ask(FIND_COORDINATOR, find_coordinator.Request(key=key, key_type=kind), 3)
        assert (single.error_code, single.port) == (InvalidRequest.code, -1)

    in_world(tmp_path, act)


def register_other(world: World, *, admitted: bool) -> None:
    image = world.catalog.image
    endpoint = BrokerEndpoint(listener=LISTENER, host="other.example", port=9093)
    image.brokers[OTHER] = BrokerState(broker_id=OTHER, endpoints=(endpoint,), rack=None, epoch=7)
    image.admissions[OTHER] = Admission(broker_id=OTHER, epoch=7 if admitted else 6, directories=())


def led_by(world: World, topic: str, leader: int) -> None:
    """Every partition of a topic has another leader."""
    image = world.catalog.image
    state = image.topics[topic]
    partitions = tuple(replace(each, leader=leader, replicas=(OTHER, 1)) for each in state.partitions)
    image.topics[topic] = replace(state, partitions=partitions)


@pytest.mark.parametrize(
    ("kind", "topic", "version"),
    [
        *((GROUP, GROUP_OFFSETS_TOPIC, version) for version in range(7)),
        *((TRANSACTION, TRANSACTION_STATE_TOPIC, version) for version in range(1, 7)),
        (SHARE, SHARE_STATE_TOPIC, 6),
    ],
)
def test_the_coordinator_is_the_live_leader_of_the_key_s_partition(
    tmp_path: Path, kind: int, topic: str, version: int
) -> None:
    async def act(world: World) -> None:
        async def found() -> Any:
            if version < 4:
                return await world.ask(FIND_COORDINATOR, find_coordinator.Request(key="k", key_type=kind), version)
            request = find_coordinator.Request(key_type=kind, coordinator_keys=[SHARE_KEY if kind == SHARE else "k"])
            return (await world.ask(FIND_COORDINATOR, request, version)).coordinators[0]

        await found()
        register_other(world, admitted=True)
        led_by(world, topic, OTHER)
        here = await found()
        assert (here.error_code, here.node_id, here.host, here.port) == (0, OTHER, "other.example", 9093)

        register_other(world, admitted=False)
        fenced = await found()
        assert (fenced.error_code, fenced.node_id, fenced.port) == (CoordinatorNotAvailable.code, -1, -1)

        del world.catalog.image.brokers[OTHER]
        assert (await found()).error_code == CoordinatorNotAvailable.code
        led_by(world, topic, NO_LEADER)
        assert (await found()).error_code == CoordinatorNotAvailable.code

    in_world(tmp_path, act)


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_a_unique_id(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        request = init_producer_id.Request(transactional_id=None)
        responses = [await world.ask(INIT_PRODUCER_ID, request, version) for _ in range(5)]
        assert {(response.error_code, response.producer_epoch) for response in responses} == {(0, 0)}
        assert len({response.producer_id for response in responses}) == 5

    in_world(tmp_path, act)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, InvalidRequest),
        ({"transactional_id": None, "producer_id": 7}, InvalidRequest),
        ({"transactional_id": None, "producer_epoch": 7}, InvalidRequest),
        ({"transactional_id": "t"}, NotCoordinator),
    ],
)
def test_an_invalid_producer_identity_is_refused(tmp_path: Path, fields: dict[str, Any], error: Any) -> None:
    async def act(world: World) -> None:
        response = await world.ask(INIT_PRODUCER_ID, init_producer_id.Request(**fields))
        assert (response.error_code, response.producer_id, response.producer_epoch) == (error.code, -1, -1)

    in_world(tmp_path, act)


NOT_ALLOWED = DelegationTokenRequestNotAllowed.code
SCRAM = describe_user_scram_credentials


def test_features_that_are_not_configured_are_refused_at_every_version(tmp_path: Path) -> None:
    cases: list[tuple[int, Any, Any]] = [
        (17, sasl_handshake.Request(mechanism="PLAIN"), lambda a: a.error_code == IllegalSaslState.code),
        (36, sasl_authenticate.Request(), lambda a: a.error_code == IllegalSaslState.code),
        (29, describe_acls.Request(), lambda a: a.error_code == SecurityDisabled.code),
        (30, create_acls.Request(creations=[create_acls.AclCreation()]), lambda a: a.results[0].error_code == 54),
        (31, delete_acls.Request(filters=[delete_acls.DeleteAclsFilter()]), lambda a: len(a.filter_results) == 1),
        (38, create_delegation_token.Request(), lambda a: a.error_code == NOT_ALLOWED),
        (39, renew_delegation_token.Request(), lambda a: a.error_code == NOT_ALLOWED),
        (40, expire_delegation_token.Request(), lambda a: a.error_code == NOT_ALLOWED),
        (41, describe_delegation_token.Request(owners=None), lambda a: a.error_code == NOT_ALLOWED),
        (50, SCRAM.Request(users=None), lambda a: (a.error_code, a.results) == (0, [])),
        (57, update_features.Request(), lambda a: a.error_code == 0),
        (64, unregister_broker.Request(broker_id=99), lambda a: a.error_code == BrokerIdNotRegistered.code),
        (64, unregister_broker.Request(broker_id=1), lambda a: a.error_code == InvalidRequest.code),
        (66, list_transactions.Request(), lambda a: (a.error_code, a.transaction_states) == (0, [])),
    ]

    async def act(world: World) -> None:
        for key, request, holds in cases:
            for version in world.apis[key].versions:
                response = await world.ask(key, request, version)
                assert holds(response), (key, version, response)

    in_world(tmp_path, act)


def test_credentials_features_and_transactions_requested_by_name_are_not_found(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        users = [SCRAM.UserName(name=name) for name in ("a", "b", "b")]
        response = await world.ask(50, SCRAM.Request(users=users))
        assert {result.user: result.error_code for result in response.results} == {
            "a": ResourceNotFound.code,
            "b": DuplicateResource.code,
        }
        wanted = update_features.FeatureUpdateKey(feature="f", max_version_level=1)
        features = await world.ask(57, update_features.Request(feature_updates=[wanted]))
        assert features.error_code == InvalidUpdateVersion.code
        assert "for feature f. Local controller 1 does not support this feature." in features.error_message
        transactions = await world.ask(65, describe_transactions.Request(transactional_ids=["t"]))
        assert transactions.transaction_states[0].error_code == NotCoordinator.code
        filters = ["Ongoing", "Nonsense"]
        listed = await world.ask(66, list_transactions.Request(state_filters=filters))
        assert listed.unknown_state_filters == ["Nonsense"]

    in_world(tmp_path, act)
