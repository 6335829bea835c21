"""A simulator that runs whole brokers and their clients in one process on virtual time."""
