"""DescribeCluster, and a handshake on a listener without SASL."""

from __future__ import annotations

from differential.script import Run, scenarios

BROKERS, CONTROLLERS = 1, 2


def described(run: Run) -> None:
    run.ask("plain", {"endpoint_type": BROKERS})
    run.ask("with operations", {"endpoint_type": BROKERS, "include_cluster_authorized_operations": True})
    run.ask("with fenced brokers", {"endpoint_type": BROKERS, "include_fenced_brokers": True})


def described_by_another_endpoint(run: Run) -> None:
    run.ask("controllers", {"endpoint_type": CONTROLLERS})
    run.ask("kind 7", {"endpoint_type": 7})


def handshake_without_sasl(run: Run) -> None:
    run.ask("plain", {"mechanism": "PLAIN"})
    run.ask("and the connection lives", {"topics": []}, api="metadata", version=9)


def authentication_without_sasl(run: Run) -> None:
    run.ask("bytes", {"auth_bytes": b"\x00user\x00secret"})


SCENARIOS = (
    *scenarios("cluster", "describe_cluster", (described, described_by_another_endpoint)),
    *scenarios("cluster", "sasl_handshake", (handshake_without_sasl,)),
    *scenarios("cluster", "sasl_authenticate", (authentication_without_sasl,)),
)
