"""Views in the metadata: what CreateTopics makes of them, and what clients see as their parent changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from tests.unit.controller.test_topic_planning import image_of

from penstock.config.broker import BrokerConfig
from penstock.controller.configs import ConfigChange, SettingStep, plan_config_changes
from penstock.controller.plan import Plan
from penstock.controller.topics import Growth, NewTopic, plan_creations, plan_deletions, plan_growths, write_chunk
from penstock.controller.views import VIEWS_PER_TOPIC_MAX
from penstock.groups.image_topics import ImageTopics, changed_topics
from penstock.metadata import image as image_module
from penstock.metadata.nodes import Change, Node
from penstock.metadata.operations import Create, Delete, Operation, Set
from penstock.metadata.records import FEATURES, Features, pack_features, pack_topic
from penstock.model.cluster_versions import DRAINED_PARTITIONS, FILTERED_VIEWS
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    PolicyViolation,
    TopicAlreadyExists,
)
from penstock.model.ids import LeaderEpoch
from penstock.model.topic import PARTITIONS_ACTIVE, PARTITIONS_FINALIZED, TopicState, ViewState
from penstock.views.conditions import compiled

WHERE = "value.amount > 100"


class Cluster:
    """An image, and the nodes that it is made of."""

    def __init__(self, level: int = FILTERED_VIEWS) -> None:
        self.image = image_of(1, 2, 3)
        self._ids = count(1)
        self.nodes: dict[str, Node] = {}
        self.deltas: list[list[str]] = []
        self.apply([Create(FEATURES, pack_features(Features(level=level)))])
        self.made(NewTopic(name="orders", partitions=2, replication_factor=3))

    def apply(self, operations: list[Operation]) -> None:
        changes = []
        for operation in operations:
            if isinstance(operation, Delete):
                del self.nodes[operation.path]
                changes.append(Change(path=operation.path, data=None))
            elif isinstance(operation, Create | Set):
                before = self.nodes.get(operation.path)
                version = 0 if before is None else before.version + 1
                self.nodes[operation.path] = Node(data=operation.data, version=version, created=1, owner=0)
                changes.append(Change(path=operation.path, data=operation.data, version=version))
        delta = self.image.apply(changes)
        self.deltas.append(changed_topics(delta))

    def create(self, *topics: NewTopic) -> Plan[TopicState]:
        return plan_creations(
            self.image,
            topics,
            config=BrokerConfig(),
            make_id=lambda: next(self._ids).to_bytes(16, "big"),
            first=0,
        )

    def made(self, topic: NewTopic) -> TopicState:
        planned = self.create(topic)
        [outcome] = planned.outcomes
        if isinstance(outcome, BrokerError):
            raise outcome
        self.apply(list(planned.operations))
        return outcome

    def view(self, name: str = "big", of: str = "orders", where: str = WHERE, **more: object) -> TopicState:
        configs = (("view.of", of), ("view.filter", where))
        return self.made(NewTopic(name=name, configs=(*configs, *more.pop("configs", ())), **more))  # type: ignore[misc, arg-type]

    def delete(self, *names: str) -> tuple[TopicState | BrokerError, ...]:
        planned = plan_deletions(self.image, names, config=BrokerConfig())
        self.apply(list(planned.operations))
        return planned.outcomes

    def alter(self, name: str, setting: str, value: str) -> object:
        change = ConfigChange(resource_type=2, name=name, steps=(SettingStep(name=setting, step=0, value=value),))
        [outcome] = plan_config_changes(self.image, [change], config=BrokerConfig()).outcomes
        return outcome


def test_a_view_has_its_own_name_and_id_and_all_else_of_its_parent() -> None:
    cluster = Cluster()

    made = cluster.view()

    parent = cluster.image.topics["orders"]
    assert (made.name, made.partitions, len(made.partitions)) == ("big", parent.partitions, 2)
    assert made.topic_id != parent.topic_id
    assert cluster.image.shown("big") == cluster.image.shown_by_id(made.topic_id) == made
    assert made.configs["view.filter"] == WHERE
    assert set(cluster.image.topics) == {"orders"}, "no planner knows of it"
    assert compiled(cluster.image.views["big"].form).paths == [["amount"]]


def test_a_view_grows_with_its_parent_and_groups_are_told() -> None:
    cluster = Cluster()
    cluster.view()

    planned = plan_growths(cluster.image, [Growth(name="orders", count=5)], first=0)
    cluster.apply(list(planned.operations))

    assert ImageTopics(cluster.image).partition_count("big") == 5
    assert cluster.deltas[-1] == ["orders", "big"]
    [refused] = plan_growths(cluster.image, [Growth(name="big", count=9)], first=0).outcomes
    assert isinstance(refused, InvalidPartitions)
    assert "orders" in str(refused)


def check_agreement(cluster: Cluster) -> None:
    """A view has the partitions, leaders and epochs of its parent, on brokers that followed and on one that starts."""
    parent = cluster.image.topics["orders"]
    later = image_of(1, 2, 3)
    later.replace_with(cluster.nodes)
    for image in (cluster.image, later):
        assert image.views["big"].topic.shown_partitions == parent.shown_partitions, "V5"


def led_by_another(cluster: Cluster) -> None:
    """The first partition gets another leader, in a new epoch."""
    parent = cluster.image.topics["orders"]
    first = parent.partitions[0]
    moved = replace(first, leader=first.replicas[1], leader_epoch=LeaderEpoch(first.leader_epoch + 1))
    changed = replace(parent, partitions=(moved, *parent.partitions[1:]))
    cluster.apply([write_chunk(cluster.image, changed, 0)])
    assert cluster.image.topics["orders"].partitions[0] == moved


def test_a_view_has_the_leaders_and_epochs_of_its_parent_as_they_change() -> None:
    cluster = Cluster()
    cluster.view()

    led_by_another(cluster)

    check_agreement(cluster)


def test_the_check_catches_a_view_that_keeps_the_leaders_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ablation of V5."""
    original, first = image_module.view_of, dict[str, ViewState]()
    monkeypatch.setattr(image_module, "view_of", lambda name, *given: first.setdefault(name, original(name, *given)))
    cluster = Cluster()
    cluster.view()
    check_agreement(cluster)

    led_by_another(cluster)

    with pytest.raises(AssertionError, match="V5"):
        check_agreement(cluster)


def test_a_view_of_a_finalized_topic_has_the_partitions_that_clients_see() -> None:
    cluster = Cluster()
    parent = cluster.image.topics["orders"]
    finalized = {PARTITIONS_ACTIVE: "1", PARTITIONS_FINALIZED: "true"}
    cluster.apply([Set("/topics/orders", pack_topic(replace(parent, configs=finalized)), parent.version)])

    assert cluster.view(partitions=1).shown_count == 1
    [refused] = cluster.create(
        NewTopic(name="two", partitions=2, configs=(("view.of", "orders"), ("view.filter", WHERE)))
    ).outcomes
    assert isinstance(refused, InvalidPartitions)


def test_a_view_is_the_same_however_the_image_comes_to_it() -> None:
    cluster = Cluster()
    cluster.view()
    cluster.view("other", where="key = 'x'")
    cluster.delete("other")
    image = image_of(1, 2, 3)

    image.replace_with(cluster.nodes)

    assert image.views == cluster.image.views
    assert image.views_by_id == cluster.image.views_by_id
    assert "/views/big" in set(image.paths())
    image.replace_with({})
    assert not image.views
    assert not image.views_by_id


def test_a_parent_cannot_be_deleted_before_its_views() -> None:
    cluster = Cluster()
    cluster.view()

    [refused] = cluster.delete("orders")
    assert isinstance(refused, InvalidRequest)
    assert "big" in str(refused)

    outcomes = cluster.delete("orders", "big")
    assert [each.name for each in outcomes if isinstance(each, TopicState)] == ["orders", "big"]
    assert not cluster.image.views
    assert cluster.deltas[-1] == ["orders", "big"]


def test_nothing_of_a_view_can_be_altered() -> None:
    cluster = Cluster()
    cluster.view()

    for name, setting in (("big", "view.filter"), ("big", "retention.ms"), ("orders", "view.filter")):
        assert isinstance(cluster.alter(name, setting, "1"), InvalidConfig), (name, setting)


def test_empty_settings_of_views_ask_for_none() -> None:
    cluster = Cluster()

    made = cluster.made(NewTopic(name="new", partitions=1, configs=(("view.of", ""), ("view.filter", ""))))
    outcomes = [cluster.alter(name, key, "") for name in ("orders", "new") for key in ("view.of", "view.filter")]

    assert len(made.partitions) == 1
    assert not cluster.image.views
    assert not any(isinstance(outcome, BrokerError) for outcome in outcomes)


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ((("view.of", "orders"),), "view.filter is not given"),
        ((("view.filter", WHERE),), "view.of is not given"),
        ((("view.of", "nothing"), ("view.filter", WHERE)), "does not exist"),
        ((("view.of", "big"), ("view.filter", WHERE)), "use its parent orders"),
        ((("view.of", "orders"), ("view.filter", "value.a >")), "line 1, column 9"),
        ((("view.of", "orders"), ("view.filter", WHERE), ("retention.ms", "1")), "retention.ms cannot be set"),
    ],
)
def test_what_is_no_view_is_refused(configs: tuple[tuple[str, str], ...], reason: str) -> None:
    cluster = Cluster()
    cluster.view()

    [outcome] = cluster.create(NewTopic(name="new", configs=configs)).outcomes

    assert isinstance(outcome, InvalidConfig)
    assert reason in str(outcome)


def test_numbers_that_are_not_those_of_the_parent_are_refused() -> None:
    cluster = Cluster()

    with pytest.raises(InvalidPartitions):
        cluster.view(partitions=3)
    with pytest.raises(InvalidReplicationFactor):
        cluster.view(replication_factor=2)
    cluster.view(partitions=2, replication_factor=3)
    with pytest.raises(TopicAlreadyExists):
        cluster.view()
    with pytest.raises(TopicAlreadyExists):
        cluster.made(NewTopic(name="big"))


def test_a_topic_has_so_many_views_at_most() -> None:
    cluster = Cluster()
    for number in range(VIEWS_PER_TOPIC_MAX):
        cluster.view(f"view-{number}")

    with pytest.raises(PolicyViolation):
        cluster.view("one-more")


def test_brokers_of_before_are_not_given_views() -> None:
    with pytest.raises(InvalidConfig, match="penstock cluster upgrade"):
        Cluster(DRAINED_PARTITIONS).view()
