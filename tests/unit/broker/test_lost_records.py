"""Which acknowledged records a broker that starts may have lost, and which it has kept in other directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.controller.cluster_image import TOPIC_ID, ClusterImage, partition

from penstock.broker import wiring
from penstock.broker.wiring import doubtful_directories, kept_partitions
from penstock.config.broker import BrokerConfig
from penstock.model.ids import BrokerId, TopicId, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Directory:
    path: str
    offline: str | None = None

    @property
    def directory_id(self) -> str:
        return f"id of {self.path}"


@dataclass
class Log:
    directory: Directory
    topic_id: TopicId = TOPIC_ID
    offline: str | None = None
    is_lost: bool = False


@dataclass
class Logs:
    """What the disk showed at a start."""

    crashed: set[str] = field(default_factory=set)
    damaged: set[TopicPartition] = field(default_factory=set)
    doubled: set[TopicPartition] = field(default_factory=set)
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    all_directories: tuple[Directory, ...] = (Directory("/a"), Directory("/b"))

    def get(self, tp: TopicPartition) -> Log | None:
        return self.logs.get(tp)


A, B = Directory("/a"), Directory("/b")


def doubtful(logs: Logs, *replicas: int, **configs: str) -> frozenset[str]:
    cluster = ClusterImage()
    cluster.start(*replicas)
    cluster.topic(partition(*replicas), **configs)
    store: Any = logs
    return doubtful_directories(store, cluster.image, BrokerConfig(broker_id=1))


def test_a_log_that_a_power_cut_took_whole_counts_as_lost() -> None:
    # No log of the partition is on the disk: its directory was never synced.
    assert doubtful(Logs(crashed={"/a", "/b"}), 1, 2) == {"/a", "/b"}
    assert doubtful(Logs(crashed={"/b"}), 1, 2) == {"/b"}


def test_a_disk_that_failed_makes_only_its_own_logs_doubtful() -> None:
    assert doubtful(Logs(crashed={"/b"}, logs={T0: Log(A)}), 1, 2) == set()
    assert doubtful(Logs(crashed={"/b"}, logs={T0: Log(B)}), 1, 2) == {"/b"}


@pytest.mark.parametrize(
    ("logs", "replicas", "configs"),
    [
        (Logs(), (1, 2), {}),
        (Logs(crashed={"/a"}), (1, 2), {"flush": "group"}),
        (Logs(crashed={"/a"}), (1,), {}),
        (Logs(crashed={"/a"}), (2, 3), {}),
    ],
    ids=["no power cut", "flush=group", "the only replica", "not a replica"],
)
def test_nothing_is_lost(logs: Logs, replicas: tuple[int, ...], configs: dict[str, str]) -> None:
    assert not doubtful(logs, *replicas, **configs)


def test_damage_counts_as_lost() -> None:
    assert doubtful(Logs(damaged={T0}, logs={T0: Log(A)}), 1, 2, flush="group") == {"/a"}
    assert doubtful(Logs(damaged={T0}), 1, 2, flush="group") == {"/a", "/b"}, "it may have been anywhere"


def kept(
    logs: Logs, *, replicas: tuple[int, ...] = (1, 2), present: Mapping[str, bool] | None = None, lost: bool = True
) -> set[int]:
    cluster = ClusterImage()
    cluster.register(1, directories=(A.directory_id, B.directory_id))
    cluster.settle()
    cluster.topic(partition(*replicas), partition(*replicas, index=1))
    store: Any = logs
    there = {"/a": True, "/b": True} if present is None else present
    found = kept_partitions(store, cluster.image, BrokerId(1), present=there, lost=lost)
    assert set(found) <= {TOPIC_ID}
    return set(found.get(TOPIC_ID, ()))


BOTH = {T0: Log(A), T1: Log(B)}


def test_partitions_in_directories_that_lost_nothing_are_kept() -> None:
    assert kept(Logs(logs=BOTH), present={"/a": True, "/b": False}) == {0}
    assert kept(Logs(logs=BOTH), present={"/a": True}) == {0}, "one that was not there at the last admission"


def test_without_a_doubt_there_is_nothing_to_say() -> None:
    assert kept(Logs(logs=BOTH), lost=False) == set()


def test_a_directory_that_is_missing_or_offline_keeps_nothing() -> None:
    gone = Logs(logs={T0: Log(A)}, all_directories=(A, Directory("/new")))
    assert kept(gone, lost=False, present={"/a": True}) == {0}
    failed = Directory("/b", offline="EIO")
    assert kept(Logs(logs={T0: Log(A), T1: Log(failed)}, all_directories=(A, failed)), lost=False) == {0}


@pytest.mark.parametrize(
    "logs",
    [
        Logs(logs={T0: Log(A)}),
        Logs(logs={T0: Log(A), T1: Log(A, topic_id=TopicId(b"u" * 16))}),
        Logs(logs={T0: Log(A), T1: Log(A, offline="EIO")}),
        Logs(logs={T0: Log(A), T1: Log(A, is_lost=True)}),
        Logs(logs={T0: Log(A), T1: Log(A)}, damaged={T1}),
        Logs(logs={T0: Log(A), T1: Log(A)}, doubled={T1}),
    ],
    ids=["gone", "of another topic", "offline", "missing", "damaged", "found twice"],
)
def test_a_log_that_is_not_surely_that_of_the_last_life_is_not_kept(logs: Logs) -> None:
    assert kept(logs, present={"/a": True}) == {0}


def test_the_only_replica_of_a_partition_is_kept_by_its_directory() -> None:
    logs = Logs(logs=BOTH, damaged={T0})
    assert kept(logs, replicas=(1,), present={"/a": False}) == {0}, "it serves what it has"


def test_a_broker_with_too_many_partitions_to_name_says_nothing_of_single_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wiring, "KEPT_BYTES_MAX", 32)
    assert kept(Logs(logs=BOTH), present={"/a": True}) == set()
