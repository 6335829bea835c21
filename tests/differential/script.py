"""Scenarios, which are functions that send requests to a broker, and their runs: labelled, normalised responses."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import codec
from .connection import Connection, Disconnected
from .normal import Tokens, normalise

CLIENT_ID = "differential"
SETTLE_SECONDS_MAX = 60.0
POLL_SECONDS = 0.02
TOPIC_NAME_MAX = 249
PROBE_ID_BASE = 1_000_000
TIMED_PLAYS_MAX = 4
SILENCE_SECONDS = 0.2
"""A response that has not arrived by then is deferred."""

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "4",
    "group.consumer.max.size": "4",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.max.size": "4",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Settings of the recorded Kafka and of the compared broker: short timeouts, and limits that can be reached."""

Body = dict[str, Any]
Responses = dict[str, Any]

CREATE_TOPICS, METADATA, LIST_OFFSETS, API_VERSIONS, DESCRIBE_CONFIGS = (
    ("create_topics", 7),
    ("metadata", 12),
    ("list_offsets", 5),
    ("api_versions", 3),
    ("describe_configs", 4),
)
"""APIs and versions of preparatory requests, independent of the version of the scenario."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    topic_id: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A test of one API, played in every version of `versions` that the broker and kio support."""

    family: str
    api: str
    name: str
    play: Callable[[Run], None]
    versions: range | None = None

    @property
    def path(self) -> str:
        return f"{self.family}/{self.name}"

    def versions_known(self, advertised: range) -> list[int]:
        known = codec.versions_of(self.api)
        wanted = known if self.versions is None else self.versions
        return [version for version in wanted if version in known and version in advertised]


def scenarios(
    family: str, api: str, plays: Iterable[Callable[[Run], None]], *, versions: range | None = None
) -> tuple[Scenario, ...]:
    return tuple(Scenario(family=family, api=api, name=play.__name__, play=play, versions=versions) for play in plays)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running broker, and its facts that the script needs to interpret responses."""

    bootstrap: str
    broker_id: int
    advertised: dict[str, range]
    prefix: str = ""
    """Prefix of every topic name, for a broker on which the script ran before."""


def look_at(bootstrap: str, prefix: str = "") -> Target:
    """Get a broker's id and supported versions."""
    connection = Connection(bootstrap)
    try:
        ranges = ask(connection, *API_VERSIONS, {"client_software_name": "x", "client_software_version": "1"})
        metadata = ask(connection, *METADATA, {"topics": []})
    finally:
        connection.close()
    names = {key: name for name, key in codec.API_KEYS.items()}
    return Target(
        bootstrap=bootstrap,
        prefix=prefix,
        broker_id=metadata["brokers"][0]["node_id"],
        advertised={
            names[item["api_key"]]: range(item["min_version"], item["max_version"] + 1)
            for item in ranges["api_keys"]
            if item["api_key"] in names
        },
    )


def ask(connection: Connection, api: str, version: int, body: Body) -> dict[str, Any]:
    """Send one request; returns its decoded response."""
    correlation_id = connection.next_correlation_id()
    connection.send_frame(codec.encode_request(api, version, correlation_id, CLIENT_ID, body))
    received_id, response = codec.decode_response(api, version, connection.receive_frame())
    assert received_id == correlation_id, f"sent {correlation_id}, received {received_id}"
    return response


class Peer:
    """An additional connection, on which requests are sent without waiting for their responses."""

    def __init__(self, run: Run, client_id: str) -> None:
        self.run = run
        self.client_id = client_id
        self.connection = Connection(run.target.bootstrap)
        self._sent: list[tuple[str, int, int]] = []

    def send(self, api: str, version: int, body: Body) -> None:
        correlation_id = self.connection.next_correlation_id()
        self.connection.send_frame(codec.encode_request(api, version, correlation_id, self.client_id, body))
        self._sent.append((api, version, correlation_id))

    def receive(self) -> dict[str, Any]:
        """The response to the oldest request without one."""
        api, version, correlation_id = self._sent.pop(0)
        received_id, response = codec.decode_response(api, version, self.connection.receive_frame())
        assert received_id == correlation_id, f"sent {correlation_id}, received {received_id}"
        return response

    def take(self, label: str) -> dict[str, Any]:
        """Receive a response, and record it under the label."""
        try:
            response = self.receive()
        except Disconnected:
            response = {"disconnected": True}
        except TimeoutError:
            response = {"timed_out": True}
        self.run.record(label, normalise(response, self.run.tokens, own_only=False))
        return response

    def waits(self, label: str) -> None:
        """Record whether the oldest request is still without a response after a moment."""
        self.run.timed()
        self.run.record(label, {"waits": not self.connection.has_response(SILENCE_SECONDS)})

    def do(self, api: str, version: int, body: Body) -> dict[str, Any]:
        self.send(api, version, body)
        return self.receive()

    def ask(self, label: str, body: Body, *, api: str | None = None, version: int | None = None) -> dict[str, Any]:
        """Send a request, by default of the scenario's API and version, and record the response."""
        self.send(api or self.run.scenario.api, self.run.version if version is None else version, body)
        return self.take(label)

    def close(self) -> None:
        self.connection.close()


class Run:
    """A scenario at one version against one broker."""

    def __init__(self, scenario: Scenario, version: int, target: Target) -> None:
        self.scenario = scenario
        self.version = version
        self.target = target
        self.responses: Responses = {}
        self.tokens = Tokens(target.bootstrap, target.broker_id)
        self.is_timed = False
        """Whether responses depend on real time, so that they change where the script is delayed."""
        self._connection: Connection | None = None
        self._peers: list[Peer] = []

    def timed(self) -> None:
        """Mark the scenario as one that depends on short sessions and timeouts."""
        self.is_timed = True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close_all(self) -> None:
        self.close()
        for peer in self._peers:
            peer.close()

    def peer(self, client_id: str = CLIENT_ID) -> Peer:
        """Open one more connection."""
        self._peers.append(Peer(self, client_id))
        return self._peers[-1]

    @property
    def connection(self) -> Connection:
        """The run's main connection, reopened after the broker closed it."""
        if self._connection is None:
            self._connection = Connection(self.target.bootstrap)
        return self._connection

    # Recorded requests

    def ask(
        self,
        label: str,
        body: Body,
        *,
        api: str | None = None,
        version: int | None = None,
        own_only: bool = False,
    ) -> dict[str, Any]:
        """Send a request, record its response under the label, and return it as received."""
        try:
            response = self.do(api or self.scenario.api, self.version if version is None else version, body)
        except Disconnected:
            self.close()
            response = {"disconnected": True}
        except TimeoutError:
            self.close()
            response = {"timed_out": True}
        self.record(label, normalise(response, self.tokens, own_only=own_only))
        return response

    def tell(self, label: str, body: Body) -> None:
        """Send a request without a response, and record whether the connection stays open."""
        request = codec.encode_request(
            self.scenario.api, self.version, self.connection.next_correlation_id(), CLIENT_ID, body
        )
        self.tell_frame(label, request)

    def tell_frame(self, label: str, payload: bytes) -> None:
        """Send a raw frame, and record how many responses it gets and whether the connection stays open."""
        try:
            self.connection.send_frame(payload)
            probe = self.connection.next_correlation_id() + PROBE_ID_BASE
            self.connection.send_frame(codec.encode_request("api_versions", 0, probe, CLIENT_ID, {}))
            count = 0
            while self.connection.receive_frame()[:4] != probe.to_bytes(4, "big"):
                count += 1
        except Disconnected:
            self.close()
            self.record(label, {"disconnected": True})
        except TimeoutError:
            self.close()
            self.record(label, {"timed_out": True})
        else:
            self.record(label, {"responses": count, "connected": True})

    def ask_frame(self, label: str, payload: bytes, *, api: str, version: int) -> None:
        """Send a raw frame, and record its response, decoded as one of this API and version."""
        try:
            self.connection.send_frame(payload)
            _, response = codec.decode_response(api, version, self.connection.receive_frame())
        except Disconnected:
            self.close()
            response = {"disconnected": True}
        except TimeoutError:
            self.close()
            response = {"timed_out": True}
        self.record(label, normalise(response, self.tokens, own_only=False))

    def record(self, label: str, response: dict[str, Any]) -> None:
        assert label not in self.responses, f"{self.scenario.path} records {label!r} twice"
        self.responses[label] = response

    # Preparatory requests, not recorded

    def do(self, api: str, version: int, body: Body) -> dict[str, Any]:
        return ask(self.connection, api, version, body)

    def name(self, token: str) -> str:
        """A topic name that is unique to this scenario and version."""
        name = f"{self.target.prefix}{self.scenario.family}.{self.scenario.name}.v{self.version}.{token}"[
            -TOPIC_NAME_MAX:
        ]
        self.tokens.add_name(name, token)
        return name

    def topic(self, token: str = "a", *, partitions: int = 1, plain: bool = False, **configs: str) -> Topic:
        """Create a topic and wait until it is ready; an underscore in a config's name stands for a dot.

        Its records do not expire unless it is plain: the script's timestamps are years old.
        """
        name = self.name(token)
        settings = ({} if plain else {"retention.ms": "-1"}) | {
            key.replace("_", "."): value for key, value in configs.items()
        }
        created = self.do(
            *CREATE_TOPICS,
            {
                "topics": [
                    {
                        "name": name,
                        "num_partitions": partitions,
                        "replication_factor": 1,
                        "configs": [{"name": key, "value": value} for key, value in settings.items()],
                    }
                ],
                "timeout": 30_000,
            },
        )
        assert created["topics"][0]["error_code"] == "none", created
        return self.await_topic(name, partitions)

    def await_topic(self, name: str, partitions: int) -> Topic:
        """Wait until every partition of a topic has a leader that serves it."""

        def is_ready() -> Topic | None:
            found = self.do(*METADATA, {"topics": [{"name": name}], "allow_auto_topic_creation": False})["topics"][0]
            led = [item for item in found["partitions"] if item["leader_id"] >= 0]
            if found["error_code"] != "none" or len(led) != partitions:
                return None
            wanted = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
            offsets = self.do(*LIST_OFFSETS, {"replica_id": -1, "topics": [{"name": name, "partitions": wanted}]})
            if any(item["error_code"] != "none" for item in offsets["topics"][0]["partitions"]):
                return None
            return Topic(name=name, topic_id=found["topic_id"])

        topic = self.until(f"topic {name} with {partitions} partitions", is_ready)
        self.tokens.learn({"name": topic.name, "topic_id": topic.topic_id})
        return topic

    def await_gone(self, name: str) -> None:
        """Wait until a deleted topic is unknown to the broker."""

        def is_gone() -> bool:
            found = self.do(*METADATA, {"topics": [{"name": name}], "allow_auto_topic_creation": False})["topics"][0]
            return bool(found["error_code"] == "unknown_topic_or_partition")

        self.until(f"topic {name} gone", is_gone)

    def until(self, what: str, look: Callable[[], Any]) -> Any:
        """Poll until `look` returns a value: a broker learns from its controller a moment later."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            seen = look()
            if seen:
                return seen
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {SETTLE_SECONDS_MAX} s for: {what}")
            time.sleep(POLL_SECONDS)


def play(
    scenario: Scenario, version: int, target: Target, *, is_right: Callable[[Responses], bool] = lambda _: True
) -> Responses:
    """Run a scenario at one version; returns its recorded responses.

    A scenario that depends on real time is repeated, up to a bound, where it did not complete or its responses are
    wrong: on a busy machine the script may be delayed until a session expires.
    """
    for left in range(TIMED_PLAYS_MAX - 1, -1, -1):
        run = Run(scenario, version, replayed(target, left))
        try:
            scenario.play(run)
        except AssertionError:
            if not run.is_timed or left == 0:
                raise
            continue
        finally:
            run.close_all()
        if not run.is_timed or is_right(run.responses):
            break
    return run.responses


def replayed(target: Target, left: int) -> Target:
    """The target with another name prefix for each repetition of a scenario."""
    again = TIMED_PLAYS_MAX - 1 - left
    return dataclasses.replace(target, prefix=f"{target.prefix}again{again}.") if again else target
