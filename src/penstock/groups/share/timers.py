"""The timers of share groups."""

from typing import NamedTuple


class ShareSessionEnd(NamedTuple):
    """The session of a member ends."""

    group: str
    member_id: str
