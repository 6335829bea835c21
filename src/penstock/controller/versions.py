"""Plans a change of the cluster's version."""

from dataclasses import replace

from penstock.controller.plan import Plan
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Create, Operation, Set
from penstock.metadata.records import FEATURES, STORE, pack_features, pack_store
from penstock.model.cluster_versions import UpgradeType, VersionRange, check_change
from penstock.model.ids import BrokerId


def plan_version_change(
    image: MetadataImage, wanted: int, *, upgrade_type: UpgradeType, supported: VersionRange
) -> Plan[int]:
    """Finalize a version of the cluster; raises `InvalidUpdateVersion` where a member of it does not support that.

    The store's identity takes its form in the same transaction: a broker without versions, which looks for none,
    refuses to start on that.
    """
    check_change(
        image.level,
        wanted,
        upgrade_type=upgrade_type,
        supported=supported,
        brokers={BrokerId(each): broker.versions for each, broker in image.brokers.items()},
        down={
            BrokerId(each): admission.versions
            for each, admission in image.admissions.items()
            if each not in image.brokers
        },
    )
    if wanted == image.level:
        return Plan(steps=(), outcomes=(wanted,))
    features = image.features
    data = pack_features(replace(features, level=wanted, epoch=features.epoch + 1))
    own: Operation = Create(FEATURES, data) if features.version is None else Set(FEATURES, data, features.version)
    mark = (Set(STORE, pack_store(image.store, wanted)),) if image.store.store_id else ()
    return Plan(steps=((own, *mark),), outcomes=(wanted,))
