"""Sorted indexes in memory: which records are in each, in which group, in which order.

An index is a function `record -> (group, sort) | None`. Records are found group by group. Within a group the entries
are sorted tuples that end with the record's id. Names and meanings are those of `stores/queries.py`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Any

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

__all__ = ["INDEXES", "Index", "IndexEntry", "SortedEntries"]

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

    def __init__(self, key_of: Callable[[Any], IndexKey | None]) -> None:
        self._key_of = key_of
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


def _ready(task: Task) -> IndexKey | None:
    if task.status is not TaskStatus.PENDING or task.line is not None:
        return None
    return (task.queue, task.kind, task.priority), (task.available_at, task.id)


def _line(task: Task) -> IndexKey | None:
    if task.status is not TaskStatus.PENDING or task.line is None:
        return None
    return (task.line,), (-task.priority, task.lined_at, task.id)


def _lease(task: Task) -> IndexKey | None:
    if task.status is not TaskStatus.RUNNING or task.lease_expires_at is None:
        return None
    return (), (task.lease_expires_at, task.id)


def _expiry(task: Task) -> IndexKey | None:
    if task.status is not TaskStatus.PENDING or task.expires_at is None:
        return None
    return (), (task.expires_at, task.id)


def _cancelling(task: Task) -> IndexKey | None:
    if task.status is not TaskStatus.RUNNING or not task.cancel_requested:
        return None
    return (task.worker_id,), (task.id,)


def _live(task: Task) -> IndexKey | None:
    if not task.is_live or task.schedule_id is None:
        return None
    return (task.schedule_id,), (task.created_at, task.id)


def _finished(task: Task) -> IndexKey | None:
    return None if task.is_live or task.completed_at is None else ((), (task.completed_at, task.id))


def _returned(task: Task) -> IndexKey | None:
    at = task.returned_at
    return None if at is None else ((task.tenant,), (at, task.id))


def _workflow(task: Task) -> IndexKey | None:
    return _created(task) if task.is_workflow else None


def _created(record: Task | Schedule) -> IndexKey:
    return (record.tenant,), (record.created_at, record.id)


def _status(task: Task) -> IndexKey:
    return (task.tenant, task.status), (task.created_at, task.id)


def _due(schedule: Schedule) -> IndexKey | None:
    if schedule.deleted_at is not None or schedule.due_at is None:
        return None
    return (), (schedule.due_at, schedule.id)


def _next_time(schedule: Schedule) -> IndexKey | None:
    return None if schedule.deleted_at else ((schedule.tenant,), (schedule.due_at or NEVER, schedule.id))


def _watch(schedule: Schedule) -> IndexKey | None:
    return None if schedule.watch_at is None else ((), (schedule.watch_at, schedule.id))


def _zone(schedule: Schedule) -> IndexKey | None:
    if (
        schedule.status is not ScheduleStatus.ACTIVE
        or schedule.deleted_at is not None
        or not schedule.zone_data
    ):
        return None
    return (schedule.zone_data,), (schedule.id,)


def _living_key(schedule: Schedule) -> IndexKey | None:
    return None if schedule.deleted_at is not None else ((schedule.tenant,), (schedule.key, schedule.id))


def _open_key(schedule: Schedule) -> IndexKey | None:
    return ((schedule.tenant,), (schedule.key, schedule.id)) if schedule.is_open else None


def _schedule_completed(schedule: Schedule) -> IndexKey | None:
    return None if schedule.completed_at is None else ((), (schedule.completed_at, schedule.id))


def _alias(template: Template) -> IndexKey:
    return (template.tenant, alias_key(template.alias)), (template.id,)


def _deleted_key(schedule: Schedule) -> IndexKey | None:
    if schedule.deleted_at is None:
        return None
    return (schedule.tenant, schedule.key), (schedule.created_at, schedule.id)


def _run(run: Run) -> IndexKey:
    return (run.schedule_id,), (run.scheduled_at, run.id)


def _run_ended(run: Run) -> IndexKey | None:
    if run.status is RunStatus.RUNNING or run.completed_at is None:
        return None
    return (), (run.completed_at, run.id)


def _event_of_tenant(event: Event) -> IndexKey:
    return (event.tenant,), (event.at, event.id)


def _event_of_subject(event: Event) -> IndexKey:
    return (event.tenant, event.subject_id), (event.at, event.id)


def _at(record: Event | Receipt) -> IndexKey:
    return (), (record.at, record.id)


def _artifact(artifact: Artifact) -> IndexKey:
    return (artifact.task_id,), (artifact.name, artifact.id)


def _content(artifact: Artifact) -> IndexKey | None:
    return None if artifact.content is None else ((artifact.content,), (artifact.id,))


def _step(step: Step) -> IndexKey:
    return (step.task_id,), (step.created_at, step.id)


def _updated_step(step: Step) -> IndexKey:
    return (step.tenant,), (step.updated_at, step.id)


def _signal(signal: Signal) -> IndexKey:
    return (signal.task_id,), (signal.at, signal.id)


def _gate(gate: Gate) -> IndexKey:
    return (gate.tenant,), (gate.id,)


def _idle_gate(gate: Gate) -> IndexKey | None:
    return None if gate.idle_since is None else ((), (gate.idle_since, gate.id))


def _schedule(schedule: Schedule) -> IndexKey:
    return (), (schedule.created_at, schedule.id)


def _of_tenant(record: Task | Template | ApiKey) -> IndexKey:
    return (record.tenant,), (record.id,)


def _calendar(calendar: Calendar) -> IndexKey:
    return (calendar.tenant,), (calendar.name, calendar.id)


def _paused(paused: PausedQueue) -> IndexKey:
    return (paused.tenant,), (paused.queue, paused.id)


def _alarm(alarm: Alarm) -> IndexKey:
    return (), (alarm.began_at, alarm.id)


def _alarm_of_tenant(alarm: Alarm) -> IndexKey:
    return (alarm.tenant,), (alarm.began_at, alarm.id)


def _open_alarm(alarm: Alarm) -> IndexKey | None:
    return ((alarm.subject_id,), (alarm.began_at, alarm.id)) if alarm.over_at is None else None


def _untold_alarm(alarm: Alarm) -> IndexKey | None:
    return None if alarm.tell_at is None else ((), (alarm.tell_at, alarm.id))


def _old_alarm(alarm: Alarm) -> IndexKey | None:
    return None if alarm.over_at is None else ((), (alarm.over_at, alarm.id))


def _id(record: ApiKey | Tenant | NodeState) -> IndexKey:
    return (), (record.id,)


INDEXES: dict[str, tuple[type[Record], Callable[[Any], IndexKey | None]]] = {
    "ready": (Task, _ready),
    "line": (Task, _line),
    "lease": (Task, _lease),
    "expiry": (Task, _expiry),
    "cancelling": (Task, _cancelling),
    "live": (Task, _live),
    "finished": (Task, _finished),
    "returned": (Task, _returned),
    "workflow": (Task, _workflow),
    "task": (Task, _of_tenant),
    "task_created": (Task, _created),
    "task_status": (Task, _status),
    "due": (Schedule, _due),
    "next_time": (Schedule, _next_time),
    "watch": (Schedule, _watch),
    "zone": (Schedule, _zone),
    "living_key": (Schedule, _living_key),
    "open_key": (Schedule, _open_key),
    "deleted_key": (Schedule, _deleted_key),
    "schedule_completed": (Schedule, _schedule_completed),
    "schedule_created": (Schedule, _created),
    "schedule": (Schedule, _schedule),
    "run": (Run, _run),
    "run_ended": (Run, _run_ended),
    "event_of_tenant": (Event, _event_of_tenant),
    "event_of_subject": (Event, _event_of_subject),
    "event": (Event, _at),
    "template": (Template, _of_tenant),
    "alias": (Template, _alias),
    "key_of_tenant": (ApiKey, _of_tenant),
    "key": (ApiKey, _id),
    "tenant": (Tenant, _id),
    "receipt": (Receipt, _at),
    "gate": (Gate, _gate),
    "idle_gate": (Gate, _idle_gate),
    "node": (NodeState, _id),
    "paused": (PausedQueue, _paused),
    "calendar": (Calendar, _calendar),
    "artifact": (Artifact, _artifact),
    "content": (Artifact, _content),
    "step": (Step, _step),
    "updated_step": (Step, _updated_step),
    "signal": (Signal, _signal),
    "alarm": (Alarm, _alarm),
    "alarm_of_tenant": (Alarm, _alarm_of_tenant),
    "open_alarm": (Alarm, _open_alarm),
    "untold_alarm": (Alarm, _untold_alarm),
    "old_alarm": (Alarm, _old_alarm),
}
