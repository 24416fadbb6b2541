"""The segment cache: loads segments of the archive, and keeps those that were read last.

Threads that want the same segment at the same time share one read. No thread loads a segment while it holds the
replica's lock. A segment is kept whole, with its obsolete records: it never changes, so the cache needs no
invalidation. Its size is counted in bytes of text; records and indexes in memory take several times that.
"""

from __future__ import annotations

import gzip
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from ....domain.errors import Corrupt
from ...memory.state import Changes, State
from ..entry import READS, parse, rows_in
from ..service.bucket import Bucket
from .lookups import Lookup, SegmentLookup

__all__ = ["SegmentCache", "SegmentMissing"]


class SegmentMissing(Corrupt):
    """There is no such segment. A node that is far behind may see this of a segment that was rightly removed."""


class _Parsed(NamedTuple):
    state: State
    size: int


class SegmentCache:
    """Any number of threads may use it."""

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
        for _ in range(READS - 1):
            try:
                return self._read_once(key)
            except SegmentMissing:
                raise
            except Corrupt:
                continue  # the answer may have been cut
        return self._read_once(key)

    def _read_once(self, key: str) -> _Parsed:
        name = f"{self._bucket.name}/{key}"
        body = self._bucket.get(key)
        if body is None:
            raise SegmentMissing(
                f"{name} is missing, although the log says that records are in it; rota removes a segment only when"
                " nothing is left in it, so somebody did, or a lifecycle rule",
                key=key,
            )
        with (
            self._parsing
        ):  # requests overlap; to parse several at once is no faster, and slows down everybody
            return _parsed(name, body)


def _parsed(name: str, body: bytes) -> _Parsed:
    text = parse(name, lambda: gzip.decompress(body))
    put = parse(name, lambda: msgspec.json.decode(text, type=dict[str, list[msgspec.Raw]]))
    state = State()
    state.apply(Changes(rows_in(name, put), []))
    return _Parsed(state, len(text))
