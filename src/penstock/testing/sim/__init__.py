"""The simulator: whole brokers and clients in one process, on virtual time, with faults drawn from a seed."""
