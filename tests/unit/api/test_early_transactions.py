"""A transaction that begins while the markers of the one before are being written: the broker waits for a moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.unit.eventual import deliver
from tests.unit.partition.rig import NOW_MS, Rig, batch, topic

from penstock.api.leader_hints import LeaderHints
from penstock.api.produce import ASK_AGAIN_MAX, ASK_AGAIN_MS, Produce
from penstock.api.txn_verification import PRODUCE_ADDS_FROM, TxnVerification
from penstock.metadata.image import MetadataImage
from penstock.model.deferred import Deferred, Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import ConcurrentTransactions, NotEnoughReplicas
from penstock.model.ids import CoordinatorEpoch
from penstock.model.timers import TICK_MS
from penstock.observe.counters import TopicTraffic
from penstock.quotas.client_quotas import ClientQuotas
from penstock.transactions.verifier import Question, Verified
from penstock.wire.produce import ProduceRequest
from penstock.wire.records import build_marker

PRODUCER = 5
PAUSE_MS = ASK_AGAIN_MS + 2 * int(TICK_MS)
EARLY = ConcurrentTransactions()


class Context:
    """The context of a request, and its connection."""

    client_id = user = "c"
    listener = "PLAINTEXT"

    def __init__(self, version: int) -> None:
        self.api_version = version
        self.now_ms = NOW_MS

    @property
    def connection(self) -> Context:
        return self

    def hold(self, pending: Deferred[Any]) -> Deferred[Any]:
        return pending

    def report(self, error: Exception) -> None:
        raise error


class Producing:
    """A broker whose transaction coordinator responds with these errors in turn, and then adds the partition."""

    def __init__(self, errors: Sequence[BrokerError]) -> None:
        self.rig = Rig(topic())
        self.replica = self.rig.replica()
        self.asked = 0
        self._errors = list(errors)
        self._produce: Any = Produce(
            replicas=self.rig.replicas,
            timers=self.rig.timers,
            quotas=ClientQuotas(11, 1_000),
            traffic=TopicTraffic(),
            verification=TxnVerification(verifier=self, enabled=lambda: True),
            turns=self.rig.turns,
            hints=LeaderHints(MetadataImage()),
        )

    def ask(self, question: Question) -> Eventual[Verified]:
        self.asked += 1
        return Verified({self.replica.tp: self._errors.pop(0)} if self._errors else {}, CoordinatorEpoch(0))

    def send(self, version: int = PRODUCE_ADDS_FROM) -> tuple[Any, list[Any]]:
        made = batch(b"x", producer_id=PRODUCER, producer_epoch=1, base_sequence=0, is_transactional=True)
        request = ProduceRequest("t", -1, 1_000, [("orders", None, [(0, memoryview(made))])])
        responses: list[Any] = []
        pending = self._produce.handle(Context(version), request)
        deliver(pending, responses)
        return pending, responses

    def end_the_one_before(self) -> None:
        marker = build_marker(
            commit=True, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        self.rig.append(self.replica, bytearray(marker), internal=True)


def code(responses: list[Any]) -> int:
    [response] = responses
    [[result]] = [results for _, _, results in response.topics]
    return int(result.error_code)


def test_a_transaction_waits_for_the_markers_of_the_one_before() -> None:
    producing = Producing([EARLY, EARLY])
    _, responses = producing.send()
    assert not responses

    producing.end_the_one_before()
    producing.rig.loop.pass_ms(2 * PAUSE_MS)

    assert code(responses) == 0
    assert producing.asked == 3
    assert producing.replica.producers.is_open(PRODUCER, 1)


def test_markers_that_take_long_are_the_clients_to_wait_for() -> None:
    producing = Producing([EARLY] * 20)
    _, responses = producing.send()

    producing.rig.loop.pass_ms(20 * PAUSE_MS)

    assert code(responses) == ConcurrentTransactions.code
    assert producing.asked == ASK_AGAIN_MAX + 1


def test_a_client_that_adds_its_partitions_itself_is_told_at_once() -> None:
    producing = Producing([EARLY])
    _, responses = producing.send(PRODUCE_ADDS_FROM - 1)

    assert code(responses) == NotEnoughReplicas.code
    assert producing.asked == 1
