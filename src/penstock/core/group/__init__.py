"""Group coordination without I/O: who shares a topic's partitions with whom, and how far each group has read."""
