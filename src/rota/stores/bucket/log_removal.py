"""Removing the old log, old snapshots and empty segments of the archive, when no node can need them any more.

1. Entries before a snapshot that all nodes could have known for the whole of `retention` may go. This is *proposed*:
   our next entry of the log says so (its `floor`). A process that makes one commit and ends proposes when it starts.
2. Entries below an announced floor are *removed*. So a node that is up to date knows all entries that can be gone, and
   `log` can tell the end of the log from a missing entry.
3. Once after a start everything is listed. This finds objects that a node left behind when it died between the two, or
   that a late request wrote again. They did no harm: no node reads below the floor.

In a folder a process that is killed leaves files that are half written. Those that are older than `retention` are
removed, too, once after a start and then as often.
"""

from __future__ import annotations

from datetime import datetime

from ..codec import micros
from .archive.segments import SEGMENTS, made_at
from .formats import SNAPSHOTS, entry_key, number_of, numbered, snapshot_keys
from .log import Log


class LogRemoval:
    """Runs in the upkeep thread, after a snapshot was written."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._bucket = log.bucket
        self._replica = log.replica
        self._removed: int | None = None
        self._dropped: dict[str, datetime] = {}
        self._unfinished_before: datetime | None = None

    def remove(self) -> bool:
        """Remove what may go, and propose the next floor; True when it is done."""
        self._log.time.refresh()  # a clock that was set must not make objects look old
        before = self._log.time.now() - self._log.tuning.retention
        with self._replica.lock:
            snapshots = dict(self._log.snapshots)
            floor = self._log.floor
        self._remove_up_to(floor, [number for number in snapshots if number < floor], before)
        self._remove_dropped(before)
        self._remove_unfinished(before)
        self.propose()
        return True

    def propose(self) -> None:
        """Propose the next floor. This makes no request: the clock has just been refreshed."""
        before = self._log.time.now() - self._log.tuning.retention
        with self._replica.lock:
            known = [number for number, since in self._log.snapshots.items() if since <= before]
            self._log.next_floor = max(self._log.next_floor, *known, 0)

    def _remove_up_to(self, floor: int, old: list[int], before: datetime) -> None:
        if self._removed is None:
            self._remove_left_over(floor, before)
        else:
            self._bucket.delete(entry_key(number) for number in range(self._removed + 1, floor + 1))
        self._bucket.delete(key for number in old for key in snapshot_keys(number))
        self._removed = floor
        with self._replica.lock:
            for number in old:
                self._log.snapshots.pop(number, None)

    def _remove_left_over(self, floor: int, before: datetime) -> None:
        logged = [key for key in numbered(self._bucket.list("log/")) if number_of(key) <= floor]
        taken = [key for key in numbered(self._bucket.list(SNAPSHOTS)) if number_of(key) < floor]
        segments = [key for key in self._bucket.list(SEGMENTS) if made_at(key) < micros(before)]
        self._log.catch_up()  # a segment is written before the entry that names it
        with self._replica.lock:
            held = self._replica.archive.segments.keys() | self._replica.archive.dropped
            unknown = [key for key in segments if key not in held]
        self._bucket.delete([*logged, *taken, *unknown])

    def _remove_unfinished(self, before: datetime) -> None:
        last = self._unfinished_before
        if last is None or before - last >= self._log.tuning.retention:
            self._bucket.remove_unfinished(before)
            self._unfinished_before = before

    def _remove_dropped(self, before: datetime) -> None:
        """Remove segments that have been empty for `retention`."""
        with self._replica.lock:
            dropped = set(self._replica.archive.dropped)
        self._dropped = {key: self._dropped.get(key, self._log.time.now()) for key in dropped}
        old = [key for key, since in self._dropped.items() if since <= before]
        self._bucket.delete(old)
        with self._replica.lock:
            self._replica.archive.dropped.difference_update(old)
