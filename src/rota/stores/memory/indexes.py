"""Sorted indexes in memory: which records are in each, in which group, in which order.

`INDEXES` has all of them. Records are found group by group. Within a group the entries are sorted tuples that end with
the record's id. Names and meanings are those of `stores/queries.py`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from ...domain.model import (
    Alarm,
    ApiKey,
    Artifact,
    Calendar,
    Event,
    Gate,
    NodeState,
    PausedQueue,
    Receipt,
    Record,
    Run,
    RunStatus,
    Schedule,
    ScheduleStatus,
    Task,
    TaskStatus,
    Template,
    Tenant,
)
from ...domain.template import alias_key
from ...domain.workflow import Signal, Step
from ..queries import NEVER

IndexEntry = tuple[Any, ...]
IndexKey = tuple[IndexEntry, IndexEntry]
"""The group and the entry in it."""

_CHUNK = 1000


def _last(chunk: list[IndexEntry]) -> IndexEntry:
    return chunk[-1]


class SortedEntries:
    """Entries in order, in chunks of bounded size, so that to add and to remove stay cheap with a million entries."""

    def __init__(self) -> None:
        self._chunks: list[list[IndexEntry]] = []
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __len__(self) -> int:
        return self._size

    def add(self, entry: IndexEntry) -> None:
        self._size += 1
        if not self._chunks:
            self._chunks.append([entry])
            return
        at = min(bisect_left(self._chunks, entry, key=_last), len(self._chunks) - 1)
        chunk = self._chunks[at]
        insort(chunk, entry)
        if len(chunk) > _CHUNK:
            self._chunks[at : at + 1] = [chunk[: _CHUNK // 2], chunk[_CHUNK // 2 :]]

    def remove(self, entry: IndexEntry) -> None:
        self._size -= 1
        at = bisect_left(self._chunks, entry, key=_last)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, entry)]
        if not chunk:
            del self._chunks[at]

    def ascending(self, after: IndexEntry = ()) -> Iterator[IndexEntry]:
        """Entries > `after`."""
        first = bisect_right(self._chunks, after, key=_last)
        for at in range(first, len(self._chunks)):
            chunk = self._chunks[at]
            yield from chunk if at > first else chunk[bisect_right(chunk, after) :]

    def descending(self, before: IndexEntry | None = None) -> Iterator[IndexEntry]:
        """Entries < `before`, the largest first."""
        last = len(self._chunks) - 1
        if before is not None:
            last = min(bisect_left(self._chunks, before, key=_last), last)
        for at in range(last, -1, -1):
            chunk = self._chunks[at]
            yield from reversed(chunk if before is None or at < last else chunk[: bisect_left(chunk, before)])


class Index:
    """The entries of one index, by group."""

    def __init__(self, indexed: Indexed) -> None:
        self._key_of = indexed.key_of()
        self.groups: dict[IndexEntry, SortedEntries] = {}

    def move(self, old: Record | None, new: Record | None) -> None:
        """A record changed from `old` to `new`. None means that it was not there before, or is gone now."""
        before = None if old is None else self._key_of(old)
        after = None if new is None else self._key_of(new)
        if before == after:
            return
        if before is not None:
            group = self.groups[before[0]]
            group.remove(before[1])
            if not group:
                del self.groups[before[0]]
        if after is not None:
            self.groups.setdefault(after[0], SortedEntries()).add(after[1])

    def ascending(self, group: IndexEntry = (), after: IndexEntry = ()) -> Iterator[IndexEntry]:
        return self.groups[group].ascending(after) if group in self.groups else iter(())

    def descending(self, group: IndexEntry = (), before: IndexEntry | None = None) -> Iterator[IndexEntry]:
        return self.groups[group].descending(before) if group in self.groups else iter(())


class Indexed(NamedTuple):
    """Which records are in an index, and where. `group` and `order` name attributes, or compute their values. A record
    without a first value of its group, or of its order, is not in the index."""

    type: type[Record]
    group: str | Callable[[Any], IndexEntry]
    order: str | Callable[[Any], IndexEntry]
    where: Callable[[Any], bool] | None = None

    def key_of(self) -> Callable[[Any], IndexKey | None]:
        where = self.where
        group_of = _values(self.group) if isinstance(self.group, str) else self.group
        entry_of = _values(f"{self.order} id") if isinstance(self.order, str) else self.order

        def key(record: Any) -> IndexKey | None:
            if where is not None and not where(record):
                return None
            group, entry = group_of(record), entry_of(record)
            return None if entry[0] is None or (group and group[0] is None) else (group, entry)

        return key


def _values(names: str) -> Callable[[Any], IndexEntry]:
    words = names.split()
    if not words:
        return lambda record: ()
    get = attrgetter(*words)
    return get if len(words) > 1 else lambda record: (get(record),)


def _is_pending(task: Task) -> bool:
    return task.status is TaskStatus.PENDING


def _is_running(task: Task) -> bool:
    return task.status is TaskStatus.RUNNING


def _is_living(schedule: Schedule) -> bool:
    return schedule.deleted_at is None


def _has_zone(schedule: Schedule) -> bool:
    return schedule.status is ScheduleStatus.ACTIVE and _is_living(schedule) and bool(schedule.zone_data)


INDEXES = {
    "ready": Indexed(
        Task, "queue kind priority", "available_at", lambda task: _is_pending(task) and task.line is None
    ),
    "line": Indexed(Task, "line", lambda task: (-task.priority, task.lined_at, task.id), _is_pending),
    "planned": Indexed(Task, "planned_by", "available_at", _is_pending),
    "lease": Indexed(Task, "", "lease_expires_at", _is_running),
    "expiry": Indexed(Task, "", "expires_at", _is_pending),
    "cancelling": Indexed(Task, "worker_id", "", lambda task: _is_running(task) and task.cancel_requested),
    "live": Indexed(Task, "schedule_id", "created_at", lambda task: task.is_live),
    "finished": Indexed(Task, "", "completed_at", lambda task: not task.is_live),
    "returned": Indexed(Task, "tenant", "returned_at"),
    "workflow": Indexed(Task, "tenant", "created_at", lambda task: task.is_workflow),
    "task": Indexed(Task, "tenant", ""),
    "task_created": Indexed(Task, "tenant", "created_at"),
    "task_status": Indexed(Task, "tenant status", "created_at"),
    "due": Indexed(Schedule, "", "due_at", _is_living),
    "next_time": Indexed(
        Schedule, "tenant", lambda schedule: (schedule.due_at or NEVER, schedule.id), _is_living
    ),
    "watch": Indexed(Schedule, "", "watch_at"),
    "zone": Indexed(Schedule, "zone_data", "", _has_zone),
    "living_key": Indexed(Schedule, "tenant", "key", _is_living),
    "open_key": Indexed(Schedule, "tenant", "key", lambda schedule: schedule.is_open),
    "deleted_key": Indexed(Schedule, "tenant key", "created_at", lambda schedule: not _is_living(schedule)),
    "schedule_completed": Indexed(Schedule, "", "completed_at"),
    "schedule_created": Indexed(Schedule, "tenant", "created_at"),
    "schedule": Indexed(Schedule, "", "created_at"),
    "run": Indexed(Run, "schedule_id", "scheduled_at"),
    "run_ended": Indexed(Run, "", "completed_at", lambda run: run.status is not RunStatus.RUNNING),
    "event_of_tenant": Indexed(Event, "tenant", "at"),
    "event_of_subject": Indexed(Event, "tenant subject_id", "at"),
    "event": Indexed(Event, "", "at"),
    "template": Indexed(Template, "tenant", ""),
    "alias": Indexed(Template, lambda template: (template.tenant, alias_key(template.alias)), ""),
    "key_of_tenant": Indexed(ApiKey, "tenant", ""),
    "key": Indexed(ApiKey, "", ""),
    "tenant": Indexed(Tenant, "", ""),
    "receipt": Indexed(Receipt, "", "at"),
    "gate": Indexed(Gate, "tenant", ""),
    "idle_gate": Indexed(Gate, "", "idle_since"),
    "node": Indexed(NodeState, "", ""),
    "paused": Indexed(PausedQueue, "tenant", "queue"),
    "calendar": Indexed(Calendar, "tenant", "name"),
    "artifact": Indexed(Artifact, "task_id", "name"),
    "content": Indexed(Artifact, "content", ""),
    "step": Indexed(Step, "task_id", "created_at"),
    "updated_step": Indexed(Step, "tenant", "updated_at"),
    "signal": Indexed(Signal, "task_id", "at"),
    "alarm": Indexed(Alarm, "", "began_at"),
    "alarm_of_tenant": Indexed(Alarm, "tenant", "began_at"),
    "open_alarm": Indexed(Alarm, "subject_id", "began_at", lambda alarm: alarm.over_at is None),
    "untold_alarm": Indexed(Alarm, "", "tell_at"),
    "old_alarm": Indexed(Alarm, "", "over_at"),
}
"""All indexes, by name: of which records, in which groups, in which order, and which records are left out."""
