"""Keeping the views as the records are: after commits those that changed, now and then all of them.

A node writes the views of its own commits. If it dies before that, or somebody deletes a view, the janitor's next
comparison puts it right: it lists what is there (the only LIST of a running node, so it is made once after a start,
then once a day, and after a failure) and writes what is missing or older than its record. What belongs to no record
is removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from ..domain.errors import StoreError
from ..domain.model import Record, Run, Schedule, Task
from .objects_bucket import Bucket, Written
from .objects_clock import Mark, Stopwatch
from .objects_commit import Committed
from .objects_replica import Replica
from .objects_tuning import Tuning
from .objects_views import HOMES, View, views_of

__all__ = ["ViewKeeper"]

_AT_ONCE = 8
_SAME_SECOND = timedelta(seconds=1)
"""A service may say in whole seconds when an object was written."""


class ViewKeeper:
    """Runs in the store's housekeeping thread."""

    def __init__(self, bucket: Bucket, replica: Replica, watch: Stopwatch, tuning: Tuning) -> None:
        self._bucket = bucket
        self._replica = replica
        self._watch = watch
        self._tuning = tuning
        self._compared_at: Mark | None = None
        self.enabled = tuning.views != "off"

    def follow(self, commits: list[Committed]) -> None:
        """Write the views of what these commits changed."""
        changed = {(type(row.record), row.record.id): row.record for each in commits for row in each.puts}
        gone = {(type(record), record.id): record for each in commits for record in each.deletes}
        records = [*(changed | gone).values()]
        try:
            for start in range(0, len(records), _AT_ONCE):  # each as it is when its turn comes
                some = records[start : start + _AT_ONCE]
                with self._replica.lock:
                    views = [view for record in some for view in self._now(record)]
                self._put(dict(views))
        except StoreError:
            self._compared_at = None  # the next comparison makes up for it
            raise

    def compare(self) -> None:
        """Write the views that are missing or old, remove those that are left over; if it is time."""
        began = self._watch.mark()
        if self._compared_at is None or self._watch.since(self._compared_at) >= self._tuning.rebuild_every:
            written = {key: about for home in HOMES for key, about in self._bucket.written(home)}
            for views in self._differences(written):
                self._put(views)
            self._put({key: None for key in written if key.endswith(".json")})
            self._compared_at = began

    def _differences(self, written: dict[str, Written]) -> Iterator[dict[str, bytes | None]]:
        """What is to be written or removed. What is as it should be is taken out of `written`."""
        with self._replica.lock:
            schedules = {
                row.record.id: row.record
                for row in self._replica.live.rows(Schedule)
                if isinstance(row.record, Schedule)
            }
        for records in self._records():
            views: dict[str, bytes | None] = {}
            for record in records:
                schedule = schedules.get(record.schedule_id) if isinstance(record, Run) else None
                for key, text in views_of(record, schedule, gone=False, tasks=self._of_tasks):
                    if text is not None and not _is_current(written.pop(key, None), record, text):
                        views[key] = text
            yield views

    def _records(self) -> Iterator[list[Record]]:
        """Everything that has a view: what is live, and what is in the archive."""
        for each in (Schedule, Run, Task) if self._of_tasks else (Schedule, Run):
            with self._replica.lock:
                rows = self._replica.live.rows(each)
                segments = list(self._replica.archive.segments)
            yield [row.record for row in rows]
            for key in segments:
                with self._replica.lock:
                    rows = self._replica.archive.in_segment(key, each)
                yield [row.record for row in rows]

    @property
    def _of_tasks(self) -> bool:
        return self._tuning.views == "tasks"

    def _now(self, record: Record) -> list[View]:
        """From the state as it is now: a later commit may have changed the record again, or moved it."""
        row = self._replica.row(type(record), record.id)
        schedule = None
        if isinstance(record, Run):
            owner = self._replica.live.row(Schedule, record.schedule_id)
            schedule = owner.record if owner is not None and isinstance(owner.record, Schedule) else None
        now = record if row is None else row.record
        return list(views_of(now, schedule, gone=row is None, tasks=self._of_tasks))

    def _put(self, views: Mapping[str, bytes | None]) -> None:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rota-views") as writers:
            texts = ((key, text) for key, text in views.items() if text is not None)
            for _ in writers.map(lambda view: self._bucket.put(*view), texts):
                pass
        self._bucket.delete(key for key, text in views.items() if text is None)


def _is_current(written: Written | None, record: Record, text: bytes) -> bool:
    if written is None or written.size != len(text):
        return False
    return written.at + _SAME_SECOND > _changed_at(record)


def _changed_at(record: Record) -> datetime:
    if isinstance(record, Run):
        return record.completed_at or record.started_at or record.scheduled_at
    if isinstance(record, Schedule | Task):
        return record.updated_at
    raise TypeError(type(record).__name__)
