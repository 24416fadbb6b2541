"""The numbers by which a store on a bucket works. The defaults are for a service some milliseconds away."""

from __future__ import annotations

from datetime import timedelta

import msgspec

__all__ = ["Tuning"]


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """`window` must be far below `retention`: it is what keeps a node that was asleep from going on as if it
    were not."""

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

    retention: timedelta = timedelta(hours=1)
    """So long the log is kept after a snapshot has made it unnecessary."""

    snapshot_every: int = 256
    archive_after: timedelta = timedelta(minutes=10)
    archive_at_least: int = 1000
    archive_at_most: int = 4000
    views: str = "on"
    """`on`, `off`, or `tasks`: also one for each task that has ended."""

    views_every: timedelta = timedelta(seconds=1)
