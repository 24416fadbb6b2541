"""What a work asks of the archive's segments, and what it was told.

A work runs while the replica's lock is held, and nobody reads the bucket meanwhile. So a question about a segment is
looked up in the work's `Answers`; if it is not there, the run ends with `Away`, which says what is lacking. That is
fetched outside (`objects_errands`), and the work is run again with it.

A segment never changes, so an answer stays true however long it is kept. Which segments there are, and which records
in them are dead, is asked of the replica in each run anew. Only what answers the question is kept of a segment, never
the segment: a listing needs memory for its page, however long the archive is.

`now` stays what it was in the first run: to wait for the archive is a part of the run, as with a database that is slow
to read. Else a question with a time in it would never be asked twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from itertools import islice
from typing import Any, TypeVar

from ..domain.model import Record
from .base import Work
from .finders import walk
from .objects_segment import Fingerprints
from .queries import Query
from .state import Row, State

__all__ = ["Answers", "Asked", "Away", "Matching", "Question", "RowOf", "Walk", "together"]

T = TypeVar("T")


@dataclass(frozen=True)
class RowOf:
    """A record, if it is there."""

    type: type[Record]
    id: str

    def answer(self, state: State) -> Row | None:
        return state.row(self.type, self.id)


@dataclass(frozen=True)
class Walk:
    """The first records that a query finds, in its order, dead ones among them."""

    query: Query
    limit: int

    def answer(self, state: State) -> list[Row]:
        found = islice(walk(state, self.query), self.limit)
        rows = (state.row(type(record), record.id) for record in found)
        return [row for row in rows if row is not None]


@dataclass(frozen=True)
class Matching:
    """Which records a query finds, dead ones among them."""

    query: Query

    def answer(self, state: State) -> Fingerprints:
        return Fingerprints(Fingerprints.of(record.id for record in walk(state, self.query)))


Question = RowOf | Walk | Matching
Asked = tuple[str, Question]
"""Of the segment with this key."""


class Answers:
    """What one work was told so far."""

    def __init__(self, now: datetime | None = None) -> None:
        self.now = now
        self._given: dict[Asked, Any] = {}
        self._rounds = 0

    def __contains__(self, asked: Asked) -> bool:
        return asked in self._given

    def of(self, asked: Asked, following: Iterable[Asked] = ()) -> Any:
        """The answer; or Away, with some of what may be asked next: a page often needs two segments, and however many a
        listing needs, it is run again only a few times."""
        if asked in self._given:
            return self._given[asked]
        lacking = (each for each in following if each != asked and each not in self._given)
        raise Away(self, [asked, *islice(lacking, 2 ** max(0, self._rounds - 1) - 1)])

    def take(self, answered: Iterable[tuple[Asked, Any]]) -> None:
        for (key, question), answer in answered:
            self._given[key, question] = answer
            if isinstance(question, Walk):  # whoever found a record may write it, or ask for it again
                for row in answer:
                    self._given[key, RowOf(type(row.record), row.record.id)] = row

    def reach_further(self) -> None:
        """One segment in the first two rounds, then two, four, …"""
        self._rounds += 1

    def given_to(self, work: Work[T]) -> Work[T]:
        """The work, with these answers at hand."""

        @wraps(work)  # with the notes that are on it
        def knowing(tx: Any) -> Awaitable[T]:
            tx.go_on_with(self)
            return work(tx)

        return knowing


class Away(BaseException):
    """A work needs what is not in memory. No `Exception`: it passes through a work that catches those."""

    def __init__(self, answers: Answers, asked: list[Asked]) -> None:
        super().__init__(f"{len(asked)} answers of the archive are lacking")
        self.answers = answers
        self.asked = asked


def together(answers: Answers, asks: Iterable[Callable[[], T]]) -> list[T]:
    """The answers to all of them; or one Away, with all that they lack."""
    found: list[T] = []
    lacking: list[Asked] = []
    for ask in asks:
        try:
            found.append(ask())
        except Away as away:
            lacking += away.asked
    if lacking:
        raise Away(answers, lacking)
    return found
