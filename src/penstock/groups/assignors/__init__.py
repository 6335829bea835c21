"""Server-side assignors: pure functions from a group and its topics to a target assignment."""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.groups.assignors.range import assign_ranges
from penstock.groups.assignors.spec import Assignor
from penstock.groups.assignors.uniform import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""Every assignor by its name in requests."""
