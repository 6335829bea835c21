"""Rules of following a metadata store: which reports an image applies, and when the whole tree must be read.

The image never goes back: each transaction has a number, and a report that is not newer than the image changes nothing.
"""

from penstock.metadata.nodes import Changes, Gap, Snapshot

HELD_MAX = 10_000
"""Reports kept while the tree is read; more of them count as a gap."""


class Following:
    """How far an image has followed its store."""

    __slots__ = ("_held", "gaps", "number", "stale")

    def __init__(self) -> None:
        self.number = 0
        """The last transaction in the image."""
        self.stale = True
        """Whether the tree must be read: nothing was read yet, or changes were missed."""
        self.gaps = 0
        """Reading must have begun after the last of these to end `stale`."""
        self._held: list[Changes] = []

    def arrived(self, report: Changes | Gap) -> Changes | None:
        """Take a report of a watch; gives the changes to apply now, if any."""
        if isinstance(report, Gap):
            self._miss()
            return None
        if self.stale:
            if len(self._held) >= HELD_MAX:
                self._miss()
            self._held.append(report)
            return None
        return self._newer(report)

    def _miss(self) -> None:
        self.gaps += 1
        self.stale = True
        self._held.clear()

    def is_newer(self, snapshot: Snapshot) -> bool:
        """Whether a tree can replace the image; one from a server that is behind cannot, and is read again."""
        return snapshot.number >= self.number

    def read(self, snapshot: Snapshot, gaps_before: int) -> list[Changes]:
        """Note that the image is now as the tree was; gives the reports held meanwhile, to be taken as they arrived.

        `gaps_before` is what `gaps` was when reading began: after a further gap the tree must be read once more.
        """
        assert snapshot.number >= self.number, f"the image would go back from {self.number} to {snapshot.number}"
        self.number = snapshot.number
        if self.gaps != gaps_before:
            return []
        self.stale = False
        held, self._held = self._held, []
        return held

    def _newer(self, report: Changes) -> Changes | None:
        if report.number <= self.number:
            return None
        self.number = report.number
        return report
