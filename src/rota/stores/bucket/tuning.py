"""The numbers by which a store on a bucket works. The defaults are for a service some milliseconds away."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ...domain.errors import Invalid

__all__ = ["Tuning"]

_LEAST_WINDOWS = 4


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """`window` is far below `retention`, so that a node that was asleep notices it before it writes.

    `retention` is also far above the time after which a service refuses an old request for its date (15 minutes at
    Amazon and Azure) or its token (an hour at Google). A node whose clocks stood still while it slept cannot know that
    it slept; the service refuses its requests."""

    poll_shortest: timedelta = timedelta(milliseconds=100)
    poll_longest: timedelta = timedelta(seconds=2)
    fresh_for: timedelta = timedelta(seconds=2)
    """A state that was current this long ago is still used. A commit finds out if it is not."""

    give_up_after: timedelta = timedelta(seconds=60)
    """A commit is tried this long while the service fails or other nodes win."""

    shortest_pause: timedelta = timedelta(milliseconds=1)
    longest_pause: timedelta = timedelta(seconds=2)

    window: timedelta = timedelta(minutes=5)
    """A node that has not seen the end of the log for this long asks for the newest snapshot."""

    retention: timedelta = timedelta(hours=2)
    """The log is kept this long after a snapshot has made it unnecessary."""

    snapshot_every: int = 256
    archive_after: timedelta = timedelta(minutes=10)
    archive_at_least: int = 1000
    archive_at_most: int = 4000
    archive_bytes: int = 4 * 2**20
    """A segment is written when its records have this much text, however few they are. It has no more, except for a
    single larger record."""

    archive_in_memory: int = 16 * 2**20
    """This many bytes of the segments that were read last stay in memory."""

    views: str = "on"
    """`on`, `off`, or `tasks` (also a view for each task that has ended)."""

    views_every: timedelta = timedelta(seconds=1)

    rebuild_every: timedelta = timedelta(days=1)
    """The janitor compares the views with the records once after a start, and then this often. It takes a LIST."""

    def __post_init__(self) -> None:
        if self.retention < _LEAST_WINDOWS * self.window or self.window <= timedelta(0):
            raise Invalid(
                "retention",
                f"{self.retention} is less than {_LEAST_WINDOWS} times the window of {self.window}, so that a node"
                " which slept could miss entries that were removed",
                "keep the log longer, or make the window shorter",
            )
