"""Plans filtered views of topics: what CreateTopics makes of `view.of` and `view.filter`.

A view is a node of its own, with its parent's id, the text of its filter and the stored form of that. All else that
clients see of it is its parent's, so nothing of it changes with leaders, partitions or settings, and nothing can be
altered: whoever reads a view may rely on what it has passed.
"""

from collections.abc import Mapping
from typing import Any

from penstock.config.broker import BrokerConfig
from penstock.config.log import TopicConfig
from penstock.controller.plan import PlanStep, storable
from penstock.metadata.image import MetadataImage, view_of
from penstock.metadata.operations import Create, Delete
from penstock.metadata.records import ViewRecord, pack_view, view_path
from penstock.model.cluster_versions import FILTERED_VIEWS
from penstock.model.generated_errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    PolicyViolation,
)
from penstock.model.ids import TopicId
from penstock.model.topic import VIEW_FILTER, VIEW_OF, TopicState, ViewState
from penstock.views.form import packed
from penstock.views.language import parse

VIEWS_PER_TOPIC_MAX = 100
ASSUMED = (-1, 1)
"""Numbers of partitions and replicas that tools send where a user gave none; a view has its parent's."""


def is_view(configs: Mapping[str, Any]) -> bool:
    """Whether settings ask for a view; clients that copy all settings of a topic send empty ones."""
    return bool(configs.get(VIEW_OF) or configs.get(VIEW_FILTER))


def design_view(
    image: MetadataImage,
    name: str,
    configs: Mapping[str, str],
    *,
    config: BrokerConfig,
    topic_id: TopicId,
    partitions: int,
    replication_factor: int,
    assigned: bool,
) -> tuple[TopicState, PlanStep]:
    """The new view as clients see it, and the step that makes it; raises why it is invalid."""
    if image.level < FILTERED_VIEWS:
        raise InvalidConfig(
            f"a view needs version {FILTERED_VIEWS} of the cluster, which has {image.level}: see 'penstock cluster "
            "upgrade'"
        )
    wanted = TopicConfig.resolve(configs, config)
    parent = parent_of(image, configs, wanted)
    count, factor = parent.shown_count, len(parent.partitions[0].replicas)
    if assigned:
        raise InvalidReplicaAssignment(f"a view has the replicas of its parent {parent.name}")
    if partitions not in (*ASSUMED, count):
        raise InvalidPartitions(f"a view has the partitions of its parent {parent.name}, which are {count}")
    if replication_factor not in (*ASSUMED, factor):
        raise InvalidReplicationFactor(f"a view has the replicas of its parent {parent.name}, which are {factor}")
    text = wanted.view_filter
    record = ViewRecord(topic_id=topic_id, parent_id=parent.topic_id, filter=text, form=packed(parse(text)))
    return view_of(name, record, parent).topic, (Create(view_path(name), storable(pack_view(record))),)


def parent_of(image: MetadataImage, configs: Mapping[str, str], wanted: TopicConfig) -> TopicState:
    """The parent that settings name; raises what is wrong with them."""
    for missing in {VIEW_OF, VIEW_FILTER} - set(configs):
        raise InvalidConfig(f"a view has both {VIEW_OF} and {VIEW_FILTER}, and {missing} is not given")
    for other in sorted(set(configs) - {VIEW_OF, VIEW_FILTER}):
        raise InvalidConfig(f"{other} cannot be set for a view: it has the settings of its parent")
    name = wanted.view_of
    if name in image.views:
        raise InvalidConfig(f"{VIEW_OF}: {name} is a view itself; use its parent {image.views[name].parent}")
    parent = image.topics.get(name)
    if parent is None:
        raise InvalidConfig(f"{VIEW_OF}: topic {name!r} does not exist")
    if parent.internal:
        raise InvalidConfig(f"{VIEW_OF}: {name} is an internal topic")
    if len(image.views_of(parent.topic_id)) >= VIEWS_PER_TOPIC_MAX:
        raise PolicyViolation(f"topic {name} has {VIEWS_PER_TOPIC_MAX} views already")
    return parent


def view_removal(view: ViewState) -> PlanStep:
    """Remove a view; there is nothing else of it."""
    return (Delete(view_path(view.topic.name), view.topic.version),)


def check_no_views(image: MetadataImage, topic: TopicState, removed: frozenset[str]) -> None:
    """Refuse to delete a topic before its views, of which some are `removed` by the same request."""
    left = sorted(set(image.views_of(topic.topic_id)) - removed)
    if left:
        shown = ", ".join(left[:5]) + (" and others" if len(left) > 5 else "")
        raise InvalidRequest(f"topic {topic.name} has views, to be deleted before it: {shown}")


def check_alterable(image: MetadataImage, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Refuse to alter a view, and to make one of an existing topic."""
    if name in image.views:
        view = image.views[name]
        raise InvalidConfig(
            f"{name} is a view of {view.parent}: its filter cannot be altered, and its settings are its parent's"
        )
    for key in (VIEW_OF, VIEW_FILTER):
        if after.get(key, "") != before.get(key, ""):
            raise InvalidConfig(f"{key} is for new views: create one as a topic with {VIEW_OF} and {VIEW_FILTER}")
