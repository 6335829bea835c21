"""One partition on this broker: its rules, its replica, validation of batches, producers, waiters and fetch."""
