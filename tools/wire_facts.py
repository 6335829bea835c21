"""Facts about the protocol that kio's dataclasses do not carry."""

NOT_GENERATED = frozenset(
    {
        "AssignReplicasToDirs",
        "BeginQuorumEpoch",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "ControllerRegistration",
        "EndQuorumEpoch",
        "Envelope",
        "FetchSnapshot",
        "UpdateRaftVoter",
        "Vote",
    }
)
"""APIs that only the parts of Apache Kafka's own controller quorum speak among themselves."""

NEVER_DROPPED: frozenset[str] = frozenset()
