"""Background work: flush, retention, compaction, moves and scrubbing."""
