"""Groups with the classic protocol: JoinGroup, SyncGroup, and a leader that assigns partitions."""
