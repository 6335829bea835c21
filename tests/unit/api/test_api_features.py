"""UpdateFeatures and the features of ApiVersions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.api.api_world import World, in_world

from penstock.api.api_versions import FEATURES
from penstock.metadata.operations import Set
from penstock.metadata.records import FEATURES as FEATURES_PATH
from penstock.metadata.records import Features, pack_features
from penstock.model.cluster_versions import FEATURE, SUPPORTED, UpgradeType
from penstock.model.generated_errors import InvalidRequest, InvalidUpdateVersion
from penstock.wire.api import update_features as gen

LATEST = SUPPORTED.highest


async def update(world: World, *wanted: tuple[str, int, UpgradeType], version: int = 2, dry: bool = False) -> Any:
    updates = [
        gen.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=how.value if version else 1)
        for name, level, how in wanted
    ]
    return await world.ask(57, gen.Request(feature_updates=updates, validate_only=dry), version)


async def of_the_first_version(world: World) -> None:
    """As a cluster that was upgraded from a penstock without versions."""
    number = await world.store.multi([Set(FEATURES_PATH, pack_features(Features(level=1, epoch=1)))])
    await world.catalog.at_least(number)


def test_a_version_is_finalized_by_request_in_every_version(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for version in range(3):
            await of_the_first_version(world)
            response = await update(world, (FEATURE, LATEST, UpgradeType.UPGRADE), version=version)
            assert (response.error_code, response.error_message) == (0, None)
            assert [each.feature for each in response.results] == ([FEATURE] if version < 2 else [])
            assert world.catalog.image.level == LATEST

    in_world(tmp_path, story)


def test_a_request_that_validates_only_changes_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await of_the_first_version(world)

        response = await update(world, (FEATURE, LATEST, UpgradeType.UPGRADE), dry=True)

        assert response.error_code == 0
        assert world.catalog.image.level == 1

    in_world(tmp_path, story)


def test_a_downgrade_is_refused_in_words(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for how, words in (
            (UpgradeType.UPGRADE, "was not requested as a downgrade"),
            (UpgradeType.SAFE_DOWNGRADE, f"There is no way back to before {LATEST}"),
            (UpgradeType.UNSAFE_DOWNGRADE, f"There is no way back to before {LATEST}"),
        ):
            response = await update(world, (FEATURE, 1, how))
            assert response.error_code == InvalidUpdateVersion.code
            assert words in response.error_message
        assert world.catalog.image.level == LATEST

    in_world(tmp_path, story)


def test_one_feature_that_is_refused_refuses_all(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await of_the_first_version(world)
        upgrade = (FEATURE, LATEST, UpgradeType.UPGRADE)

        fixed = await update(world, upgrade, ("group.version", 0, UpgradeType.SAFE_DOWNGRADE))
        twice = await update(world, upgrade, upgrade)
        unknown = await update(world, upgrade, ("no.such.feature", 1, UpgradeType.UPGRADE))

        assert fixed.error_code == unknown.error_code == InvalidUpdateVersion.code
        assert "It always has level 1 here" in fixed.error_message
        assert twice.error_code == InvalidRequest.code
        assert world.catalog.image.level == 1

    in_world(tmp_path, story)


def test_features_with_one_level_may_be_set_to_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        response = await update(world, *((name, level, UpgradeType.UPGRADE) for name, level in FEATURES.items()))
        assert response.error_code == 0

    in_world(tmp_path, story)
