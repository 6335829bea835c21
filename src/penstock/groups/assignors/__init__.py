"""Who is to have which partition: pure functions from a group and its topics to a target."""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.groups.assignors.range import assign_ranges
from penstock.groups.assignors.spec import Assignor
from penstock.groups.assignors.uniform import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""Every assignor by the name that a member asks for it with."""
