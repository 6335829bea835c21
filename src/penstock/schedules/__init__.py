"""Delayed, scheduled and recurring messages: rules, record formats, and the driver at the leader of each partition."""
