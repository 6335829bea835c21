"""The APIs by key. Written by tools/generate_wire.py; do not edit."""

from typing import NamedTuple


class Entry(NamedTuple):
    """Where an API's codec is and which versions it knows."""

    module: str
    name: str
    version_min: int
    version_max: int
    flexible_from: int | None


TABLE: dict[int, Entry] = {
    0: Entry("produce", "Produce", 3, 13, 9),
    1: Entry("fetch", "Fetch", 4, 18, 12),
    2: Entry("list_offsets", "ListOffsets", 1, 11, 6),
    3: Entry("metadata", "Metadata", 0, 13, 9),
    8: Entry("offset_commit", "OffsetCommit", 2, 10, 8),
    9: Entry("offset_fetch", "OffsetFetch", 1, 10, 6),
    10: Entry("find_coordinator", "FindCoordinator", 0, 6, 3),
    11: Entry("join_group", "JoinGroup", 0, 9, 6),
    12: Entry("heartbeat", "Heartbeat", 0, 4, 4),
    13: Entry("leave_group", "LeaveGroup", 0, 5, 4),
    14: Entry("sync_group", "SyncGroup", 0, 5, 4),
    15: Entry("describe_groups", "DescribeGroups", 0, 6, 5),
    16: Entry("list_groups", "ListGroups", 0, 5, 3),
    17: Entry("sasl_handshake", "SaslHandshake", 0, 1, None),
    18: Entry("api_versions", "ApiVersions", 0, 4, 3),
    19: Entry("create_topics", "CreateTopics", 2, 7, 5),
    20: Entry("delete_topics", "DeleteTopics", 1, 6, 4),
    21: Entry("delete_records", "DeleteRecords", 0, 2, 2),
    22: Entry("init_producer_id", "InitProducerId", 0, 6, 2),
    23: Entry("offset_for_leader_epoch", "OffsetForLeaderEpoch", 2, 4, 4),
    24: Entry("add_partitions_to_txn", "AddPartitionsToTxn", 0, 5, 3),
    25: Entry("add_offsets_to_txn", "AddOffsetsToTxn", 0, 4, 3),
    26: Entry("end_txn", "EndTxn", 0, 5, 3),
    27: Entry("write_txn_markers", "WriteTxnMarkers", 1, 2, 1),
    28: Entry("txn_offset_commit", "TxnOffsetCommit", 0, 5, 3),
    29: Entry("describe_acls", "DescribeAcls", 1, 3, 2),
    30: Entry("create_acls", "CreateAcls", 1, 3, 2),
    31: Entry("delete_acls", "DeleteAcls", 1, 3, 2),
    32: Entry("describe_configs", "DescribeConfigs", 1, 4, 4),
    33: Entry("alter_configs", "AlterConfigs", 0, 2, 2),
    34: Entry("alter_replica_log_dirs", "AlterReplicaLogDirs", 1, 2, 2),
    35: Entry("describe_log_dirs", "DescribeLogDirs", 1, 5, 2),
    36: Entry("sasl_authenticate", "SaslAuthenticate", 0, 2, 2),
    37: Entry("create_partitions", "CreatePartitions", 0, 3, 2),
    38: Entry("create_delegation_token", "CreateDelegationToken", 1, 3, 2),
    39: Entry("renew_delegation_token", "RenewDelegationToken", 1, 2, 2),
    40: Entry("expire_delegation_token", "ExpireDelegationToken", 1, 2, 2),
    41: Entry("describe_delegation_token", "DescribeDelegationToken", 1, 3, 2),
    42: Entry("delete_groups", "DeleteGroups", 0, 2, 2),
    43: Entry("elect_leaders", "ElectLeaders", 0, 2, 2),
    44: Entry("incremental_alter_configs", "IncrementalAlterConfigs", 0, 1, 1),
    45: Entry("alter_partition_reassignments", "AlterPartitionReassignments", 0, 1, 0),
    46: Entry("list_partition_reassignments", "ListPartitionReassignments", 0, 0, 0),
    47: Entry("offset_delete", "OffsetDelete", 0, 0, None),
    48: Entry("describe_client_quotas", "DescribeClientQuotas", 0, 1, 1),
    49: Entry("alter_client_quotas", "AlterClientQuotas", 0, 1, 1),
    50: Entry("describe_user_scram_credentials", "DescribeUserScramCredentials", 0, 0, 0),
    51: Entry("alter_user_scram_credentials", "AlterUserScramCredentials", 0, 0, 0),
    56: Entry("alter_partition", "AlterPartition", 2, 3, 2),
    57: Entry("update_features", "UpdateFeatures", 0, 2, 0),
    60: Entry("describe_cluster", "DescribeCluster", 0, 2, 0),
    61: Entry("describe_producers", "DescribeProducers", 0, 0, 0),
    64: Entry("unregister_broker", "UnregisterBroker", 0, 0, 0),
    65: Entry("describe_transactions", "DescribeTransactions", 0, 0, 0),
    66: Entry("list_transactions", "ListTransactions", 0, 2, 0),
    68: Entry("consumer_group_heartbeat", "ConsumerGroupHeartbeat", 0, 1, 0),
    69: Entry("consumer_group_describe", "ConsumerGroupDescribe", 0, 1, 0),
    74: Entry("list_config_resources", "ListConfigResources", 0, 1, 0),
    75: Entry("describe_topic_partitions", "DescribeTopicPartitions", 0, 0, 0),
    76: Entry("share_group_heartbeat", "ShareGroupHeartbeat", 1, 1, 1),
    77: Entry("share_group_describe", "ShareGroupDescribe", 1, 1, 1),
    78: Entry("share_fetch", "ShareFetch", 1, 2, 1),
    79: Entry("share_acknowledge", "ShareAcknowledge", 1, 2, 1),
    83: Entry("initialize_share_group_state", "InitializeShareGroupState", 0, 0, 0),
    84: Entry("read_share_group_state", "ReadShareGroupState", 0, 0, 0),
    85: Entry("write_share_group_state", "WriteShareGroupState", 0, 1, 0),
    86: Entry("delete_share_group_state", "DeleteShareGroupState", 0, 0, 0),
    87: Entry("read_share_group_state_summary", "ReadShareGroupStateSummary", 0, 1, 0),
    90: Entry("describe_share_group_offsets", "DescribeShareGroupOffsets", 0, 1, 0),
    91: Entry("alter_share_group_offsets", "AlterShareGroupOffsets", 0, 0, 0),
    92: Entry("delete_share_group_offsets", "DeleteShareGroupOffsets", 0, 0, 0),
}
