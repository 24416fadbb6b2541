"""Reading the archive's segments: each once for all who want it at the same time, and the last few kept.

Never called with the replica's lock held. A segment is kept whole, dead records too: it never changes, so what is kept
never has to be thrown away. How much is kept is counted in bytes of text; as records and indexes in memory it is
several times that.

What a work asks of the archive's segments, and what it was told.

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

import gzip
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import msgspec

from ....domain.errors import Corrupt
from ....domain.model import Record
from ...base import Work
from ...memory.finders import walk
from ...memory.state import Changes, Row, State
from ...queries import Query
from ..entry import READS, parse, rows_in
from ..service.objects import Bucket
from .segment import Fingerprints

__all__ = [
    "Answers",
    "Asked",
    "Away",
    "Matching",
    "Missing",
    "Question",
    "RowOf",
    "Shelf",
    "Walk",
    "together",
]

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


class Missing(Corrupt):
    """There is no such segment. That is so for a node, too, which is so far behind that it was removed."""


class _Kept(NamedTuple):
    state: State
    size: int


class Shelf:
    """Any number of threads may ask."""

    def __init__(self, bucket: Bucket, most_bytes: int) -> None:
        self._bucket = bucket
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._parsing = Lock()
        self._reading: dict[str, Future[State]] = {}
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0

    def answer(self, key: str, questions: Iterable[Question]) -> list[tuple[Asked, Any]]:
        state = self.load(key)
        return [((key, question), question.answer(state)) for question in questions]

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
        except BaseException as error:  # whatever it is, the others wait for it
            with self._lock:
                del self._reading[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._reading[key]
            self._keep(key, found)
        mine.set_result(found.state)
        return found.state

    def _keep(self, key: str, found: _Kept) -> None:
        self._kept[key] = found
        self._size += found.size
        while self._size > self._most_bytes:
            self._size -= self._kept.popitem(last=False)[1].size

    def _read(self, key: str) -> _Kept:
        for _ in range(READS - 1):
            try:
                return self._read_once(key)
            except Missing:
                raise
            except Corrupt:
                continue  # the answer may have been cut
        return self._read_once(key)

    def _read_once(self, key: str) -> _Kept:
        place = f"{self._bucket.name}/{key}"
        body = self._bucket.get(key)
        if body is None:
            raise Missing(
                f"{place} is missing, although the log says that records are in it; rota removes a segment only when"
                " nothing is left in it, so somebody did, or a lifecycle rule",
                key=key,
            )
        with (
            self._parsing
        ):  # requests overlap; to parse several at once is no faster, and slows down everybody
            return _parsed(place, body)


def _parsed(place: str, body: bytes) -> _Kept:
    text = parse(place, lambda: gzip.decompress(body))
    put = parse(place, lambda: msgspec.json.decode(text, type=dict[str, list[msgspec.Raw]]))
    state = State()
    state.apply(Changes(rows_in(place, put), []))
    return _Kept(state, len(text))
