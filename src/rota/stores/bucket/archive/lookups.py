"""Lookups in the archive's segments: what a work asks, the results that it has so far, and how they are fetched.

A work runs while the replica's lock is held, and no request is made meanwhile. So a lookup is answered from the work's
`LookupResults`. If its result is not there, the run ends with `NeedsArchive`, which names the missing lookups. They are
fetched outside of the lock (`ArchiveReads`), and the work is run again with their results. Only a work that has asked
for the archive waits for it: it leaves its group at once, and the other works go on.

A segment never changes, so a result stays true. The replica says in each run which segments there are, and which of
their records are obsolete. Only the results are kept, and not the segment: a listing needs memory for its page,
however long the archive is.

`now` is the same in every run of a work. Otherwise a query that contains the time would be a new lookup in each run.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from functools import partial, wraps
from itertools import islice
from threading import Lock, RLock
from typing import Any, NamedTuple, TypeVar

import msgspec

from ....domain.errors import Corrupt, Unavailable
from ....domain.model import Record
from ...base import Work
from ...memory.finders import walk, walk_rows
from ...memory.state import Changes, Row, State
from ...queries import Query
from ...threads import Threads
from ..formats import parse, read_object, rows_in
from ..service.bucket import Bucket
from .segments import Fingerprints

T = TypeVar("T")


@dataclass(frozen=True)
class RowOf:
    """A record, if it is there."""

    type: type[Record]
    id: str

    def run(self, state: State) -> Row | None:
        return state.row(self.type, self.id)


@dataclass(frozen=True)
class Walk:
    """The first records that a query finds, in its order, obsolete ones among them."""

    query: Query[Record]
    limit: int

    def run(self, state: State) -> list[Row]:
        return list(islice(walk_rows(state, self.query), self.limit))


@dataclass(frozen=True)
class Matching:
    """Which records a query finds, obsolete ones among them."""

    query: Query[Record]

    def run(self, state: State) -> Fingerprints:
        return Fingerprints(Fingerprints.of(record.id for record in walk(state, self.query)))


Lookup = RowOf | Walk | Matching
SegmentLookup = tuple[str, Lookup]
"""A lookup in the segment with this key."""
_DOUBLINGS = 12


class LookupResults:
    """The results that one work has so far."""

    def __init__(self, now: datetime | None = None) -> None:
        self.now = now
        self._known: dict[SegmentLookup, Any] = {}
        self._rounds = 0

    def get(self, asked: SegmentLookup, following: Iterable[SegmentLookup] = ()) -> Any:
        """The result, or NeedsArchive with some of the lookups that may follow. A page often needs two segments, and a
        listing that needs many should be run again only a few times."""
        if asked in self._known:
            return self._known[asked]
        lacking = (each for each in following if each != asked and each not in self._known)
        more = 2 ** min(max(0, self._rounds - 1), _DOUBLINGS) - 1
        raise NeedsArchive(self, [asked, *islice(lacking, more)])

    def add(self, answered: Iterable[tuple[SegmentLookup, Any]]) -> None:
        for (key, lookup), answer in answered:
            self._known[key, lookup] = answer
            if isinstance(lookup, Walk):  # a work may write a record that it found, or get it again
                for row in answer:
                    self._known[key, RowOf(type(row.record), row.record.id)] = row

    def widen(self) -> None:
        """After the second round each round fetches twice as many segments: 1, 1, 2, 4, … up to 4,096."""
        self._rounds += 1

    def bind_to(self, work: Work[T]) -> Work[T]:
        """The work, which then finds these results in its transaction."""

        @wraps(work)  # its name is in messages
        def knowing(tx: Any) -> Awaitable[T]:
            tx.resume_with(self)
            return work(tx)

        return knowing


class NeedsArchive(BaseException):
    """A work needs results that are not in memory. This is no `Exception`, so that it passes through a work that
    catches those."""

    def __init__(self, results: LookupResults, asked: list[SegmentLookup]) -> None:
        super().__init__(f"{len(asked)} results of the archive are lacking")
        self.results = results
        self.lookups = asked


def answer_all(results: LookupResults, asks: Iterable[Callable[[], T]]) -> list[T]:
    """All answers, or one NeedsArchive with all missing lookups."""
    found: list[T] = []
    lacking: list[SegmentLookup] = []
    for ask in asks:
        try:
            found.append(ask())
        except NeedsArchive as needs:
            lacking += needs.lookups
    if lacking:
        raise NeedsArchive(results, lacking)
    return found


class SegmentMissing(Corrupt):
    """There is no such segment. A node that is far behind may see this of a segment that was rightly removed."""


class _Parsed(NamedTuple):
    state: State
    size: int


class SegmentCache:
    """Loads segments, and keeps those that were read last. Any number of threads may use it.

    Threads that want the same segment at the same time share one read. No thread loads a segment while it holds the
    replica's lock. A segment is kept whole, with its obsolete records: it never changes, so nothing here grows old. Its
    size is counted in bytes of text; records and indexes in memory take several times that.
    """

    def __init__(self, bucket: Bucket, most_bytes: int) -> None:
        self._bucket = bucket
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._parsing = Lock()
        self._reading: dict[str, Future[State]] = {}
        self._kept: OrderedDict[str, _Parsed] = OrderedDict()
        self.size = 0

    def answer(self, key: str, lookups: Iterable[Lookup]) -> list[tuple[SegmentLookup, Any]]:
        state = self.load(key)
        return [((key, lookup), lookup.run(state)) for lookup in lookups]

    def load(self, key: str) -> State:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key].state
            reading = self._reading.get(key)
            if reading is None:
                mine = self._reading[key] = Future[State]()
        return self._read_for_all(key, mine) if reading is None else reading.result()

    def _read_for_all(self, key: str, mine: Future[State]) -> State:
        try:
            found = self._read(key)
        except BaseException as error:  # the others wait for it
            with self._lock:
                del self._reading[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._reading[key]
            self._keep(key, found)
        mine.set_result(found.state)
        return found.state

    def _keep(self, key: str, found: _Parsed) -> None:
        self._kept[key] = found
        self.size += found.size
        while self.size > self._most_bytes:
            self.size -= self._kept.popitem(last=False)[1].size

    def _read(self, key: str) -> _Parsed:
        name = f"{self._bucket.name}/{key}"
        found = read_object(self._bucket, key, partial(self._parse, name))
        if found is None:
            raise SegmentMissing(
                f"{name} is missing, although the log says that records are in it; rota removes a segment only when"
                " nothing is left in it, so somebody did, or a lifecycle rule",
                key=key,
            )
        return found

    def _parse(self, name: str, body: bytes) -> _Parsed:
        with self._parsing:  # to parse several at once is no faster, and slows down everybody
            text = parse(name, lambda: gzip.decompress(body))
            put = parse(name, lambda: msgspec.json.decode(text, type=dict[str, list[msgspec.Raw]]))
            state = State()
            state.apply(Changes(rows_in(name, put), []))
        return _Parsed(state, len(text))


_THREADS = 8
_AT_ONCE = 4
"""Segments that one work fetches at the same time."""

_ROUNDS = 1000
"""Each round makes at least one lookup. No work has so many, unless its lookups change each time."""


class ArchiveReads:
    """Runs works, and fetches what they need of the archive between two runs.

    A listing may need many segments. Each round fetches twice as many as the one before, four at a time, so that a work
    that needs a single segment does not wait behind all of them. `is_segment_missed` is asked about a segment whose
    object is gone: it brings the replica to the end of the log, and says whether the segment is still in the archive.
    """

    def __init__(
        self, segment_cache: SegmentCache, is_segment_missed: Callable[[str], Awaitable[bool]], name: str
    ) -> None:
        self._segment_cache = segment_cache
        self._is_segment_missed = is_segment_missed
        self._name = name
        self._threads = Threads(_THREADS, "rota-archive")
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, work: Work[T], once: Callable[[Work[T]], Awaitable[T]]) -> T:
        """The work's answer. `once` runs it on the replica as it is."""
        self._under_way += 1
        self._idle.clear()
        try:
            return await self._run(work, once)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def finish(self) -> None:
        """Wait until all works are answered."""
        await self._idle.wait()

    def close(self) -> None:
        self._threads.close(wait=True)

    async def _run(self, work: Work[T], once: Callable[[Work[T]], Awaitable[T]]) -> T:
        needed: NeedsArchive | None = None
        for _ in range(_ROUNDS):
            try:
                return await once(work)
            except NeedsArchive as needs:
                if needed is None:
                    work = needs.results.bind_to(work)
                needed = needs
            await self._fetch(needed)
        raise Unavailable(
            f"what a work asks of the archive of {self._name} changes faster than it can be read; nothing was written"
        )

    async def _fetch(self, needs: NeedsArchive) -> None:
        needs.results.widen()
        segments = list(_by_segment(needs).items())
        for start in range(0, len(segments), _AT_ONCE):
            some = segments[start : start + _AT_ONCE]
            fetching = (self._fetch_one(needs.results, *each) for each in some)
            for failed in await asyncio.gather(*fetching, return_exceptions=True):
                if failed is not None:
                    raise failed

    async def _fetch_one(self, results: LookupResults, key: str, lookups: list[Lookup]) -> None:
        try:
            results.add(await self._threads.call(self._segment_cache.answer, key, lookups))
        except SegmentMissing:  # if it was removed while we were behind, the next run does not need it
            if await self._is_segment_missed(key):
                raise


def read_with_archive(lock: RLock, segment_cache: SegmentCache, read: Callable[[LookupResults], T]) -> T:
    """For the upkeep thread: read with the replica's lock held, and fetch what is missing in this thread."""
    results = LookupResults()
    while True:
        try:
            with lock:
                return read(results)
        except NeedsArchive as needs:
            needed = needs
        for key, lookups in _by_segment(needed).items():
            results.add(segment_cache.answer(key, lookups))


def _by_segment(needs: NeedsArchive) -> dict[str, list[Lookup]]:
    lookups: dict[str, list[Lookup]] = {}
    for key, lookup in needs.lookups:
        lookups.setdefault(key, []).append(lookup)
    return lookups
