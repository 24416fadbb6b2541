"""The archive: records that left memory. `get` and the listings still find them.

A node holds the summary of each segment, which answers most queries with "not here". For the others the segment
itself is looked up, through the work's `LookupResults`: nothing is read here. The results of the live state and of
the segments are merged in the query's order. Segments behind the end of a page are not looked up.

A record that is written again comes back to the live state. Its old copy in the segment is then *obsolete*.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from heapq import merge
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from ....domain.model import Record, Task
from ...codec import TABLES
from ...memory.state import Row
from ...queries import (
    RECORD_OF,
    EndedRuns,
    EndedTasks,
    EventList,
    FinishedTasks,
    OldEvents,
    OldRuns,
    Query,
    RunList,
    TaskList,
    TasksByBeginning,
)
from ..formats import lines
from .lookups import LookupResults, Matching, RowOf, SegmentLookup, Walk, answer_all
from .segments import Fingerprints, Segment, SegmentIndex, Span, fingerprint

_LAST = chr(0x10FFFF)


class Order(NamedTuple):
    """How a query sorts: by this field, then by id."""

    field: str
    descending: bool = False


_ORDERS: dict[type[Query[Record]], Order] = {
    TaskList: Order("created_at", descending=True),
    TasksByBeginning: Order("created_at", descending=True),
    FinishedTasks: Order("completed_at"),
    EndedTasks: Order("completed_at"),
    RunList: Order("scheduled_at", descending=True),
    OldRuns: Order("completed_at"),
    EndedRuns: Order("completed_at"),
    EventList: Order("at"),
    OldEvents: Order("at"),
}


def archived_order(query: Query[Record]) -> Order | None:
    """The order of a query that may find archived records; None for the others."""
    return _ORDERS.get(type(query))


class Source(NamedTuple):
    """One source of rows. None of its rows comes before `bound`."""

    bound: datetime | None
    open: Callable[[], Iterator[Row]]


class ArchivedSegment:
    """A segment's summary, and its obsolete records."""

    def __init__(self, segment: Segment, obsolete: set[tuple[str, str]]) -> None:
        self.segment = segment
        self.key = segment.key
        self.obsolete = obsolete
        self.ids = {name: Fingerprints(packed) for name, packed in segment.ids.items()}
        self.groups = {name: Fingerprints(packed) for name, packed in segment.groups.items()}
        self.size = sum(len(each) for each in self.ids.values())
        self.labels: dict[str, str] = {}
        """The labels of obsolete tasks that are known so far, by id."""

    def may_have(self, name: str, id: str, wanted: bytes) -> bool:
        return name in self.ids and (name, id) not in self.obsolete and self.ids[name].has(wanted)

    def may_answer(self, name: str, query: Query[Record], group: bytes | None) -> bool:
        return (
            name in self.ids
            and (group is None or self.groups[name].has(group))
            and not (
                isinstance(query, TaskList)
                and query.status is not None
                and f"{query.tenant}/{query.status}" not in self.segment.counts
            )
        )

    def obsolete_of(self, name: str) -> list[str]:
        return [id for of_name, id in self.obsolete if of_name == name]


class Archive:
    """All segments of a bucket."""

    def __init__(self) -> None:
        self.segments: dict[str, ArchivedSegment] = {}
        self._index = SegmentIndex()
        self.dropped: set[str] = set()
        """Segments without a record that is not obsolete. Their objects are removed when no node can know them any
        more."""

    def add(self, segments: Iterable[tuple[Segment, set[tuple[str, str]]]]) -> None:
        """Add segments, each with its obsolete records."""
        new = [ArchivedSegment(*each) for each in segments]
        self.segments.update((held.key, held) for held in new)
        self._index.add(held.segment for held in new)

    def row(self, type: type[Record], id: str, results: LookupResults) -> Row | None:
        for held in reversed(self._segments_with(TABLES[type].name, id)):
            row: Row | None = results.get((held.key, RowOf(type, id)))
            if row is not None:
                return row
        return None

    def mark_obsolete(self, type: type[Record], id: str) -> None:
        """The record was written again or deleted, so its copy here is obsolete."""
        name = TABLES[type].name
        for held in self._segments_with(name, id):
            held.obsolete.add((name, id))
            if len(held.obsolete) >= held.size:
                del self.segments[held.key]
                self._index.remove(held.key)
                self.dropped.add(held.key)

    def hide(self, row: Row) -> list[ArchivedSegment]:
        """The record was written again by a trial. Its copies here are obsolete until `show` is called with what this
        gives back."""
        name, id = row.table.name, row.record.id
        hidden = self._segments_with(name, id)
        for held in hidden:
            held.obsolete.add((name, id))
            held.labels[id] = _label(row)
        return hidden

    def show(self, row: Row, hidden: list[ArchivedSegment]) -> None:
        for held in hidden:
            held.obsolete.discard((row.table.name, row.record.id))

    def sources(self, query: Query[Record], order: Order, limit: int, results: LookupResults) -> list[Source]:
        """A source for each segment that may have an answer, in the order in which a walk reaches them."""
        name = _name(query)
        bounds = {
            held.key: span.last if order.descending else span.first
            for held, span in self._candidates(query, order)
        }
        keys = sorted(bounds, key=lambda key: bounds[key], reverse=order.descending)
        asked = [(key, Walk(query, _rows_for(limit, self.segments[key]))) for key in keys]

        def open(at: int) -> Iterator[Row]:
            held = self.segments[keys[at]]
            results.get(asked[at], asked[at:])
            found = _walk(*asked[at], results)
            return (row for row in found if (name, row.record.id) not in held.obsolete)

        return [Source(bounds[key], partial(open, at)) for at, key in enumerate(keys)]

    def count(self, query: Query[Record], results: LookupResults, enough: int | None) -> int:
        """How many records a query finds here. It stops counting at `enough`."""
        if isinstance(query, TaskList) and query == TaskList(
            tenant=query.tenant, at=query.at, status=query.status
        ):
            return self._count_tasks(query, results)
        order = archived_order(query)
        if order is None:
            return 0
        number = 0
        name = _name(query)
        segments = [held for held, _ in self._candidates(query, order)]
        asked: list[SegmentLookup] = [(held.key, Matching(query)) for held in segments]
        for at, held in enumerate(segments):
            if enough is not None and number >= enough:
                break
            found: Fingerprints = results.get(asked[at], asked[at:])
            number += len(found) - sum(id in found for id in held.obsolete_of(name))
        return number

    def _count_tasks(self, query: TaskList, results: LookupResults) -> int:
        """Count from the summaries, less the obsolete tasks."""

        def number_of(labels: Mapping[str, int]) -> int:
            if query.status is not None:
                return labels.get(f"{query.tenant}/{query.status}", 0)
            return sum(number for label, number in labels.items() if label.rpartition("/")[0] == query.tenant)

        counted = [held for held in self.segments.values() if number_of(held.segment.counts)]
        lost = answer_all(results, (partial(self._label_obsolete, held, results) for held in counted))
        return sum(number_of(held.segment.counts) for held in counted) - sum(map(number_of, lost))

    def _label_obsolete(self, held: ArchivedSegment, results: LookupResults) -> Counter[str]:
        """The labels of a segment's obsolete tasks. A node looks up each task once."""
        obsolete = held.obsolete_of("task")
        unknown = [id for id in obsolete if id not in held.labels]
        rows = answer_all(results, (partial(results.get, (held.key, RowOf(Task, id))) for id in unknown))
        held.labels.update(
            (id, "" if row is None else _label(row)) for id, row in zip(unknown, rows, strict=True)
        )
        return Counter(held.labels[id] for id in obsolete)

    def _segments_with(self, name: str, id: str) -> list[ArchivedSegment]:
        """The segments that may have a record. For a record that is not archived there is hardly ever one."""
        wanted = fingerprint(id)
        found = [self.segments[key] for key in self._index.of(wanted)]
        return [held for held in found if held.may_have(name, id, wanted)]

    def _candidates(self, query: Query[Record], order: Order) -> Iterator[tuple[ArchivedSegment, Span]]:
        """The segments that may have an answer, and over which times in the query's order."""
        name = _name(query)
        text = _group(query)
        group = None if text is None else fingerprint(text)
        for held in self.segments.values():
            span = held.segment.spans.get(f"{name}.{order.field}")
            if span is not None and held.may_answer(name, query, group) and not _misses(span, query):
                yield held, span


def _name(query: Query[Record]) -> str:
    return TABLES[RECORD_OF[type(query)]].name


def _label(row: Row) -> str:
    return f"{row.record.tenant}/{getattr(row.record, 'status', '')}"


def _rows_for(limit: int, held: ArchivedSegment) -> int:
    """How many rows to look up, so that enough of them are not obsolete. Doubled in steps, so that the next run makes
    the same lookup although more have become obsolete."""
    rows = max(limit, 1)
    while rows < limit + len(held.obsolete):
        rows *= 2
    return rows


def _walk(key: str, first: Walk, results: LookupResults) -> Iterator[Row]:
    """The rows of a segment. If the first lookup is not enough, a larger one follows."""
    seen, asked = 0, first
    while True:
        rows: list[Row] = results.get((key, asked))
        yield from rows[seen:]
        if len(rows) < asked.limit:
            return
        seen, asked = len(rows), Walk(first.query, 2 * asked.limit)


def first_rows(rows: list[Row], most_bytes: int) -> list[Row]:
    """As many rows as `most_bytes` allows, at least one. A segment is always read whole, so it must be small."""
    sizes = accumulate(len(row.body) for row in rows)
    return rows[: max(1, sum(size <= most_bytes for size in sizes))]


def pack_segment(rows: list[Row]) -> bytes:
    return gzip.compress(lines(rows), compresslevel=6, mtime=0)


def _group(query: Query[Record]) -> str | None:
    match query:
        case TaskList(tenant=tenant) | EndedTasks(tenant=tenant) | TasksByBeginning(tenant=tenant):
            return tenant
        case RunList(schedule_id=schedule_id):
            return schedule_id
        case EventList(tenant=tenant, subject_id=subject_id):
            return tenant if subject_id is None else f"{tenant}/{subject_id}"
    return None


def _misses(span: Span, query: Query[Record]) -> bool:
    """Whether nothing in this span of time can be an answer."""
    match query:
        case TaskList(since=since, after=after):
            is_older = since is not None and span.last < since
            return is_older or (after is not None and span.first > after.at)
        case FinishedTasks(before=before) | OldRuns(before=before) | OldEvents(before=before):
            return span.first >= before
        case EndedTasks() | EndedRuns():
            return span.last < query.bound.at
        case EventList(after=after) if after is not None:
            return span.last < after.at
        case RunList(since=since, until=until, after=after):
            ends = [end for end in (until, None if after is None else after.at) if end is not None]
            return (since is not None and span.last < since) or any(span.first > end for end in ends)
    return False


def merged(sources: list[Source], order: Order) -> Iterator[Row]:
    """The rows of all sources, in order. A source begins with its bound, and is opened when that is reached."""
    before_all_ids = _LAST if order.descending else ""

    def walk(source: Source) -> Iterator[tuple[tuple[datetime, str], Row | None]]:
        if source.bound is not None:
            yield (source.bound, before_all_ids), None
        for row in source.open():
            yield (getattr(row.record, order.field), row.record.id), row

    found = merge(*map(walk, sources), key=itemgetter(0), reverse=order.descending)
    return (row for _, row in found if row is not None)
