"""The numbers by which a store on a bucket works. The defaults are for a service some milliseconds away."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ...domain.errors import Invalid

__all__ = ["Tuning"]

_LEAST_WINDOWS = 4


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """`window` is far below `retention`: it is what keeps a node that was asleep from going on as if it were not.

    `retention` is also far above the time after which a service refuses a request for its date (15 minutes at Amazon
    and Azure) or its token (an hour at Google): a node whose clocks stood still with it, and who cannot know that it
    slept, is refused by the service."""

    poll_shortest: timedelta = timedelta(milliseconds=100)
    poll_longest: timedelta = timedelta(seconds=2)
    fresh: timedelta = timedelta(seconds=2)
    """So long after it was seen to be current, a state is taken to be so still; the commit finds out."""

    patience: timedelta = timedelta(seconds=60)
    """So long a commit is tried while the service fails or others win."""

    shortest_pause: timedelta = timedelta(milliseconds=1)
    longest_pause: timedelta = timedelta(seconds=2)

    window: timedelta = timedelta(minutes=5)
    """A node that has not seen the end of the log for so long starts anew from a snapshot."""

    retention: timedelta = timedelta(hours=2)
    """So long the log is kept after a snapshot has made it unnecessary."""

    snapshot_every: int = 256
    archive_after: timedelta = timedelta(minutes=10)
    archive_at_least: int = 1000
    archive_at_most: int = 4000
    archive_bytes: int = 4 * 2**20
    """So much text of records makes a segment, however few they are; no more go into one, but for a single record."""

    archive_in_memory: int = 16 * 2**20
    """So many bytes of text of its segments stay in memory after they were asked something."""

    views: str = "on"
    """`on`, `off`, or `tasks`: also one for each task that has ended."""

    views_every: timedelta = timedelta(seconds=1)

    rebuild_every: timedelta = timedelta(days=1)
    """So often the janitor compares the views with the records, besides once after a start: that takes a LIST."""

    def __post_init__(self) -> None:
        if self.retention < _LEAST_WINDOWS * self.window or self.window <= timedelta(0):
            raise Invalid(
                "retention",
                f"{self.retention} is less than {_LEAST_WINDOWS} times the window of {self.window}, so that a node"
                " which slept could miss entries that were removed",
                "keep the log longer, or make the window shorter",
            )
