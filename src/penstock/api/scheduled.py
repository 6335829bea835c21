"""DeliverScheduled (20550), version 0, which Kafka does not have: batches that schedules deliver, between brokers.

ApiVersions shows it to brokers only.
"""

from penstock.api.registry import Api, RequestContext
from penstock.model.deferred import Eventual
from penstock.schedules.service import Schedules
from penstock.wire import scheduled as wire


class Scheduled:
    """Passes requests of other brokers to the partitions on this one."""

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(
                key=wire.API_KEY,
                versions=range(1),
                handle=self.handle,
                decode=wire.decode_request,
                encode=wire.encode_response,
                borrows_frame=True,
                internal=True,
            ),
        )

    def handle(self, context: RequestContext, request: wire.Request) -> Eventual[wire.Response]:
        return self._schedules.serve(request)
