"""Share groups (KIP-932): records of a topic handed out one by one, acknowledged, and not ordered by partition.

The partition's leader knows the state of every record between the share partition's start and end, and has the share
coordinator write what must survive it.
"""
