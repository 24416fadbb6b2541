"""The replica: all that a node holds of the bucket. That is the live state, the archive's summaries, and their
position in the log.

`lock` guards all of it. It is never held during a request. A work that needs records of the archive is stopped, its
lookups are made outside of the lock, and the work is run again with their results (`archive/lookups`).

A group of works runs on a `Trial`. Each work sees the writes of the works before it. All writes are undone before the
lock is released, so nobody else sees uncommitted changes. `apply` is the only way for an entry to arrive, the node's
own and others', in the order of the log. So all replicas are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice
from threading import RLock
from typing import Any

from ...domain.errors import Conflict
from ...domain.model import Record
from ..codec import micros
from ..memory.finders import count, walk_rows
from ..memory.state import Changes, Row, State
from ..memory.store import MemoryTx
from ..queries import LatestRuns, Query
from .archive.archive import Archive, ArchivedSegment, Source, archived_order, merged
from .archive.lookups import LookupResults, answer_all
from .archive.segments import Segment, made_at
from .formats import TYPES, Restored


class Replica:
    """The state after entry `number`."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.live = State()
        self.archive = Archive()
        self.number = 0

    def reset(self, found: Restored) -> None:
        """The state of a snapshot."""
        self.live = State()
        self.live.apply(Changes(found.rows, []))
        self.archive = Archive()
        self.archive.add((each.segment, set(each.obsolete)) for each in found.about.archived)
        self.archive.dropped.update(found.about.dropped)
        self.number = found.about.number

    def row(self, type: type[Record], id: str, results: LookupResults) -> Row | None:
        row = self.live.row(type, id)
        return self.archive.row(type, id, results) if row is None else row

    def walk(self, query: Query[Record], limit: int, results: LookupResults) -> Iterator[Row]:
        """The rows that the query finds, live and archived. No more than `limit` are taken."""
        if isinstance(query, LatestRuns):  # the lookups of all its schedules are made together
            asks = (partial(self._first, each, query.most, results) for each in query.by_schedule)
            return chain.from_iterable(answer_all(results, asks))
        live = walk_rows(self.live, query)
        order = archived_order(query)
        if order is None or not self.archive.segments:
            return live
        archived = self.archive.sources(query, order, limit, results)
        return merged([Source(None, lambda: live), *archived], order)

    def count(self, query: Query[Record], results: LookupResults, at_most: int | None) -> int:
        if isinstance(query, LatestRuns):  # which of them are the latest is not known of each part by itself
            return sum(1 for _ in islice(self.walk(query, query.most, results), at_most))
        number = count(self.live, query, at_most)
        if at_most is None:
            return number + self.archive.count(query, results, None)
        if number < at_most:
            number += self.archive.count(query, results, at_most - number)
        return min(number, at_most)

    def apply(
        self,
        number: int,
        puts: Iterable[Row],
        deletes: Iterable[tuple[type[Record], str]],
        leave: dict[str, list[str]],
        segment: Segment | None,
    ) -> None:
        """The changes of entry `number`."""
        puts = list(puts)
        gone = []
        for of_type, id in (*deletes, *((type(row.record), row.record.id) for row in puts)):
            if self.live.row(of_type, id) is None:
                self.archive.mark_obsolete(of_type, id)
        for of_type, id in (*deletes, *((TYPES[name], id) for name, ids in leave.items() for id in ids)):
            row = self.live.row(of_type, id)
            if row is not None:
                gone.append(row.record)
        self.live.apply(Changes(puts, gone))
        if segment is not None:
            self.archive.add([(segment, set())])
        self.number = number

    def _first(self, query: Query[Record], limit: int, results: LookupResults) -> list[Row]:
        return list(islice(self.walk(query, limit, results), limit))


class BucketTx(MemoryTx):
    """Reads from a replica, and gathers the writes. `move` is for `MoveToArchive`."""

    def __init__(self, replica: Replica, now: datetime, *, writable: bool = True) -> None:
        super().__init__(replica.live, now, writable=writable)
        self._replica = replica
        self.results = LookupResults(now)
        self.moved: tuple[Segment, list[Row]] | None = None

    def resume_with(self, results: LookupResults) -> None:
        """Use the lookup results and the time of an earlier run of the work."""
        self.results = results
        self.now = results.now or self.now

    def rows(self, type: type[Record], ids: Iterable[str]) -> list[Row | None]:
        return answer_all(self.results, (partial(self._replica.row, type, id, self.results) for id in ids))

    def walk(self, query: Query[Record], limit: int) -> Iterator[Row]:
        return self._replica.walk(query, limit, self.results)

    async def count(self, query: Query[Record], /, *, at_most: int | None = None, lock: bool = False) -> int:
        self.reading()
        return self._replica.count(query, self.results, at_most)

    def move(self, segment: Segment, rows: list[Row]) -> None:
        """Move these records from the live state to the segment."""
        self.moved = (segment, rows)


class MoveToArchive:
    """The work that moves ended records to a segment. It refuses a segment that was written longer than `oldest` ago:
    no entry names it yet, so another node may have removed it as left over."""

    def __init__(self, segment: Segment, rows: list[Row], oldest: timedelta) -> None:
        self._segment = segment
        self._rows = rows
        self._oldest = oldest

    async def __call__(self, tx: Any) -> bool:
        if made_at(self._segment.key) < micros(tx.now - self._oldest):
            raise Conflict("the segment is so old that it may have been removed")
        tx.move(self._segment, self._rows)
        return True


class Trial:
    """The writes of a group while its works run."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._undo: list[Changes] = []
        self._before: dict[tuple[type[Record], str], Row | None] = {}
        self._hidden: list[tuple[Row, list[ArchivedSegment]]] = []
        self.segment: Segment | None = None
        self.leave: dict[str, list[str]] = {}

    def flush(self, tx: BucketTx) -> None:
        """Make the writes of one work visible to the next, or raise Conflict and change nothing."""
        self._restore_archived(tx)
        changes = self._replica.live.prepare(tx.puts, tx.deletes)
        if tx.moved is not None:
            self._move(*tx.moved)
        self._apply_changes(changes)

    def net(self) -> tuple[list[Row], list[Record]]:
        """All puts and deletes of the group, each record once."""
        puts: list[Row] = []
        deletes: list[Record] = []
        for (of_type, id), before in self._before.items():
            now = self._replica.live.row(of_type, id)
            if now is not None and now is not before:
                puts.append(now)
            elif now is None and before is not None:
                deletes.append(before.record)
        return puts, deletes

    def undo(self) -> None:
        for changes in reversed(self._undo):
            self._replica.live.apply(changes)
        for hidden in self._hidden:
            self._replica.archive.show(*hidden)

    def _restore_archived(self, tx: BucketTx) -> None:
        """Bring back archived records that are written again, so that they are checked like any other."""
        away = [
            (of_type, id)
            for writes in (tx.puts, tx.deletes)
            for of_type, records in writes.items()
            for id in records
            if self._replica.live.row(of_type, id) is None
        ]
        asks = (partial(self._replica.row, of_type, id, tx.results) for of_type, id in away)
        for row in answer_all(tx.results, asks):
            if row is not None:
                self._apply_changes(Changes([row], []))
                self._before[type(row.record), row.record.id] = row
                self._hidden.append((row, self._replica.archive.hide(row)))

    def _move(self, segment: Segment, rows: list[Row]) -> None:
        live = self._replica.live
        if self.segment is not None or any(
            live.row(type(row.record), row.record.id) is not row for row in rows
        ):
            raise Conflict("a record changed while it was archived")
        self.segment = segment
        for row in rows:
            self.leave.setdefault(row.table.name, []).append(row.record.id)

    def _apply_changes(self, changes: Changes) -> None:
        live = self._replica.live
        for record in (*changes.deletes, *(row.record for row in changes.puts)):
            self._before.setdefault((type(record), record.id), live.row(type(record), record.id))
        self._undo.append(live.reverse_of(changes))
        live.apply(changes)
