"""Memory for large frames: bounded in total, and one frame can always be finished."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.net.frame_memory import FrameMemory

BYTES_MAX = 100
FRAME_BYTES_MAX = 60


class Peer:
    """A connection whose frame arrives byte by byte."""

    def __init__(self, memory: FrameMemory) -> None:
        self._memory = memory
        self._wanted = 0
        self.has = 0
        self.missing = 0
        """Bytes of the frame that are not here yet."""
        self._arrived = 0
        self.in_use = False

    @property
    def waits(self) -> bool:
        return self._wanted > 0

    def memory_granted(self) -> None:
        assert self.waits, "granted without having asked"
        self.has += self._wanted
        self._wanted = 0

    def drop_memory(self) -> bool:
        assert not self.missing, "a frame was dropped"
        if not self.in_use:
            self.has = 0
        return not self.in_use

    def begin(self, size: int) -> None:
        if self.has:
            self._memory.reuse(self)
        self.missing = size
        self._arrived = 0

    def receive(self, count: int) -> None:
        if not self.waits:
            taken = min(count, self.missing)
            self.missing -= taken
            self._arrived += taken
            # A buffer that was kept has room for so much already.
            more = self._arrived - self.has
            if more > 0:
                if self._memory.take(self, more):
                    self.has += more
                else:
                    self._wanted = more

    def end(self) -> None:
        self._memory.keep(self)

    def leave(self) -> None:
        self._memory.release(self)
        self.has = self._wanted = self.missing = 0


@given(st.data())
def test_the_bound_holds_and_one_connection_can_always_continue(data: st.DataObject) -> None:
    memory = FrameMemory(BYTES_MAX)
    peers = [Peer(memory) for _ in range(5)]
    busy: dict[Peer, None] = {}
    for _ in range(data.draw(st.integers(1, 60))):
        peer = data.draw(st.sampled_from(peers))
        if peer not in busy:
            busy[peer] = None
            peer.begin(data.draw(st.integers(1, FRAME_BYTES_MAX)))
        elif data.draw(st.integers(0, 9)) == 0:
            del busy[peer]
            peer.leave()
        elif peer.missing and not peer.waits:
            peer.receive(data.draw(st.integers(1, FRAME_BYTES_MAX)))
        elif not peer.waits:
            del busy[peer]
            peer.end()

        assert memory.used == sum(each.has for each in peers)
        assert memory.used <= BYTES_MAX + FRAME_BYTES_MAX
        assert memory.waiting == sum(each.waits for each in peers)
        assert not busy or not all(each.waits for each in busy), "every connection waits"


def test_memory_is_granted_in_the_order_of_waiting() -> None:
    memory = FrameMemory(BYTES_MAX)
    first, second, third = (Peer(memory) for _ in range(3))
    for peer, size in ((first, 100), (second, 50), (third, 1)):
        peer.begin(size)
        peer.receive(size)
    assert [peer.waits for peer in (first, second, third)] == [False, True, True]

    first.leave()

    assert (second.has, third.has) == (50, 1)


def test_a_buffer_that_was_kept_makes_room_for_a_frame() -> None:
    memory = FrameMemory(BYTES_MAX)
    idle, busy = Peer(memory), Peer(memory)
    idle.begin(80)
    idle.receive(80)
    idle.end()
    assert memory.used == 80

    busy.begin(60)
    busy.receive(60)

    assert (idle.has, busy.has, memory.used) == (0, 60, 60)


def test_a_kept_buffer_that_is_in_use_stays() -> None:
    memory = FrameMemory(BYTES_MAX)
    idle, busy = Peer(memory), Peer(memory)
    idle.begin(80)
    idle.receive(80)
    idle.end()
    idle.in_use = True

    busy.begin(60)
    busy.receive(60)

    # No other frame is arriving, so it may continue.
    assert (idle.has, busy.has) == (80, 60)
