"""Share groups: one story per behaviour, run with every client that has share consumers."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.clients import abilities as can
from protocol.clients.library import with_every_client
from protocol.group_members import fill, numbered
from protocol.share_members import QUICK_SHARES, share_group

BROKER_SETTINGS = QUICK_SHARES
pytestmark = pytest.mark.xdist_group("queues")


@with_every_client(can.SharesQueues)
def test_what_became_of_a_record_decides_whether_it_is_delivered_again(
    client: Any, broker: Any, topic: str, group: str
) -> None:
    share_group(broker, group)
    fill(broker, topic, numbered(3))

    assert client.read_shared(group, topic, 3, "release") == dict.fromkeys(numbered(3), 1)
    assert client.read_shared(group, topic, 3, "accept") == dict.fromkeys(numbered(3), 2)
    fill(broker, topic, numbered(2, start=3))
    assert client.read_shared(group, topic, 2, "reject") == dict.fromkeys(numbered(2, start=3), 1)
    fill(broker, topic, numbered(1, start=5))
    assert client.read_shared(group, topic, 1, "accept") == dict.fromkeys(numbered(1, start=5), 1)
