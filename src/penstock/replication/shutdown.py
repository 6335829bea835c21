"""Controlled shutdown: a broker that stops lets others lead first, and goes on serving meanwhile."""

import asyncio
from collections.abc import Iterator

from penstock.metadata.image import MetadataImage
from penstock.model.clock import Clock
from penstock.model.errors import BrokerError
from penstock.model.ids import BrokerId, TopicPartition
from penstock.observe.log import Logger
from penstock.replication.controller_client import ControllerClient
from penstock.replication.fetchers import Fetchers

SHUTDOWN_S_MAX = 10.0
"""How long a stop waits for the controller and for the leaderships to move."""
RETRY_S = 0.05
LINGER_S = 0.2
"""How long a broker that led partitions goes on serving, so that its clients hear from it who leads now."""


class ControlledShutdown:
    """Moves the leaderships of this broker away."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        client: ControllerClient,
        fetchers: Fetchers,
        image: MetadataImage,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._broker_id = broker_id
        self._client = client
        self._fetchers = fetchers
        self._image = image
        self._clock = clock
        self._log = log

    async def run(self) -> None:
        """Return when others lead what they can lead, or the time is up. A broker alone has nothing to move."""
        began_s = self._clock.monotonic()
        if not self._image.is_live(self._broker_id) or len(self._image.live_brokers()) < 2:
            return
        led = sum(1 for _ in self._led())
        self._fetchers.stopping()
        try:
            async with asyncio.timeout(SHUTDOWN_S_MAX):
                await self._leave()
                if led:
                    await asyncio.sleep(LINGER_S)
        except TimeoutError:
            self._log.warning("controlled_shutdown_timed_out", led=sum(1 for _ in self._led()), after_s=SHUTDOWN_S_MAX)
        else:
            kept = sum(1 for _ in self._led())
            self._log.info(
                "controlled_shutdown", moved=led - kept, kept=kept, took_s=round(self._clock.monotonic() - began_s, 3)
            )

    async def _leave(self) -> None:
        """Let the controller move what others can lead; this broker's metadata has it when this returns."""
        while True:
            try:
                if await self._client.shut_down(timeout_ms=SHUTDOWN_S_MAX * 1000):
                    return
            except BrokerError as error:
                self._log.info("controlled_shutdown_refused", reason=error.name)
            await asyncio.sleep(RETRY_S)

    def _led(self) -> Iterator[TopicPartition]:
        """Partitions that this broker leads and another in-sync replica could."""
        for topic in self._image.topics.values():
            for state in topic.partitions:
                if state.leader == self._broker_id and any(
                    member != self._broker_id and self._image.is_live(member) for member in state.isr
                ):
                    yield TopicPartition(topic.name, state.index)
