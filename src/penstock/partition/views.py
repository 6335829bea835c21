"""The filtered views that this broker knows, and what looking through each has cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.metadata.image import ViewChange
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicId
from penstock.model.topic import ViewState
from penstock.views.conditions import Condition, compiled
from penstock.views.look import Tally
from penstock.views.throttle import Throttle


class View:
    """A view: its filter is compiled when it is first read."""

    __slots__ = ("_condition", "in_threads", "name", "parent", "state", "tally", "throttle", "throttled", "topic_id")

    def __init__(self, state: ViewState) -> None:
        self.name = state.topic.name
        self.topic_id = state.topic.topic_id
        self.parent = state.parent
        self.state = state
        self.tally = Tally()
        self.throttle = Throttle()
        self.throttled = 0
        """How often a fetch waited because the view had used its share of a core."""
        self.in_threads = 0
        """Threads that look through it."""
        self._condition: Condition | None = None

    @property
    def condition(self) -> Condition:
        """The compiled filter; raises for one of a later version of penstock, which this broker cannot evaluate."""
        if self._condition is None:
            try:
                self._condition = compiled(self.state.form)
            except BrokerError as error:
                raise KafkaStorageError(f"the filter of view {self.name}: {error}") from None
        return self._condition


class Views:
    """All views, by name and by id."""

    __slots__ = ("_by_id", "_by_name")

    def __init__(self) -> None:
        self._by_name: dict[str, View] = {}
        self._by_id: dict[bytes, View] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[View]:
        return iter(list(self._by_name.values()))

    def get(self, topic: object) -> View | None:
        """The view of a name or an id, whichever a request has."""
        if isinstance(topic, str):
            return self._by_name.get(topic)
        return self._by_id.get(topic) if isinstance(topic, bytes) else None

    def start(self, views: Iterable[ViewState]) -> None:
        for state in views:
            self._set(state)

    def follow(self, changes: Iterable[ViewChange]) -> None:
        """Apply changes of the metadata. A view whose parent changed stays what it is."""
        for change in changes:
            before, after = change.before, change.after
            if before is not None and (after is None or after.topic.topic_id != before.topic.topic_id):
                self._remove(before.topic.name, before.topic.topic_id)
            if after is not None:
                known = self._by_name.get(after.topic.name)
                if known is not None:
                    known.state = after
                else:
                    self._set(after)

    def _set(self, state: ViewState) -> None:
        view = View(state)
        self._by_name[view.name] = self._by_id[view.topic_id] = view

    def _remove(self, name: str, topic_id: TopicId) -> None:
        self._by_name.pop(name, None)
        self._by_id.pop(topic_id, None)
