"""The effect of the share coordinator's decisions, carried out once their events are committed."""

from dataclasses import dataclass

from penstock.model.ids import Offset


@dataclass(frozen=True, slots=True)
class Prune:
    """Delete the records below this offset: later snapshots replace all of them."""

    below: Offset
