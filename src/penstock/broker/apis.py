"""Every API that a broker serves, each family with the parts it needs."""

from __future__ import annotations

from typing import Protocol

from penstock.api.absent import Absent
from penstock.api.admin_log import AdminLog
from penstock.api.brokers import Brokers
from penstock.api.cluster import Cluster
from penstock.api.configs import Configs
from penstock.api.consumer_groups import ConsumerGroups
from penstock.api.coordinator import Coordinators
from penstock.api.features import Features
from penstock.api.fetch import Fetch
from penstock.api.forwarding import Envelopes, Forwarding
from penstock.api.group_offsets import GroupOffsets
from penstock.api.groups import Groups
from penstock.api.inter_broker import InterBroker
from penstock.api.leader_hints import LeaderHints
from penstock.api.log_dirs import LogDirs
from penstock.api.offsets import Offsets
from penstock.api.produce import Produce
from penstock.api.producer_ids import ProducerIdentities
from penstock.api.quotas import ClientQuotas
from penstock.api.redirects import Redirects
from penstock.api.registry import Api
from penstock.api.scheduled import Scheduled
from penstock.api.share_fetch import ShareFetch
from penstock.api.share_groups import ShareGroups
from penstock.api.share_states import ShareStates
from penstock.api.topics import Topics
from penstock.api.topics_describe import TopicsDescribe
from penstock.api.topics_records import TopicsRecords
from penstock.api.topics_replicas import TopicsReplicas
from penstock.api.transactions import Transactions
from penstock.api.txn_admin import TxnAdmin
from penstock.api.txn_verification import TxnVerification
from penstock.broker.parts import Parts
from penstock.model.cluster_versions import SHARE_GROUPS
from penstock.partition.view_reader import ViewReader


class Family(Protocol):
    """APIs that belong together."""

    def apis(self) -> tuple[Api, ...]: ...


def every_api(parts: Parts) -> tuple[Api, ...]:
    """All but ApiVersions, which lists the others."""
    verification = TxnVerification(
        verifier=parts.verifier,
        enabled=lambda: parts.ground.settings().transaction_partition_verification_enable,
    )
    changes = AdminLog(parts.ground.log.bind(part="admin"), is_managed=parts.groups.is_managed, turns=parts.turns)
    families = (
        *of_records(parts, verification),
        *of_the_cluster(parts, changes),
        *of_coordinators(parts, verification),
    )
    served = tuple(changes.logged(api) for family in families for api in family.apis())
    forwarding = Forwarding(controller=parts.controller, client=parts.controller_client)
    return (*map(forwarding.forwarded, served), *of_brokers(parts, served))


def of_brokers(parts: Parts, served: tuple[Api, ...]) -> tuple[Api, ...]:
    """What only brokers request of each other."""
    requests = InterBroker(parts.controller_requests).apis()
    envelopes = Envelopes(
        controller=parts.controller,
        catalog=parts.ground.catalog,
        rows={api.key: api for api in (*served, *requests) if api.forwarded or api.internal},
    )
    return (
        *requests,
        *envelopes.apis(),
        *Redirects(parts.redirects).apis(),
        *Scheduled(parts.schedules).apis(),
    )


def of_records(parts: Parts, verification: TxnVerification) -> tuple[Family, ...]:
    ground = parts.ground
    hints = LeaderHints(ground.catalog.image)
    return (
        Produce(
            replicas=parts.replicas,
            timers=parts.timers,
            quotas=ground.quotas,
            traffic=ground.traffic,
            verification=verification,
            turns=parts.turns,
            hints=hints,
            redirects=parts.redirects,
        ),
        Fetch(
            fetches=parts.fetches,
            threads=ground.threads.executor,
            loop=parts.loop,
            bytes_max=lambda: ground.settings().fetch_max_bytes,
            quotas=ground.quotas,
            traffic=ground.traffic,
            turns=parts.turns,
            hints=hints,
            views=ViewReader(
                threads=ground.threads.executor,
                monotonic=ground.clock.monotonic,
                cpu_percent_max=lambda: ground.settings().view_cpu_percent_max,
                hold=parts.replicas.decompression.hold,
                timers=parts.timers,
                turns=parts.turns,
            ),
        ),
        ShareFetch(
            fetches=parts.share_fetches,
            sessions=parts.share_sessions,
            timers=parts.timers,
            turns=parts.turns,
            hints=hints,
            quotas=ground.quotas,
            traffic=ground.traffic,
            bytes_max=lambda: ground.settings().fetch_max_bytes,
            sessions_max=lambda: ground.settings().group_share_max_share_sessions,
            is_enabled=lambda: ground.catalog.image.level >= SHARE_GROUPS,
        ),
        Offsets(replicas=parts.replicas, threads=ground.threads.executor, turns=parts.turns),
        TopicsRecords(replicas=parts.replicas, timers=parts.timers, turns=parts.turns),
        ProducerIdentities(producer_ids=parts.producer_ids, coordinators=parts.transactions),
    )


def of_the_cluster(parts: Parts, changes: AdminLog) -> tuple[Family, ...]:
    controller, live = parts.controller, parts.ground.live
    return (
        Cluster(controller=parts.controller_client, config=live, changes=changes),
        Topics(controller=controller, config=live, turns=parts.turns),
        TopicsDescribe(controller=controller, config=live, turns=parts.turns),
        TopicsReplicas(controller=controller, turns=parts.turns),
        Configs(controller=controller, config=live, levels=parts.ground.levels),
        ClientQuotas(controller=controller, turns=parts.turns),
        LogDirs(moving=parts.moving, store=parts.ground.logs, turns=parts.turns, config=parts.ground.settings),
        Brokers(controller=controller),
        Features(controller=controller),
        Absent(),
    )


def of_coordinators(parts: Parts, verification: TxnVerification) -> tuple[Family, ...]:
    groups, transactions = parts.groups, parts.transactions
    image, live = parts.ground.catalog.image, parts.ground.live
    return (
        Coordinators(
            controller=parts.controller,
            config=live,
            groups=groups,
            transactions=transactions,
            shares=parts.share_states,
            internal=parts.internal_topics,
        ),
        ShareStates(coordinators=parts.share_states, turns=parts.turns),
        Groups(coordinators=groups, share_offsets=parts.share_offsets, turns=parts.turns),
        ShareGroups(coordinators=groups, offsets=parts.share_offsets, image=image, turns=parts.turns),
        GroupOffsets(coordinators=groups, image=image, turns=parts.turns),
        ConsumerGroups(coordinators=groups, config=live, turns=parts.turns),
        Transactions(
            coordinators=transactions,
            groups=groups,
            verification=verification,
            image=image,
            internal=parts.internal_topics,
            producer_ids=parts.producer_ids,
            turns=parts.turns,
        ),
        TxnAdmin(
            coordinators=transactions,
            markers=parts.markers,
            turns=parts.turns,
            timers=parts.timers,
            timeout_ms=lambda: parts.ground.settings().request_timeout_ms,
        ),
    )
