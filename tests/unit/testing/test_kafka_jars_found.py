"""Java runs Apache Kafka's jars, so they must come from a folder of this user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.testing.apache_kafka import KAFKA_VERSION, LIBS_VARIABLE, KafkaMissing, find_libs


@pytest.fixture
def jars_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jars in a folder above the current directory, as in a temporary directory that users share."""
    libs = tmp_path / ".cache" / f"kafka-{KAFKA_VERSION}" / "libs"
    libs.mkdir(parents=True)
    (libs / f"kafka_2.13-{KAFKA_VERSION}.jar").touch()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv(LIBS_VARIABLE, raising=False)
    return libs


def test_the_users_own_jars_are_found_from_a_folder_below(jars_above: Path) -> None:
    assert find_libs() == jars_above


def test_another_users_jars_are_ignored(jars_above: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, stat = os.getuid() + 1, Path.stat

    def owned_by_another(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        facts = stat(path, follow_symlinks=follow_symlinks)
        if path != jars_above:
            return facts
        fields = list(facts)
        fields[4] = theirs
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "stat", owned_by_another)
    try:
        found: Path | None = find_libs()
    except KafkaMissing:
        found = None

    assert found != jars_above
