"""Lookups in the archive's segments, and their results so far.

A work runs while the replica's lock is held, and no request is made meanwhile. So a lookup is answered from the work's
`LookupResults`. If its result is not there, the run ends with `NeedsArchive`, which names the missing lookups. They are
made outside of the lock (`reads`), and the work is run again with their results.

A segment never changes, so a result stays true. The replica says in each run which segments there are, and which of
their records are obsolete. Only the results are kept, and not the segment: a listing needs memory for its page,
however long the archive is.

`now` is the same in every run of a work. Otherwise a query that contains the time would be a new lookup in each run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from itertools import islice
from typing import Any, TypeVar

from ....domain.model import Record
from ...base import Work
from ...memory.finders import walk
from ...memory.state import Row, State
from ...queries import Query
from .segment import Fingerprints

__all__ = [
    "Lookup",
    "LookupResults",
    "Matching",
    "NeedsArchive",
    "RowOf",
    "SegmentLookup",
    "Walk",
    "together",
]

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

    query: Query
    limit: int

    def run(self, state: State) -> list[Row]:
        found = islice(walk(state, self.query), self.limit)
        rows = (state.row(type(record), record.id) for record in found)
        return [row for row in rows if row is not None]


@dataclass(frozen=True)
class Matching:
    """Which records a query finds, obsolete ones among them."""

    query: Query

    def run(self, state: State) -> Fingerprints:
        return Fingerprints(Fingerprints.of(record.id for record in walk(state, self.query)))


Lookup = RowOf | Walk | Matching
SegmentLookup = tuple[str, Lookup]
"""A lookup in the segment with this key."""


class LookupResults:
    """The results that one work has so far."""

    def __init__(self, now: datetime | None = None) -> None:
        self.now = now
        self._known: dict[SegmentLookup, Any] = {}
        self._rounds = 0

    def __contains__(self, asked: SegmentLookup) -> bool:
        return asked in self._known

    def get(self, asked: SegmentLookup, following: Iterable[SegmentLookup] = ()) -> Any:
        """The result, or NeedsArchive with some of the lookups that may follow. A page often needs two segments, and a
        listing that needs many should be run again only a few times."""
        if asked in self._known:
            return self._known[asked]
        lacking = (each for each in following if each != asked and each not in self._known)
        raise NeedsArchive(self, [asked, *islice(lacking, 2 ** max(0, self._rounds - 1) - 1)])

    def add(self, answered: Iterable[tuple[SegmentLookup, Any]]) -> None:
        for (key, lookup), answer in answered:
            self._known[key, lookup] = answer
            if isinstance(lookup, Walk):  # a work may write a record that it found, or get it again
                for row in answer:
                    self._known[key, RowOf(type(row.record), row.record.id)] = row

    def widen(self) -> None:
        """After the second round each round fetches twice as many segments: 1, 1, 2, 4, …"""
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


def together(results: LookupResults, asks: Iterable[Callable[[], T]]) -> list[T]:
    """All results, or one NeedsArchive with all missing lookups."""
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
