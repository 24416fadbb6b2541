"""Reading the archive's segments: each once for all who want it at the same time, and the last few kept.

Never called with the replica's lock held. A segment is kept whole, dead records too: it never changes, so what is kept
never has to be thrown away. How much is kept is counted in bytes of text; as records and indexes in memory it is
several times that."""

from __future__ import annotations

import gzip
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from ..domain.errors import Corrupt
from .objects_bucket import Bucket
from .objects_entry import READS, parse, rows_in
from .objects_questions import Asked, Question
from .state import Changes, State

__all__ = ["Missing", "Shelf"]


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
