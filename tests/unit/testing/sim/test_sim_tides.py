"""What the judge of a simulated tide excuses."""

from penstock.testing.sim.tides import LastSends, Tide


def test_a_producer_may_be_forgotten_where_records_were_deleted_since_its_last_batch() -> None:
    tide = Tide()
    sends = LastSends(tide)
    sends.sent(2, sends.seen_now(2))
    assert not sends.may_be_forgotten(2)

    tide.discards[2] += 1

    assert sends.may_be_forgotten(2)
    assert not sends.may_be_forgotten(1)
    sends.sent(2, sends.seen_now(2))
    assert not sends.may_be_forgotten(2)


def test_a_batch_that_was_sent_before_a_deletion_and_acknowledged_after_it_may_be_forgotten() -> None:
    tide = Tide()
    sends = LastSends(tide)
    seen = sends.seen_now(2)
    tide.discards[2] += 1
    sends.sent(2, seen)

    assert sends.may_be_forgotten(2)
