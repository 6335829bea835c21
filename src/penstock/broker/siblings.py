"""Several brokers on one host: the settings of each, derived from those of the first, and where their data is.

The first broker is as if it were alone: its id, ports and directories are those that were given. So data of a single
broker can be served by several later. Broker K's id and ports are K - 1 higher, and its directories are `brokers/<id>`
in those of the first, a name that no partition's directory can have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.config.broker import BrokerConfig
from penstock.config.network import PORT_MAX, Endpoint, read_endpoint
from penstock.storage.directories import CLUSTER_ID, META_PROPERTIES, NODE_ID, StartRefused, read_properties

SIBLINGS = "brokers"
PROCESSES_MAX = 64


def sibling_settings(config: BrokerConfig, number: int) -> dict[str, str]:
    """The settings of the broker that is `number` after the first, as far as they differ by broker."""
    found = {
        "broker.id": str(config.broker_id + number),
        "listeners": ",".join(str(endpoint) for endpoint in _shifted("listeners", config.listeners, number)),
        "log.dirs": ",".join(sibling_directories(config, number)),
    }
    if config.advertised_listeners:
        advertised = _shifted("advertised.listeners", config.advertised_listeners, number)
        found["advertised.listeners"] = ",".join(map(str, advertised))
    if config.metrics_address is not None:
        host, port = config.metrics_address
        host = f"[{host}]" if ":" in host else host
        found["metrics.listener"] = f"{host}:{_port(port, number)}"
    return found


def capped_factors(config: BrokerConfig, processes: int) -> dict[str, str]:
    """The factors of internal topics where these brokers are all that their cluster can have.

    The topics are created once as many brokers are live as their factor asks for.
    """
    return {
        "offsets.topic.replication.factor": str(min(config.offsets_topic_replication_factor, processes)),
        "transaction.state.log.replication.factor": str(
            min(config.transaction_state_log_replication_factor, processes)
        ),
    }


def shared_settings(config: BrokerConfig, processes: int) -> dict[str, str]:
    """Settings that follow from the number of brokers: where they are the whole cluster, no more can ever join."""
    if config.zookeeper_connect:
        return {}
    return {
        "offsets.topic.replication.factor": str(min(config.offsets_topic_replication_factor, processes)),
        "transaction.state.log.replication.factor": str(
            min(config.transaction_state_log_replication_factor, processes)
        ),
    }


def sibling_directories(config: BrokerConfig, number: int) -> tuple[str, ...]:
    """The data directories of the broker that is `number` after the first."""
    if number == 0:
        return config.data_directories
    return tuple(f"{path.rstrip('/')}/{SIBLINGS}/{config.broker_id + number}" for path in config.data_directories)


def sibling_endpoints(config: BrokerConfig, number: int) -> tuple[Endpoint, ...]:
    """Where the broker that is `number` after the first listens."""
    return tuple(replace(endpoint, port=_port(endpoint.port, number)) for endpoint in config.endpoints)


def _shifted(key_name: str, endpoints: Iterable[str], number: int) -> list[Endpoint]:
    found = (read_endpoint(key_name, text) for text in endpoints)
    return [replace(endpoint, port=_port(endpoint.port, number)) for endpoint in found]


def _port(first: int, number: int) -> int:
    """Port 0 is any free one, for each of them."""
    return first + number if first else 0


def check_ports(config: BrokerConfig, processes: int) -> None:
    """Refuse ports that do not exist, or that two brokers would have."""
    ports = [endpoint.port for number in range(processes) for endpoint in sibling_endpoints(config, number)]
    if config.metrics_address is not None:
        ports += [_port(config.metrics_address[1], number) for number in range(processes)]
    twice = sorted(port for port, times in Counter(filter(None, ports)).items() if times > 1)
    if twice:
        raise StartRefused(
            f"{processes} brokers need {processes} consecutive ports for each listener and for metrics.listener, and "
            f"two of them would have port {twice[0]}: choose ports that are at least {processes} apart"
        )
    if max(ports, default=0) > PORT_MAX:
        raise StartRefused(
            f"{processes} brokers need {processes} consecutive ports, and there is none after {PORT_MAX}"
        )


def brokers_of(config: BrokerConfig) -> list[int]:
    """The ids of all brokers after the first whose data is there."""
    found: set[int] = set()
    for path in config.data_directories:
        try:
            found |= {int(each.name) for each in Path(path, SIBLINGS).iterdir() if each.name.isdecimal()}
        except (FileNotFoundError, NotADirectoryError):
            continue
    return sorted(found)


def check_all_started(config: BrokerConfig, processes: int) -> None:
    """Refuse to start fewer brokers than there is data of."""
    first = config.broker_id
    absent = [broker for broker in brokers_of(config) if broker not in range(first + 1, first + processes)]
    if absent:
        there = [first, *brokers_of(config)]
        raise StartRefused(
            f"{config.data_directories[0]} holds the data of brokers {_listed(there)}, and those to be started are "
            f"{first} to {first + processes - 1}: what the others hold would be missing. "
            f"Start all of them with --processes {max(there) - min(there) + 1} and node.id={min(there)}"
        )


def check_owners(config: BrokerConfig, processes: int, *, has_metadata: bool) -> None:
    """Refuse data of brokers with other ids, and logs whose metadata is missing, before anything is written."""
    first = config.broker_id
    for number in range(processes):
        for path in sibling_directories(config, number):
            _check_owner(Path(path, META_PROPERTIES), first + number, config, has_metadata=has_metadata)


def _check_owner(path: Path, broker_id: int, config: BrokerConfig, *, has_metadata: bool) -> None:
    try:
        owner: Mapping[str, str] = read_properties(path.read_bytes())
    except OSError:
        # New, or for the broker to judge.
        return
    node, cluster = owner.get(NODE_ID), owner.get(CLUSTER_ID)
    if node is not None and node != str(broker_id):
        raise StartRefused(
            f"{path} says {NODE_ID}={node}, and the broker to be started there has {NODE_ID}={broker_id}: the first of "
            "them has the given node.id, and the others those after it"
        )
    if cluster is not None and not has_metadata and cluster != config.cluster_id:
        raise StartRefused(
            f"{path.parent} holds logs of cluster {cluster}, and the metadata of that cluster is missing in "
            f"{config.data_directories[0]}. Restore it from a copy"
        )


def _listed(numbers: Iterable[int]) -> str:
    texts = [str(number) for number in numbers]
    return ", ".join(texts[:-1]) + f" and {texts[-1]}"
