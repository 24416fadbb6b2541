"""The queries of `stores/queries.py` as SQLite statements: which one, with which values, and how several are merged.

Most queries are one statement. Some are not: ready and upcoming tasks look into each lane (queue, kind, priority) by
itself, since an index over all of them would have to walk what is delayed or less urgent; a listing of expired tasks is
made of the marked ones and of pending ones past their expiry, and open tasks of the pending and the running ones. Names
of the statements in `statements.sql` follow those of the queries.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

import apsw
import msgspec

from ...domain.model import Record, TaskStatus
from ..codec import micros, tallied
from ..queries import OpenSchedules, OpenTasks, OutdatedZones, Query, ReadyTasks, TaskList, UpcomingTasks
from ..sql_files import load
from ..sql_parameters import MANY_PENDING, Parameters, name_of, task_list_statement, usual_statement

_SELECTS = {name: sql for name, sql in load("sqlite").items() if "{what}" in sql}
FIND = {name: sql.replace("{what}", "body") for name, sql in _SELECTS.items()}
_FIND_TIMED = {
    name: _SELECTS[name].replace("{what}", f"{time}, id, body")
    for name, time in {
        "ready_tasks": "available_at",
        "ready_tasks_unpaused": "available_at",
        "upcoming_tasks": "available_at",
        "task_list_unusual": "created_at",
        "task_list_past_expiry": "created_at",
        "outdated_zones_before": "0",
        "outdated_zones_after": "0",
        "open_tasks_pending": "created_at",
        "open_tasks_running": "created_at",
    }.items()
}
"""Statements whose rows are merged with others: what they are sorted by comes along."""
_UNORDERED = {name: re.sub(r"order by .* (?=limit :limit$)", "", sql) for name, sql in _SELECTS.items()}
COUNT = {name: f"select count(*) from ({sql.replace('{what}', '1')})" for name, sql in _UNORDERED.items()}
SEEK = load("sqlite")

_PARAMETERS = Parameters(
    {datetime: micros, tuple: lambda value: msgspec.json.encode([*dict.fromkeys(value)]).decode()}
)
_NO_LIMIT = -1

Values = dict[str, Any]
LaneQuery = ReadyTasks | UpcomingTasks


class Lane(NamedTuple):
    """Pending tasks of one queue, kind and priority: sorted by time."""

    queue: str
    kind: str
    priority: int


def find(db: apsw.Connection, query: Query[Record], limit: int) -> list[str]:
    """The bodies of what the query finds, in its order."""
    values = _PARAMETERS.of(query, limit)
    if isinstance(query, ReadyTasks):
        return _ready(db, query, values, limit)
    if isinstance(query, UpcomingTasks):
        lanes = _Lanes(db, query)
        return [body for _, _, body in lanes.first(values, list(lanes.all()), limit)]
    statements = _statements(db, query)
    if len(statements) == 1:
        return [body for (body,) in db.execute(FIND[statements[0]], values)]
    found = [row for statement in statements for row in db.execute(_FIND_TIMED[statement], values)]
    return [body for _, _, body in sorted(found, reverse=isinstance(query, TaskList))[:limit]]


def count(db: apsw.Connection, query: Query[Record], at_most: int | None = None) -> int:
    """How many `find` would give without a limit; or `at_most`, if there are more."""
    if isinstance(query, OpenSchedules):
        number = _number(db, SEEK["open_schedules_number"], {"tenant": query.tenant})
        return number if at_most is None else min(number, at_most)
    values = _PARAMETERS.of(query, _NO_LIMIT if at_most is None else at_most)
    number = 0
    for part in _parts(db, query, values):
        number += part
        if at_most is not None and number >= at_most:
            return at_most
    return number


def _parts(db: apsw.Connection, query: Query[Record], values: Values) -> Iterator[int]:
    """A count, statement by statement."""
    if isinstance(query, LaneQuery):
        lanes = _Lanes(db, query)
        return (lanes.count(values, lane) for lane in lanes.all())
    if isinstance(query, TaskList) and query.status is TaskStatus.PENDING and query.schedule_id is None:
        return iter((_number(db, COUNT["task_list_pending"], values),))
    return (_number(db, COUNT[statement], values) for statement in _statements(db, query))


def tally(db: apsw.Connection, query: Query[Record], by: Sequence[str]) -> dict[tuple[str, ...], int]:
    """How many `find` would give without a limit, by the values of these columns."""
    columns = ", ".join(column.name for column in tallied(query, by))
    values = _PARAMETERS.of(query, _NO_LIMIT)
    numbers: Counter[tuple[str, ...]] = Counter()
    for name in _statements(db, query):
        for *found, number in db.execute(tally_statement(name, columns), values):
            numbers[tuple(value or "" for value in found)] += number
    return dict(numbers)


def tally_statement(name: str, columns: str) -> str:
    sql = _UNORDERED[name].replace("{what}", f"{columns}, count(*)").removesuffix("limit :limit")
    return f"{sql}group by {columns}"


def _number(db: apsw.Connection, statement: str, values: Any) -> int:
    number: int = db.execute(statement, values).get
    return number


def _statements(db: apsw.Connection, query: Query[Record]) -> list[str]:
    """The statements that together find what the query asks for: the best index for the filters given."""
    if isinstance(query, TaskList):
        return _task_list(db, query)
    if isinstance(query, OpenTasks):
        return ["open_tasks_pending", "open_tasks_running"]
    if isinstance(query, OutdatedZones):
        return ["outdated_zones_before", "outdated_zones_after"]
    return [usual_statement(query)]


def _task_list(db: apsw.Connection, query: TaskList) -> list[str]:
    is_asked = query.status is TaskStatus.PENDING and query.schedule_id is None
    many = is_asked and _number(db, SEEK["pending_at_most"], (MANY_PENDING + 1,)) > MANY_PENDING
    name = task_list_statement(query, many_pending=many)
    return ["task_list_unusual", "task_list_past_expiry"] if name == "task_list_expired" else [name]


def _ready(db: apsw.Connection, query: ReadyTasks, values: Values, limit: int) -> list[str]:
    """The ready tasks, from the highest priority down, until there are enough. Less urgent ones are not looked at."""
    lanes = _Lanes(db, query)
    tops = list(lanes.tops())
    found: list[str] = []
    while tops and len(found) < limit:
        highest = max(lane.priority for lane in tops)
        level = [lane for lane in tops if lane.priority == highest]
        found += [body for _, _, body in lanes.first(values, level, limit - len(found))]
        if len(found) < limit:
            lower = (lanes.below(lane) for lane in level)
            tops = [lane for lane in tops if lane.priority < highest] + [lane for lane in lower if lane]
    return found


class _Lanes:
    """The lanes that a query looks into. Ready tasks are looked for in no queue that is paused."""

    def __init__(self, db: apsw.Connection, query: LaneQuery) -> None:
        self._db = db
        self._query = query
        self._paused: dict[str, list[str]] = {}
        if isinstance(query, ReadyTasks):
            for queue, tenant in db.execute(SEEK["paused_pairs"]):
                self._paused.setdefault(queue, []).append(tenant)

    def count(self, values: Values, lane: Lane) -> int:
        return _number(self._db, COUNT[self._statement(lane)], self._values(values, lane))

    def first(self, values: Values, lanes: Sequence[Lane], limit: int) -> list[tuple[int, str, str]]:
        """The first rows of these lanes. Each lane is sorted, and no more of it is read than is needed: of 350 lanes
        with 100 rows each, 100 are found in 15 ms instead of 800."""
        cursors = [
            self._db.execute(_FIND_TIMED[self._statement(lane)], self._values(values, lane)) for lane in lanes
        ]
        try:
            return list(islice(merge(*cursors), limit))
        finally:
            for cursor in cursors:
                cursor.close()

    def _statement(self, lane: Lane) -> str:
        return "ready_tasks_unpaused" if lane.queue in self._paused else name_of(self._query)

    def _values(self, values: Values, lane: Lane) -> Values:
        if lane.queue not in self._paused:
            return values | lane._asdict()
        return {**values, **lane._asdict(), "paused": msgspec.json.encode(self._paused[lane.queue]).decode()}

    def all(self) -> Iterator[Lane]:
        for top in self.tops():
            lane: Lane | None = top
            while lane is not None:
                yield lane
                lane = self.below(lane)

    def below(self, lane: Lane) -> Lane | None:
        row = self._db.execute(SEEK["next_priority"], lane._asdict()).fetchone()
        return None if row is None else lane._replace(priority=row[0])

    def tops(self) -> Iterator[Lane]:
        """For each queue and kind that has pending tasks and is asked for: the lane of the highest priority."""
        query = self._query
        kinds = None if query.kinds is None else sorted(set(query.kinds))
        if query.queues is not None:
            for queue in sorted(set(query.queues)):
                if not self._is_closed(queue):
                    yield from _top_lanes_from(self._db, SEEK["next_lane_in_queue"], queue, kinds)
        else:
            for lane in _top_lanes_from(self._db, SEEK["next_lane"], "", None):
                if (kinds is None or lane.kind in kinds) and not self._is_closed(lane.queue):
                    yield lane

    def _is_closed(self, queue: str) -> bool:
        """Whether it is paused for the only tenant that is asked for."""
        return self._query.tenant in self._paused.get(queue, ())


def _top_lanes_from(db: apsw.Connection, seek: str, queue: str, kinds: list[str] | None) -> Iterator[Lane]:
    """Seek from one lane to the next, leaping over the kinds that are not asked for."""
    kind = ""
    while (row := db.execute(seek, {"queue": queue, "kind": kind}).fetchone()) is not None:
        lane = Lane(*row)
        queue, kind = lane.queue, _just_after(lane.kind)
        if kinds is None:
            yield lane
            continue
        at = bisect_left(kinds, lane.kind)
        if at < len(kinds) and kinds[at] == lane.kind:
            yield lane
            at += 1
        if at == len(kinds):
            return
        kind = kinds[at]


def _just_after(text: str) -> str:
    """The least text that is greater."""
    return text + "\0"
