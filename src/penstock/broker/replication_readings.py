"""Metrics of replication and of the controller, read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.controller.controller import Controller
from penstock.metadata.image import MetadataImage
from penstock.model.ids import BrokerId
from penstock.model.topic import NO_LEADER
from penstock.observe import catalog
from penstock.observe.metric import Sample
from penstock.replication.fetchers import Fetchers
from penstock.replication.isr import IsrProposals


class ReplicationReadings:
    """What this broker leads and follows, and what the controller sees where it is this broker."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        image: MetadataImage,
        fetchers: Fetchers,
        isr: IsrProposals,
        controller: Controller,
        per_partition: Callable[[], bool],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._fetchers = fetchers
        self._isr = isr
        self._controller = controller
        self._per_partition = per_partition

    def samples(self) -> Iterator[Sample]:
        leaders = replicas = under_replicated = under_min = offline = imbalanced = reassigning = 0
        for topic in list(self._image.topics.values()):
            for state in topic.partitions:
                if state.is_ghost:
                    continue
                offline += state.leader == NO_LEADER
                imbalanced += state.leader != state.replicas[0]
                replicas += self._broker_id in state.replicas
                if state.leader == self._broker_id:
                    leaders += 1
                    reassigning += state.is_reassigning
                    under_replicated += len(state.isr) < len(state.replicas)
                    under_min += len(state.isr) < min(state.in_sync_min, len(state.original_replicas))
        yield catalog.LEADERS.sample(leaders)
        yield catalog.REPLICAS.sample(replicas)
        yield catalog.UNDER_REPLICATED.sample(under_replicated)
        yield catalog.UNDER_MIN_ISR.sample(under_min)
        yield catalog.REASSIGNING.sample(reassigning)
        yield catalog.ISR_SHRINKS.sample(self._isr.shrinks)
        yield catalog.ISR_EXPANDS.sample(self._isr.expansions)
        yield catalog.ISR_PROPOSALS.sample(self._isr.in_flight)
        lags = list(self._fetchers.lags())
        yield catalog.FETCHER_LAG_MAX.sample(max((lag for _, _, lag in lags), default=0))
        yield catalog.FETCHER_FAILURES.sample(self._fetchers.failing())
        if self._per_partition():
            for tp, _, lag in lags:
                yield catalog.FETCHER_LAG.sample(lag, tp.topic, str(tp.partition))
        is_controller = self._controller.is_active
        yield catalog.CONTROLLER_ACTIVE.sample(int(is_controller))
        yield catalog.METADATA_SUSPENDED.sample(int(self._controller.is_suspended))
        yield catalog.PARTITIONS_OFFLINE.sample(offline if is_controller else 0)
        yield catalog.PREFERRED_IMBALANCE.sample(imbalanced if is_controller else 0)
        yield catalog.ELECTIONS.sample(self._controller.elections)
        yield catalog.UNCLEAN_ELECTIONS.sample(self._controller.unclean_elections)
