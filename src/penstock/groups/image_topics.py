"""The topics of the metadata image, as group coordinators see them."""

from collections.abc import Iterable, Sequence
from itertools import chain

from penstock.metadata.image import ImageDelta, MetadataImage, TopicChange
from penstock.model.ids import TOPIC_ID_ZERO, TopicId


class ImageTopics:
    """A `penstock.groups.topics.TopicsView` of the current metadata image."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def partition_count(self, topic: str) -> int | None:
        found = self._image.shown(topic)
        return None if found is None else found.shown_count

    def is_view(self, topic: str) -> bool:
        return topic in self._image.views

    def topic_id(self, topic: str) -> TopicId | None:
        found = self._image.shown(topic)
        return None if found is None else found.topic_id

    def topic_name(self, topic_id: TopicId) -> str | None:
        found = self._image.shown_by_id(topic_id)
        return None if found is None else found.name

    def racks(self, topic: str, partition: int) -> Sequence[str]:
        found = self._image.shown(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return ()
        brokers = [self._image.brokers.get(replica) for replica in found.shown(partition).replicas]
        return tuple(broker.rack for broker in brokers if broker is not None and broker.rack)

    def is_gone(self, topic: str, topic_id: TopicId) -> bool:
        """Whether a topic was deleted, or recreated under another id. Without an id, only the name is compared."""
        found = self._image.shown(topic)
        return found is None or topic_id not in (found.topic_id, TOPIC_ID_ZERO)

    def is_finalized(self, topic: str) -> bool:
        """Whether a topic has fewer partitions than there may be committed offsets for."""
        found = self._image.topics.get(topic)
        return found is not None and found.is_finalized

    def names(self) -> Iterable[str]:
        return chain(self._image.topics, self._image.views)


def changed_topics(delta: ImageDelta) -> list[str]:
    """Topics that were created, deleted, or changed in a way that matters to an assignor."""
    changes = chain(delta.topics, (change.as_topic for change in delta.views))
    return [name for change in changes if (name := changed_name(change)) is not None]


def changed_name(change: TopicChange) -> str | None:
    before, after = change.before, change.after
    if before is None or after is None:
        one = before or after
        return None if one is None else one.name
    if before.topic_id != after.topic_id or before.shown_count != after.shown_count:
        return after.name
    # A partition that becomes a ghost, or resumes from one, stays where it is assigned.
    same = all(
        old.replicas == new.replicas or old.is_ghost or new.is_ghost
        for old, new in zip(before.partitions, after.partitions, strict=False)
    )
    return None if same else after.name
