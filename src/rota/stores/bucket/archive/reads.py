"""Running works that need the archive: their lookups are made between two runs.

A work that needs the archive leaves its group at once, and the other works go on. So a work waits for the archive
only if it has asked for it. A listing may need many segments. Each round fetches twice as many as the one before,
four at a time, so that a work that needs a single segment does not wait behind all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ....domain.errors import Unavailable
from ...base import Work
from ...threads import Threads
from ..replica import Replica
from .lookups import Lookup, LookupResults, NeedsArchive
from .segment_cache import SegmentCache, SegmentMissing

__all__ = ["ArchiveReads", "ask"]

T = TypeVar("T")

_THREADS = 8
_AT_ONCE = 4
"""Segments that one work fetches at the same time."""

_ROUNDS = 1000
"""Each round makes at least one lookup. No work has so many, unless its lookups change each time."""


class ArchiveReads:
    """`catch_up` brings the replica to the end of the log."""

    def __init__(
        self,
        replica: Replica,
        segment_cache: SegmentCache,
        catch_up: Callable[[], Awaitable[object]],
        name: str,
    ) -> None:
        self._replica = replica
        self._segment_cache = segment_cache
        self._catch_up = catch_up
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
            await self._catch_up()
            if key in self._replica.archive.segments:
                raise


def ask(replica: Replica, segment_cache: SegmentCache, lookup: Callable[[LookupResults], T]) -> T:
    """For the upkeep thread: ask the replica with its lock held, and make missing lookups in this thread."""
    results = LookupResults()
    while True:
        try:
            with replica.lock:
                return lookup(results)
        except NeedsArchive as needs:
            needed = needs
        for key, lookups in _by_segment(needed).items():
            results.add(segment_cache.answer(key, lookups))


def _by_segment(needs: NeedsArchive) -> dict[str, list[Lookup]]:
    lookups: dict[str, list[Lookup]] = {}
    for key, lookup in needs.lookups:
        lookups.setdefault(key, []).append(lookup)
    return lookups
