"""Upkeep: the work that follows commits, in the background. It writes views, moves ended records to the archive, writes
snapshots and removes the old log.

Every part may fail or be cut short at any point; it is tried again later. Nobody waits for upkeep, so nobody would
notice that it fails. So a failure, whatever it is, is logged as a warning, once for each kind of error, and again when
the part works again.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from itertools import islice
from typing import Any

from ...domain.errors import Conflict, StoreError
from ..base import Proof, Work
from ..memory.finders import walk_rows
from ..memory.state import Row
from ..queries import FinishedTasks, OldEvents, OldRuns
from ..threads import Threads
from .archive.archive import first_rows, pack_segment
from .archive.lookups import SegmentCache
from .archive.segments import Segment, segment_key, summarize
from .commit import Committed
from .formats import SNAPSHOTS, Snapshot, SnapshotSegment, encode_snapshot, entry_key
from .log import Log
from .log_removal import LogRemoval
from .replica import MoveToArchive
from .service.proof import prove_rights
from .views import ViewWriter

logger = logging.getLogger("rota")


class UpkeepPart(StrEnum):
    """The parts of upkeep, each with the consequence of its failure."""

    VIEWS = "views are missing or old"
    ARCHIVE = "records that have ended stay in memory, and in each snapshot"
    SNAPSHOT = "the log grows, and nodes take longer to start"
    REMOVAL = "objects that nobody needs any more stay in the bucket"


class UpkeepFailures:
    """The failures of one bucket's upkeep that have been logged."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        self._logged: dict[UpkeepPart, set[type[Exception]]] = {}

    def failed(self, part: UpkeepPart, error: Exception) -> None:
        logged = self._logged.setdefault(part, set())
        if type(error) not in logged:
            logged.add(type(error))
            unexpected = None if isinstance(error, StoreError) else error
            sentence = "upkeep of %s: %s. Until it works, %s"
            logger.warning(sentence, self._bucket, error, part.value, exc_info=unexpected)

    def succeeded(self, part: UpkeepPart) -> None:
        if self._logged.pop(part, None):
            logger.info("upkeep of %s: %s works again", self._bucket, part.name.lower())


_TRIES_EVERY = 32
"""If the node that was to write a snapshot died, the node that commits this many entries later writes it."""

_MOST_ENTRIES = 2048

_LAST_UPKEEP = timedelta(seconds=10)
"""A store that closes spends at most this long on upkeep. Where every process makes one commit and ends, no other node
would do it."""


class Upkeep:
    """The upkeep of one open store."""

    def __init__(
        self,
        log: Log,
        segment_cache: SegmentCache,
        transact: Callable[[Work[bool]], Coroutine[Any, Any, bool]],
    ) -> None:
        self._log = log
        self._bucket = log.bucket
        self._replica = log.replica
        self._tuning = log.tuning
        self._now = log.time.now
        self._views = ViewWriter(log, segment_cache)
        self._failures = UpkeepFailures(log.bucket.name)
        self.log_removal = LogRemoval(log)
        self._transact = transact
        self._thread = Threads(1, "rota-upkeep")
        self._commits: deque[Committed] = deque()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = asyncio.Event()
        self._closing = False
        self._has_rest = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.log_removal.propose()
        self._task = asyncio.create_task(self._keep(), name="rota-upkeep")

    def committed(self, commit: Committed) -> None:
        """Called in the writer thread."""
        if self._views.enabled:
            self._views.note(commit)
        is_due = self._is_snapshot_due(commit.number)
        if self._loop is not None and (is_due or self._views.enabled):
            self._commits.append(commit)
            self._loop.call_soon_threadsafe(self._awake.set)

    async def close(self) -> None:
        """Bring the views up to date and do the rest that is due. The parts that take too long are left to other
        nodes."""
        self._closing = True
        self._awake.set()
        if self._task is not None:
            await self._task
        self._thread.close(wait=True)

    async def tidy(self) -> None:
        """Compare the views with the records."""
        if self._views.enabled:
            await self._try(UpkeepPart.VIEWS, self._views.compare)

    def log_length(self) -> Proof:
        """Whether snapshots are written. If not, the log is much longer than it should be."""
        with self._replica.lock:
            entries = self._replica.number - self._log.snapshot
            is_late = self._calls_for_snapshot(entries // 2, self._log.bytes_since_snapshot // 2)
        found = (
            f"{entries:,} entries {'since the last snapshot' if self._log.snapshot else 'and no snapshot'}"
        )
        if is_late:
            found += (
                f", where there should be one after about {self._tuning.snapshot_every:,}: no node writes any"
            )
        return Proof("log length", not is_late, found)

    def rights(self) -> Proof:
        """Whether this node may write and remove in all folders of upkeep. Other nodes ignore the objects written here,
        and remove them if they stay behind."""
        unique = uuid.uuid4().hex
        written = [f"{SNAPSHOTS}proof-{unique}", segment_key(self._now())]
        written += [f"{home}~proof-{unique}.json" for home in self._views.folders if home != "tenants/"]
        return prove_rights(self._bucket, written, removed=entry_key(0))

    async def _keep(self) -> None:
        while not self._closing:
            await self._awake.wait()
            if not self._closing:  # more commits may come, and each view is written once for all
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._tuning.views_every.total_seconds()):
                        await self._closed()
            self._awake.clear()
            await self._round()
        await self._round()  # for commits during the last one

    async def _closed(self) -> None:
        while not self._closing:
            self._awake.clear()
            await self._awake.wait()

    async def _round(self) -> None:
        commits = [self._commits.popleft() for _ in range(len(self._commits))]
        if self._views.enabled:
            await self._try(UpkeepPart.VIEWS, self._views.follow, commits)
        if any(self._is_snapshot_due(commit.number) for commit in commits):
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_UPKEEP.total_seconds() if self._closing else None):
                    await self._archive_and_snapshot()

    async def _archive_and_snapshot(self) -> None:
        """Archive, write a snapshot, and remove the log before it."""
        await self._archive_all()
        if await self._try(UpkeepPart.SNAPSHOT, self._snapshot):
            await self._try(UpkeepPart.REMOVAL, self.log_removal.remove)

    async def _try(self, part: UpkeepPart, function: Callable[..., bool], *arguments: Any) -> bool:
        """Run one part in the upkeep thread; whether it was done, as the function says. A failure is logged."""
        try:
            is_done = await self._thread.call(function, *arguments)
        except Exception as error:  # one round that fails is not to be the last
            self._failures.failed(part, error)
            return False
        if is_done:
            self._failures.succeeded(part)
        return is_done

    # Archive

    async def _archive_all(self) -> None:
        try:
            while await self.archive_once():
                self._failures.succeeded(UpkeepPart.ARCHIVE)
                if self._closing:
                    break
        except Conflict:  # a record has changed meanwhile
            pass
        except Exception as error:  # as in `_try`
            self._failures.failed(UpkeepPart.ARCHIVE, error)

    async def archive_once(self) -> bool:
        """Move records that ended some time ago to a segment, when there are enough; whether there were."""
        made = await self._thread.call(self._make_segment)
        if made is None:
            return False
        segment, rows = made
        work = MoveToArchive(segment, rows, self._tuning.retention / 2)
        try:
            return await self._transact(work)
        except Conflict:  # after any other error it may have been committed
            await self._thread.call(self._bucket.delete, [segment.key])
            raise

    def _make_segment(self) -> tuple[Segment, list[Row]] | None:
        before = self._now() - self._tuning.archive_after
        with self._replica.lock:
            ended = [
                row
                for query in (FinishedTasks(before=before), OldRuns(before=before), OldEvents(before=before))
                for row in islice(walk_rows(self._replica.live, query), self._tuning.archive_at_most)
            ]
        if not ended or not (self._has_rest or self._is_enough(ended)):
            return None
        rows = first_rows(ended, self._tuning.archive_bytes)
        self._has_rest = len(rows) < len(ended)  # then the rest follows, however few they are
        key = segment_key(self._now())
        self._bucket.put(key, pack_segment(rows))
        return summarize(key, (row.record for row in rows)), rows

    def _is_enough(self, rows: list[Row]) -> bool:
        size = sum(len(row.body) for row in rows)
        return len(rows) >= self._tuning.archive_at_least or size >= self._tuning.archive_bytes

    # Snapshots

    def _is_snapshot_due(self, number: int) -> bool:
        """Every `snapshot_every` entries, unless they are small compared with the snapshot that would be written."""
        if number % min(_TRIES_EVERY, self._tuning.snapshot_every):
            return False
        return self._calls_for_snapshot(number - self._log.snapshot, self._log.bytes_since_snapshot)

    def _calls_for_snapshot(self, entries: int, size: int) -> bool:
        if entries < self._tuning.snapshot_every:
            return False
        return entries >= _MOST_ENTRIES or 4 * size >= self._log.snapshot_bytes

    def _snapshot(self) -> bool:
        with self._replica.lock:
            number = self._replica.number
            rows = self._replica.live.all_rows()
            held = list(self._replica.archive.segments.values())
            snapshot = Snapshot(
                number=number,
                at=self._now(),
                node=self._log.node,
                floor=self._log.floor,
                snapshots=dict(self._log.snapshots),
                dropped=sorted(self._replica.archive.dropped),
                archived=[
                    SnapshotSegment(segment=each.segment, obsolete=sorted(each.obsolete)) for each in held
                ],
            )
        key, body = encode_snapshot(snapshot, rows)
        self._bucket.put(key, body)
        with self._replica.lock:
            self._log.learn(number, 0)
            self._log.snapshot_bytes = len(body)
        return True
