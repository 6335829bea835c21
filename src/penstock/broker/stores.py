"""Which metadata store a broker's settings name."""

from __future__ import annotations

import ssl
from pathlib import Path

from penstock.broker.siblings import check_all_started
from penstock.config.broker import BrokerConfig
from penstock.config.zookeeper import read_connect
from penstock.metadata.embedded import EmbeddedSource
from penstock.metadata.shared import SharedSource
from penstock.metadata.store import StoreSource
from penstock.model.clock import Clock
from penstock.observe.log import Logger
from penstock.storage.directories import StartRefused


def store_source(
    config: BrokerConfig, metadata_socket: Path | None = None, *, clock: Clock, log: Logger
) -> StoreSource:
    """ZooKeeper where it is set, else that of this process's supervisor, else the file in the first data directory."""
    if config.zookeeper_connect:
        return zookeeper_source(config, config.zookeeper_connect, clock=clock, log=log)
    if metadata_socket is not None:
        return SharedSource(metadata_socket, config.broker_session_timeout_ms)
    check_all_started(config, 1)
    return EmbeddedSource(Path(config.data_directories[0]))


def zookeeper_source(config: BrokerConfig, connect: str, *, clock: Clock, log: Logger) -> StoreSource:
    """The store in ZooKeeper; raises `StartRefused` where kazoo or a file of TLS is missing."""
    # Not needed by brokers without ZooKeeper.
    from penstock.metadata.zookeeper import ZooKeeperSource
    from penstock.metadata.zookeeper_client import Ensemble, can_connect
    from penstock.metadata.zookeeper_requests import CREATOR_ONLY, OPEN

    if not can_connect(sasl=config.zookeeper_authentication == "sasl"):
        raise StartRefused("zookeeper.connect needs kazoo: pip install 'penstock[cluster]'")
    servers, root = read_connect(connect)
    user, password = config.zookeeper_username, config.zookeeper_password
    ensemble = Ensemble(
        servers=servers,
        session_timeout_ms=config.broker_session_timeout_ms,
        tls=tls_context(config) if config.zookeeper_ssl_client_enable else None,
        digest=f"{user}:{password}" if config.zookeeper_authentication == "digest" else "",
        sasl=(user, password) if config.zookeeper_authentication == "sasl" else None,
    )
    return ZooKeeperSource(
        ensemble,
        root=root,
        permissions=CREATOR_ONLY if config.zookeeper_set_acl else OPEN,
        connection_timeout_s=config.zookeeper_connection_timeout_ms / 1000,
        clock=clock,
        log=log.bind(part="zookeeper"),
    )


def tls_context(config: BrokerConfig) -> ssl.SSLContext:
    """What the settings of TLS trust and present."""
    trusted, own = config.zookeeper_ssl_truststore_location, config.zookeeper_ssl_keystore_location
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=trusted)
        context.check_hostname = bool(config.zookeeper_ssl_endpoint_identification_algorithm)
        if own is not None:
            context.load_cert_chain(own, password=config.zookeeper_ssl_keystore_password)
    except OSError as error:
        files = f"{trusted} ({config.zookeeper_ssl_truststore_type}), {own} ({config.zookeeper_ssl_keystore_type})"
        raise StartRefused(f"the TLS files for ZooKeeper, {files}, cannot be used: {error}") from None
    return context
