"""The timers of the share coordinator."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColdSnapshots:
    """Repeat snapshots that are old, so that the records before them can be deleted; always set."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """Delete records that later snapshots replace; always set."""
