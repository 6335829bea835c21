"""Share groups (KIP-932): the coordinator assigns partitions, each to as many members as it takes."""
