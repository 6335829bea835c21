"""Work in the background: flush, retention, compaction, moves and scrubbing."""
