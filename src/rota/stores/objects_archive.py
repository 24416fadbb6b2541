"""The archive: records that left memory, found again by `get` and by the listings.

A segment, once loaded, is a small `State` of its own, so the queries are the same as everywhere; the answers of
the live state and of the segments are merged in the query's order. Segments whose summary says "not here" are
not loaded, and those that lie behind the end of a page are not either. The last few stay loaded.

A record that is written again comes back to the live state: what is left of it in its segment is *dead*.
"""

from __future__ import annotations

import gzip
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from ..domain.errors import Corrupt, Unavailable
from ..domain.model import Record, Task
from .codec import TABLES
from .finders import walk
from .objects_bucket import Bucket
from .objects_entry import READS, lines, parse, rows_in
from .objects_segment import Fingerprints, Segment, Span
from .queries import (
    EndedRuns,
    EndedTasks,
    EventList,
    FinishedTasks,
    OldEvents,
    OldRuns,
    Query,
    RunList,
    TaskList,
    begins_behind,
)
from .state import Changes, Row, State

__all__ = ["Archive", "Order", "Source", "archived_order", "merged", "pack_segment"]

_LOADED = 8
_NEVER = datetime.max.replace(tzinfo=UTC)


class Order(NamedTuple):
    """How a query sorts: by this field, then by id."""

    field: str
    descending: bool = False


_ORDERS: dict[type[Query], Order] = {
    TaskList: Order("created_at", descending=True),
    FinishedTasks: Order("completed_at"),
    EndedTasks: Order("completed_at"),
    RunList: Order("scheduled_at", descending=True),
    OldRuns: Order("completed_at"),
    EndedRuns: Order("completed_at"),
    EventList: Order("at"),
    OldEvents: Order("at"),
}


def archived_order(query: Query) -> Order | None:
    """The order of a query that may find archived records; None for the others."""
    return _ORDERS.get(type(query))


class Source(NamedTuple):
    """A part of an answer: nothing in it comes before `bound`."""

    bound: datetime | None
    open: Callable[[], Iterator[tuple[Record, State]]]


class Held:
    """A segment as a node knows it."""

    def __init__(self, segment: Segment, dead: set[tuple[str, str]]) -> None:
        self.segment = segment
        self.dead = dead
        self.ids = {name: Fingerprints(packed) for name, packed in segment.ids.items()}
        self.groups = {name: Fingerprints(packed) for name, packed in segment.groups.items()}
        self.size = sum(len(packed) // 8 for packed in segment.ids.values())
        self.counts: Counter[str] | None = None

    def may_have(self, name: str, id: str) -> bool:
        return name in self.ids and (name, id) not in self.dead and id in self.ids[name]

    def bury(self, name: str, id: str) -> None:
        self.dead.add((name, id))
        self.counts = None

    def may_answer(self, name: str, query: Query) -> bool:
        group = _group(query)
        return name in self.ids and (group is None or group in self.groups[name])


class Archive:
    """All segments of a bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._loaded: OrderedDict[str, State] = OrderedDict()
        self.segments: dict[str, Held] = {}
        self.dropped: set[str] = set()
        """Segments of which nothing is left. Their objects can go when no node knows them any more."""

    def clear(self) -> None:
        self.segments.clear()
        self.dropped.clear()
        self._loaded.clear()

    def add(self, segment: Segment, dead: set[tuple[str, str]] | None = None) -> None:
        self.segments[segment.key] = Held(segment, dead or set())

    def row(self, type: type[Record], id: str) -> Row | None:
        name = TABLES[type].name
        for held in reversed(self.segments.values()):
            if held.may_have(name, id):
                row = self._load(held).row(type, id)
                if row is not None:
                    return row
        return None

    def bury(self, type: type[Record], id: str) -> None:
        """The record was written again or deleted: here it is no more."""
        name = TABLES[type].name
        for held in [each for each in self.segments.values() if each.may_have(name, id)]:
            held.bury(name, id)
            self._loaded.pop(held.segment.key, None)
            if len(held.dead) >= held.size:
                del self.segments[held.segment.key]
                self.dropped.add(held.segment.key)

    def sources(self, name: str, query: Query, order: Order) -> Iterator[Source]:
        """One for each segment that may have an answer."""
        for held in self.segments.values():
            span = held.segment.spans.get(f"{name}.{order.field}")
            if span is not None and held.may_answer(name, query) and not _misses(span, query):
                yield Source(
                    span.last if order.descending else span.first,
                    lambda held=held: self._walk(held, query),  # type: ignore[misc]  # bound per segment
                )

    def count(self, tenant: str, status: str | None) -> int:
        """How many tasks, of this status if one is given."""
        return sum(
            number
            for held in self.segments.values()
            for label, number in self._counts(held).items()
            if label == f"{tenant}/{status}" or (status is None and label.rpartition("/")[0] == tenant)
        )

    def all(self, type: type[Record]) -> Iterator[Row]:
        for held in list(self.segments.values()):
            if TABLES[type].name in held.ids:
                yield from self._load(held).rows(type)

    def in_segment(self, key: str, type: type[Record]) -> list[Row]:
        """What is left in one segment, if it is still there."""
        held = self.segments.get(key)
        return [] if held is None or TABLES[type].name not in held.ids else self._load(held).rows(type)

    def _counts(self, held: Held) -> Counter[str]:
        if not held.dead:
            return Counter(held.segment.counts)
        if held.counts is None:
            tasks = [row.record for row in self._load(held).rows(Task)]
            held.counts = Counter(f"{task.tenant}/{task.status}" for task in tasks if isinstance(task, Task))
        return held.counts

    def _walk(self, held: Held, query: Query) -> Iterator[tuple[Record, State]]:
        state = self._load(held)
        return ((record, state) for record in walk(state, query))

    def _load(self, held: Held) -> State:
        key = held.segment.key
        state = self._loaded.get(key)
        if state is None:
            state = self._loaded[key] = self._read(held)
            if len(self._loaded) > _LOADED:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(key)
        return state

    def _read(self, held: Held) -> State:
        for _ in range(READS - 1):
            with suppress(Corrupt):
                return self._read_once(held)
        return self._read_once(held)

    def _read_once(self, held: Held) -> State:
        key = held.segment.key
        place = f"{self._bucket.name}/{key}"
        body = self._bucket.get(key)
        if body is None:
            raise Unavailable(f"{place} is gone: this node is behind; repeat", key=key)
        put = parse(
            place, lambda: msgspec.json.decode(gzip.decompress(body), type=dict[str, list[msgspec.Raw]])
        )
        rows = rows_in(place, put)
        alive = [row for row in rows if (TABLES[type(row.record)].name, row.record.id) not in held.dead]
        state = State()
        state.apply(Changes(alive, []))
        return state


def pack_segment(rows: list[Row]) -> bytes:
    by_name: dict[str, list[bytes]] = {}
    for row in rows:
        by_name.setdefault(TABLES[type(row.record)].name, []).append(row.body)
    return gzip.compress(lines(by_name), compresslevel=6, mtime=0)


def _group(query: Query) -> str | None:
    match query:
        case TaskList(tenant=tenant) | EndedTasks(tenant=tenant):
            return tenant
        case RunList(schedule_id=schedule_id):
            return schedule_id
        case EventList(tenant=tenant, subject_id=subject_id):
            return tenant if subject_id is None else f"{tenant}/{subject_id}"
    return None


def _misses(span: Span, query: Query) -> bool:
    """Whether nothing in this span of time can be an answer."""
    match query:
        case TaskList(after=after) if after is not None:
            return span.first > after.at
        case FinishedTasks(before=before) | OldRuns(before=before) | OldEvents(before=before):
            return span.first >= before
        case EndedTasks() | EndedRuns():
            return span.last < begins_behind(query).at
        case EventList(after=after) if after is not None:
            return span.last < after.at
        case RunList(since=since, until=until, after=after):
            ends = [end for end in (until, None if after is None else after.at) if end is not None]
            return (since is not None and span.last < since) or any(span.first > end for end in ends)
    return False


def merged(sources: list[Source], order: Order) -> Iterator[tuple[Record, State]]:
    """All that the sources have, in order; a source is opened when its bound is reached."""
    choose: Callable[..., Any] = max if order.descending else min
    live = [source for source in sources if source.bound is None]
    bounded = [source for source in sources if source.bound is not None]
    waiting = live + sorted(bounded, key=lambda source: source.bound or _NEVER, reverse=order.descending)
    heads: list[tuple[tuple[Any, str], tuple[Record, State], Iterator[tuple[Record, State]]]] = []

    def advance(walking: Iterator[tuple[Record, State]]) -> None:
        for found in walking:
            heads.append(((getattr(found[0], order.field), found[0].id), found, walking))
            return

    while waiting or heads:
        best = choose(heads, key=lambda head: head[0], default=None)
        if waiting and (best is None or _reached(waiting[0], best[0][0], order)):
            advance(waiting.pop(0).open())
            continue
        assert best is not None
        heads.remove(best)
        yield best[1]
        advance(best[2])


def _reached(source: Source, time: datetime, order: Order) -> bool:
    if source.bound is None:
        return True
    return source.bound >= time if order.descending else source.bound <= time
