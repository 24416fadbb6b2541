"""What happens after commits, in the background and at leisure: views, archive, snapshots, and the removal of
what no node can need any more. All of it may fail or be cut short at any point: it is done again later."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any

import uuid_utils

from ..domain.errors import StoreError
from ..domain.model import Record, Run, Schedule
from .base import RECORD_TYPES, FinishedTasks, OldEvents, OldRuns, Query, Work
from .codec import micros
from .finders import walk
from .objects_archive import pack_segment
from .objects_bucket import Bucket
from .objects_commit import Committed
from .objects_entry import entry_key
from .objects_log import Log
from .objects_replica import Replica
from .objects_segment import Segment, summarize
from .objects_snapshot import Archived, Snapshot, encode_snapshot, snapshot_keys
from .objects_tuning import Tuning
from .objects_views import View, views_of
from .state import Row

__all__ = ["Upkeep"]

_TRIES_EVERY = 32
"""If the node that was to write a snapshot died, the one that commits so many entries later tries."""

_MOST_ENTRIES = 2048


class Upkeep:
    """The housekeeping of one open store."""

    def __init__(
        self,
        bucket: Bucket,
        replica: Replica,
        log: Log,
        now: Callable[[], datetime],
        tuning: Tuning,
        transact: Callable[[Work[bool]], Coroutine[Any, Any, bool]],
        node: str,
    ) -> None:
        self._bucket = bucket
        self._replica = replica
        self._log = log
        self._now = now
        self._tuning = tuning
        self._transact = transact
        self._node = node
        self._keeper = ThreadPoolExecutor(1, thread_name_prefix="rota-keeper")
        self._commits: deque[Committed] = deque()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = asyncio.Event()
        self._closing = False
        self._dropped: dict[str, datetime] = {}

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._keep(), name="rota-upkeep")

    def committed(self, commit: Committed) -> None:
        """Called in the writer thread."""
        is_due = self._is_snapshot_due(commit.number)
        if self._loop is not None and (is_due or self._tuning.views != "off"):
            self._commits.append(commit)
            self._loop.call_soon_threadsafe(self._awake.set)

    async def close(self) -> None:
        """The views are brought up to date; the rest can wait for others."""
        self._closing = True
        self._awake.set()
        if self._task is not None:
            await self._task
        self._keeper.shutdown()

    async def tidy(self) -> None:
        """Write the views that are missing or older than their schedule; remove those that are left over."""
        if self._tuning.views != "off":
            with suppress(StoreError):  # the janitor has more important things to do
                await self._in_thread(self._rebuild_views)

    async def _keep(self) -> None:
        while not self._closing:
            await self._awake.wait()
            if not self._closing:  # meanwhile more may come, and each view is written once
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._tuning.views_every.total_seconds()):
                        await self._closed()
            self._awake.clear()
            await self._round()

    async def _closed(self) -> None:
        while not self._closing:
            self._awake.clear()
            await self._awake.wait()

    async def _round(self) -> None:
        commits = [self._commits.popleft() for _ in range(len(self._commits))]
        with suppress(StoreError):  # all of it is done again later
            await self._in_thread(self._write_views, commits)
        if not self._closing and any(self._is_snapshot_due(commit.number) for commit in commits):
            with suppress(StoreError):
                while await self._archive():
                    continue
            with suppress(StoreError):
                await self._in_thread(self._snapshot)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._keeper, function, *arguments)

    # Views

    def _write_views(self, commits: list[Committed]) -> None:
        views: dict[str, bytes | None] = {}
        with self._replica.lock:
            for commit in commits:
                for row in commit.puts:
                    views.update(self._views(row.record, gone=False))
                for record in commit.deletes:
                    views.update(self._views(record, gone=True))
        self._put_views(views)

    def _views(self, record: Record, *, gone: bool) -> list[View]:
        """From the state as it is now: a later commit may have changed the record again."""
        if self._tuning.views == "off":
            return []
        row = None if gone else self._replica.live.row(type(record), record.id)
        record = record if row is None else row.record
        schedule = None
        if isinstance(record, Run):
            owner = self._replica.live.row(Schedule, record.schedule_id)
            schedule = owner.record if owner is not None and isinstance(owner.record, Schedule) else None
        return list(views_of(record, schedule, gone=gone, tasks=self._tuning.views == "tasks"))

    def _put_views(self, views: dict[str, bytes | None]) -> None:
        for key, text in views.items():
            if text is not None:
                self._bucket.put(key, text)
        self._bucket.delete(key for key, text in views.items() if text is None)

    def _rebuild_views(self) -> None:
        with self._replica.lock:
            rows = self._replica.live.rows(Schedule)
            schedules = [row.record for row in rows if isinstance(row.record, Schedule)]
        written = {}
        for home in {_home_of(schedule) for schedule in schedules} | {"schedules/"}:
            written.update(self._bucket.names(home))
        views: dict[str, bytes | None] = {}
        expected: set[str] = set()
        for schedule in schedules:
            of_it = list(views_of(schedule, None, gone=False, tasks=False))
            expected.update(key for key, text in of_it if text is not None)
            modified = written.get(of_it[0][0])
            if schedule.deleted_at is None and (modified is None or modified < schedule.updated_at):
                views.update(of_it)
        views.update({key: None for key in written if key not in expected})
        self._put_views(views)

    # Archive

    async def _archive(self) -> bool:
        """Move what ended some time ago to a segment, when there is enough of it; whether there was."""
        made = await self._in_thread(self._make_segment)
        if made is None:
            return False
        segment, rows = made

        async def work(tx: Any) -> bool:
            tx.move(segment, rows)
            return True

        work.goes_last = True  # type: ignore[attr-defined]  # behind works of its group that change a record
        try:
            return await self._transact(work)
        except StoreError:
            await self._in_thread(self._discard, segment.key)
            raise

    def _make_segment(self) -> tuple[Segment, list[Row]] | None:
        before = self._now() - self._tuning.archive_after
        with self._replica.lock:
            rows = [
                row
                for query in (FinishedTasks(before=before), OldRuns(before=before), OldEvents(before=before))
                for row in self._ended(query)
            ]
        if len(rows) < self._tuning.archive_at_least:
            return None
        key = f"archive/{micros(self._now()):016}-{uuid_utils.uuid7()}.json.gz"
        self._bucket.put(key, pack_segment(rows))
        return summarize(key, (row.record for row in rows)), rows

    def _ended(self, query: Query) -> list[Row]:
        live = self._replica.live
        found = [live.row(type(record), record.id) for record in walk(live, query)]
        return [row for row in found if row is not None][: self._tuning.archive_at_most]

    def _discard(self, key: str) -> None:
        """A segment that was not committed, if that is certain."""
        self._log.catch_up()
        if key not in self._replica.archive.segments:
            self._bucket.delete([key])

    # Snapshots

    def _is_snapshot_due(self, number: int) -> bool:
        """Every so many entries, unless they are little beside the snapshot that would be written."""
        entries = number - self._log.snapshot
        if number % min(_TRIES_EVERY, self._tuning.snapshot_every) or entries < self._tuning.snapshot_every:
            return False
        return entries >= _MOST_ENTRIES or 4 * self._log.bytes_since_snapshot >= self._log.snapshot_bytes

    def _snapshot(self) -> None:
        with self._replica.lock:
            number = self._replica.number
            rows = [row for each in RECORD_TYPES for row in self._replica.live.rows(each)]
            held = list(self._replica.archive.segments.values())
            snapshot = Snapshot(
                number=number,
                at=self._now(),
                node=self._node,
                floor=self._log.floor,
                snapshots=dict(self._log.snapshots),
                dropped=sorted(self._replica.archive.dropped),
                archived=[Archived(segment=each.segment, dead=sorted(each.dead)) for each in held],
            )
        key, body = encode_snapshot(snapshot, rows)
        self._bucket.put(key, body)
        with self._replica.lock:
            self._log.learn(number, 0)
            self._log.snapshot_bytes = len(body)
        self._remove_old()

    def _remove_old(self) -> None:
        """What lies before a snapshot that everybody could have known for the whole of `retention`."""
        before = self._now() - self._tuning.retention
        with self._replica.lock:
            snapshots = dict(self._log.snapshots)
        last = max((number for number, since in snapshots.items() if since <= before), default=0)
        self._bucket.delete(entry_key(number) for number in range(self._log.floor + 1, last + 1))
        old = [number for number in snapshots if number < last]
        self._bucket.delete(key for number in old for key in snapshot_keys(number))
        self._remove_dropped(before)
        with self._replica.lock:
            self._log.learn(0, last)
            for number in old:
                self._log.snapshots.pop(number, None)

    def _remove_dropped(self, before: datetime) -> None:
        """Segments of which nothing is left, when that has been so for long enough."""
        dropped = self._replica.archive.dropped
        self._dropped = {key: self._dropped.get(key, self._now()) for key in set(dropped)}
        old = [key for key, since in self._dropped.items() if since <= before]
        self._bucket.delete(old)
        with self._replica.lock:
            dropped.difference_update(old)


def _home_of(schedule: Schedule) -> str:
    key = next(iter(views_of(schedule, None, gone=False, tasks=False)))[0]
    return key[: key.rindex("/") + 1]
