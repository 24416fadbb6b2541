"""The store on a bucket: S3, Google, Azure, a folder, memory. It needs no server and no database.

Every node holds the whole live state in memory (`replica`) and follows a log in the bucket (`log`). A commit is one
conditional write of the next entry of the log. The entry has the changes of all works of a group. A node that loses the
race for an entry reads the winner's entry and runs its works again (`commit`).

Snapshots bound how much of the log a node reads at its start (`upkeep`). Records that have ended leave memory for the
archive (`archive`). People and scripts read the views (`views`). The time is the service's (`service/clock`).

All requests are made in threads: one thread commits, four read and poll, eight read the archive, four carry the
contents of artifacts, one does the upkeep.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import uuid_utils

from ...domain.model import Record
from ..base import PLAIN_COMMIT, Clock, CommitOptions, Proof, ReadSoFar, RecordTypes, StoreOfParts, Work
from ..memory.state import by_table
from ..threads import Threads
from ..waiting import Waiters
from ..works import Groups, drive
from .archive.lookups import ArchiveReads, SegmentCache
from .commit import Committer
from .contents import BucketContents
from .log import Log
from .replica import BucketTx, Replica
from .service.address import BucketAddress
from .service.bucket import Bucket, Requests
from .service.clock import Moment, ServiceClock
from .service.proof import prove
from .tuning import LogPoller, Tuning
from .upkeep import Upkeep

T = TypeVar("T")
HEARTBEAT = timedelta(minutes=5)
"""A heartbeat is a write, which costs money, and one that every node reads."""


class BucketStore(StoreOfParts["OpenBucket"]):
    """Everything under one prefix of a bucket."""

    def __init__(self, requests: Requests, clock: Clock, tuning: Tuning | None = None) -> None:
        super().__init__()
        self._bucket = Bucket(requests)
        self._clock = clock
        self._tuning = tuning or Tuning()

    @classmethod
    def from_url(cls, url: str, clock: Clock) -> BucketStore:
        address = BucketAddress.parse(url)
        return cls(address.requests(), clock, Tuning(views=address.views))

    @property
    def url(self) -> str:
        return self._bucket.name

    @property
    def bucket(self) -> Bucket:
        return self._bucket

    def new_parts(self) -> OpenBucket:
        return OpenBucket(self._bucket, self._clock, self._tuning)

    async def migrate(self) -> Sequence[str]:
        """Begin a store where there is none. There is no schema."""
        if not self.is_open:
            await self.open()
            await self.close()
        return ()

    async def now(self) -> datetime:
        return self.opened.time.now()

    async def transact(self, work: Work[T], /, options: CommitOptions = PLAIN_COMMIT) -> T:
        opened = self.opened
        return await opened.archive_reads.run(work, lambda each: opened.groups.run(each, options))

    async def read(self, work: Work[T], /) -> T:
        return await self.opened.read(work)

    async def wait(self, until: datetime | None, *, of: RecordTypes | None = None) -> None:
        with self.opened.poller:
            await self.opened.waiters.wait(until, of)

    async def snapshot(self, report: ReadSoFar | None = None) -> dict[str, list[Record]]:
        return await self.opened.snapshot(report)

    @property
    def heartbeat(self) -> timedelta:
        return HEARTBEAT

    async def prove(self) -> list[Proof]:
        """Whether the service does what a store needs of it, tried on the live bucket."""
        return await asyncio.get_running_loop().run_in_executor(None, prove, self._bucket)

    async def prove_upkeep(self) -> list[Proof]:
        """Whether upkeep is done, and whether this node has the rights for it."""
        upkeep = self.opened.upkeep
        rights = await asyncio.get_running_loop().run_in_executor(None, upkeep.rights)
        return [rights, upkeep.log_length()]

    async def tidy(self) -> None:
        """Repair the views. The janitor calls this now and then."""
        await self.opened.upkeep.tidy()


class OpenBucket:
    """The parts of an open store. Each can be used by itself: the replica, the log, the committer, the upkeep, …"""

    def __init__(self, bucket: Bucket, clock: Clock, tuning: Tuning) -> None:
        self.contents = BucketContents(bucket)
        self._closing = threading.Event()
        self.time = ServiceClock(clock, bucket.date)
        self.replica = Replica()
        self.segment_cache = SegmentCache(bucket, tuning.archive_in_memory)
        self.archive_reads = ArchiveReads(self.segment_cache, self._is_segment_missed, bucket.name)
        node = f"{socket.gethostname()}:{os.getpid()}:{uuid_utils.uuid4().hex[:6]}"
        self.log = Log(bucket, self.replica, self.time, tuning, node, self._closing.wait)
        self._writer = Threads(1, "rota-writer")
        self._reader = Threads(4, "rota-reader")
        self.committer = Committer(self.log, lambda commit: self.upkeep.committed(commit))
        self.groups = Groups(self._writer, self.committer.commit, self._changed)
        self.waiters = Waiters(self.time.now)
        self.poller = LogPoller(self._reader, self.look, self.waiters.changed, tuning)
        self.upkeep = Upkeep(self.log, self.segment_cache, lambda work: self.groups.run(work, PLAIN_COMMIT))
        self._told = 0
        """How many of the entries that were read the callers that wait have been told of."""

    async def start(self, *, migrate_now: bool) -> None:
        self.log.may_begin = migrate_now
        await self._reader.call(self._catch_up)
        self._told = self.log.entries_read
        self.upkeep.start()

    async def close(self) -> None:
        await self.archive_reads.finish()
        await self.groups.finish()
        await self.upkeep.close()
        await self.groups.finish()
        self.waiters.close()
        await self.poller.close()
        self._closing.set()
        self._writer.close(wait=True)
        self._reader.close(wait=True)
        self.archive_reads.close()
        self.contents.close()

    async def read(self, work: Work[T]) -> T:
        asked = self.time.stopwatch.moment()

        def reading(work: Work[T]) -> T:
            self._catch_up_since(asked)  # a later run is at least as current
            with self.replica.lock:
                return drive(work, BucketTx(self.replica, self.time.now(), writable=False))

        return await self.archive_reads.run(work, partial(self._reader.call, reading))

    async def snapshot(self, report: ReadSoFar | None) -> dict[str, list[Record]]:
        return await self._reader.call(self._everything, report)

    def _everything(self, report: ReadSoFar | None) -> dict[str, list[Record]]:
        self._catch_up()
        with self.replica.lock:
            rows = self.replica.live.all_rows()
            segments = [(held.key, set(held.obsolete)) for held in self.replica.archive.segments.values()]
        for number, (key, obsolete) in enumerate(segments, start=1):
            archived = self.segment_cache.load(key).all_rows()
            rows += [row for row in archived if (row.table.name, row.record.id) not in obsolete]
            if report is not None:
                report(number, len(segments))
        return by_table(rows)

    async def _is_segment_missed(self, key: str) -> bool:
        await self._reader.call(self._catch_up)
        return key in self.replica.archive.segments

    def _catch_up(self) -> bool:
        self.time.refresh()
        return self.log.catch_up()

    def _catch_up_since(self, asked: Moment) -> None:
        """Catch up, unless another caller did since this one asked. So concurrent callers share a request."""
        current_at = self.log.current_at
        if current_at is None or current_at.steady <= asked.steady:
            self._catch_up()

    def look(self, interval: timedelta) -> bool:
        """For the poller. No request is made if a commit or a read has just shown the end of the log."""
        current_at = self.log.current_at
        if current_at is None or self.time.stopwatch.since(current_at) >= interval / 2:
            self._catch_up()
        return self._have_others_written()

    def _have_others_written(self) -> bool:
        """Whether other nodes have, since it was asked last."""
        told, self._told = self._told, self.log.entries_read
        return told != self._told

    def _changed(self, written: RecordTypes) -> None:
        """A commit may have read entries of other nodes on its way, and anyone may wait for what is in them."""
        self.waiters.changed(None if self._have_others_written() else written)
