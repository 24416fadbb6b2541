"""The queries of `stores/queries.py`, answered from a `State`. Each is a walk over an index, in its order, with its
filter.

This is the reference: other stores must give the same answers. `find` and `count` cut the walk at their limit, and
`tally` runs to its end, so they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice, takewhile
from typing import Any, TypeVar

from ...domain.model import (
    LIVE,
    Alarm,
    Gate,
    Record,
    Run,
    Schedule,
    Task,
    TaskStatus,
)
from ...domain.workflow import Signal
from ..codec import search_text, searched, tallied, target_kind, template_id
from ..queries import (
    LONG_BEGINNING,
    AlarmList,
    ApiKeyList,
    ArtifactList,
    ArtifactsByContent,
    CalendarList,
    Cancelling,
    Cursor,
    DueSchedules,
    EndedRuns,
    EndedTasks,
    EventList,
    FinishedTasks,
    GateList,
    HeldTasks,
    IdleGates,
    LatestRuns,
    LiveTasks,
    LostLeases,
    NodeList,
    OldAlarms,
    OldEvents,
    OldReceipts,
    OldRuns,
    OldSchedules,
    OpenAlarms,
    OpenSchedules,
    OpenTasks,
    OutdatedZones,
    PastExpiry,
    PausedQueues,
    PlannedTasks,
    Query,
    ReadyTasks,
    ReturnedTasks,
    RunList,
    ScheduleByKey,
    ScheduleFilter,
    ScheduleList,
    SchedulesByBeginning,
    SchedulesByKeys,
    SchedulesByName,
    SchedulesByNextTime,
    SignalList,
    SinceFilter,
    StepList,
    TaskList,
    TasksByBeginning,
    TasksInLine,
    TemplateByAlias,
    TemplateList,
    TenantList,
    UntoldAlarms,
    UpcomingTasks,
    UpdatedSteps,
    WatchedSchedules,
)
from .indexes import INDEXES, IndexEntry
from .state import Row, State

R = TypeVar("R", bound=Record)
Walk = Callable[[State, Any], Iterator[Record]]
"""The records that a query finds in a state, in the query's order."""
Filter = Callable[[Any, Any], bool]
"""Whether a record is one that the query asks for."""
_LAST = chr(0x10FFFF)


def walk(state: State, query: Query[Record]) -> Iterator[Record]:
    """The records that the query finds, in its order. They are as the indexes see them, and are not handed out."""
    return _WALKS[type(query)](state, query)


def walk_rows(state: State, query: Query[Record]) -> Iterator[Row]:
    """The same records, as they are kept."""
    return (state.row_of(record) for record in walk(state, query))


def count(state: State, query: Query[Record], at_most: int | None) -> int:
    """How many records the walk finds; `at_most`, if there are more."""
    if isinstance(query, OpenSchedules):
        number = len(state.index["open_key"].groups.get((query.tenant,), ()))
        return number if at_most is None else min(number, at_most)
    return sum(1 for _ in islice(walk(state, query), at_most))


def tally(found: Iterable[Record], query: Query[Record], by: Sequence[str]) -> dict[tuple[str, ...], int]:
    """The number of found records by their values in these columns."""
    getters = [column.get for column in tallied(query, by)]
    return dict(Counter(tuple(str(get(record) or "") for get in getters) for record in found))


def _until(entries: Iterator[IndexEntry], at: datetime | None) -> Iterator[IndexEntry]:
    """The leading entries whose time is <= `at`, or all for None."""
    return entries if at is None else takewhile(lambda entry: entry[0] <= at, entries)


def _up_to(index: str) -> Walk:
    """The records of an index by time, up to `query.at`."""
    return lambda state, query: _of_index(state, index, _until(state.index[index].ascending(), query.at))


def _older(index: str) -> Walk:
    """The records of an index by time, before `query.before`."""

    def find(state: State, query: Any) -> Iterator[Record]:
        entries = state.index[index].ascending()
        return _of_index(state, index, takewhile(lambda entry: entry[0] < query.before, entries))

    return find


def _in_groups(index: str, field: str) -> Walk:
    """The records of some groups of an index, one group after the other: a field of the query lists them."""

    def find(state: State, query: Any) -> Iterator[Record]:
        for name in sorted(set(getattr(query, field))):
            yield from _of_index(state, index, state.index[index].ascending((name,)))

    return find


def _listed(index: str, group: str = "", where: Filter | None = None, *, newest: bool = False) -> Walk:
    """The records of one group of an index that the filter lets pass, from where the query goes on. Fields of the query
    name the group. With `newest`, in descending order."""
    fields = group.split()

    def find(state: State, query: Any) -> Iterator[Record]:
        of_group = tuple(getattr(query, field) for field in fields)
        bound = _bound(query)
        if newest:
            entries = state.index[index].descending(of_group, bound)
        else:
            entries = state.index[index].ascending(of_group, bound or ())
        found = _of_index(state, index, entries)
        return found if where is None else (record for record in found if where(record, query))

    return find


def _bound(query: Any) -> IndexEntry | None:
    """Where a listing goes on, as an entry of its index; None: at its beginning."""
    after = query.bound if isinstance(query, SinceFilter) else getattr(query, "after", None)
    if after is None:
        return None
    return (after.at, after.id) if isinstance(after, Cursor) else (after,)


def _of_tenant_or_all(of_tenant: Walk, of_all: Walk) -> Walk:
    return lambda state, query: (of_all if query.tenant is None else of_tenant)(state, query)


def _is_of_tenant(record: Record, query: Any) -> bool:
    return bool(record.tenant == query.tenant)


def _of_index(state: State, index: str, entries: Iterable[IndexEntry]) -> Iterator[Record]:
    return _records(state, INDEXES[index].type, entries)


def _records(state: State, type: type[R], entries: Iterable[IndexEntry]) -> Iterator[R]:
    return (state.peek(type, entry[-1]) for entry in entries)


def _lanes(state: State, query: ReadyTasks | UpcomingTasks) -> dict[int, list[IndexEntry]]:
    """The groups of pending tasks that the query may look into, by priority, the highest first."""
    lanes: dict[int, list[IndexEntry]] = {}
    for group in sorted(state.index["ready"].groups, key=lambda group: -group[2]):
        queue, kind, priority = group
        if (query.queues is None or queue in query.queues) and (query.kinds is None or kind in query.kinds):
            lanes.setdefault(priority, []).append(group)
    return lanes


def _ready(state: State, query: ReadyTasks) -> Iterator[Task]:
    index, paused = state.index["ready"], _paused_pairs(state)
    without = frozenset(query.without)
    for groups in _lanes(state, query).values():
        open_groups = [group for group in groups if (query.tenant, group[0]) not in paused]
        entries = merge(*(_until(index.ascending(group), query.at) for group in open_groups))
        for task in _startable(state, entries, query.at, query.tenant):
            if (task.tenant, task.queue) not in paused and task.id not in without:
                yield task


def _paused_pairs(state: State) -> set[tuple[str, str]]:
    """The queues that are paused, each with its tenant."""
    groups = state.index["paused"].groups
    return {(tenant, entry[0]) for (tenant,), entries in groups.items() for entry in entries.ascending()}


def _upcoming(state: State, query: UpcomingTasks) -> Iterator[Task]:
    index = state.index["ready"]
    groups = [group for same_priority in _lanes(state, query).values() for group in same_priority]
    entries = merge(*(_later(index.ascending(group), query.after) for group in groups))
    return _startable(state, entries, query.after, query.tenant)


def _later(entries: Iterator[IndexEntry], after: datetime) -> Iterator[IndexEntry]:
    return (entry for entry in entries if entry[0] > after)


def _startable(
    state: State, entries: Iterable[IndexEntry], at: datetime, tenant: str | None
) -> Iterator[Task]:
    for task in _records(state, Task, entries):
        if not task.is_expired_at(at) and tenant in (None, task.tenant):
            yield task


def _in_line(state: State, query: TasksInLine) -> Iterator[Task]:
    for gate in sorted(set(query.gates)):
        line = _startable(state, state.index["line"].ascending((gate,)), query.at, None)
        yield from islice(line, query.most)


def _planned(state: State, query: PlannedTasks) -> Iterator[Task]:
    return _records(state, Task, _later(state.index["planned"].ascending((query.gate,)), query.after))


def _open(state: State, query: OpenTasks) -> Iterator[Task]:
    index = state.index["task_status"]
    groups = [group for group in index.groups if group[1] in LIVE]
    return _records(state, Task, merge(*(index.ascending(group) for group in groups)))


def _task_list(state: State, query: TaskList) -> Iterator[Task]:
    for task in _records(state, Task, _task_entries(state, query)):
        if query.since is not None and task.created_at < query.since:
            return
        if (
            query.status in (None, task.as_of(query.at).status)
            and query.kind in (None, task.kind)
            and query.queue in (None, task.queue)
            and query.schedule_id in (None, task.schedule_id)
            and query.is_workflow in (None, task.is_workflow)
            and (query.tag is None or query.tag in task.tags)
        ):
            yield task


def _task_entries(state: State, query: TaskList) -> Iterator[IndexEntry]:
    """Newest first. A pending task may read as expired, so that status is two groups."""
    before = _bound(query)
    if query.is_workflow:
        return state.index["workflow"].descending((query.tenant,), before)
    if query.status is None:
        return state.index["task_created"].descending((query.tenant,), before)
    stored = [query.status, TaskStatus.PENDING] if query.status is TaskStatus.EXPIRED else [query.status]
    groups = ((query.tenant, status) for status in stored)
    return merge(*(state.index["task_status"].descending(group, before) for group in groups), reverse=True)


def _outdated_zones(state: State, query: OutdatedZones) -> Iterator[Schedule]:
    index = state.index["zone"]
    others = (group for group in index.groups if group != (query.zone_data,))
    return _records(state, Schedule, merge(*(index.ascending(group) for group in others)))


def _by_key(state: State, query: ScheduleByKey) -> Iterator[Schedule]:
    if query.deleted:
        return _records(state, Schedule, state.index["deleted_key"].descending((query.tenant, query.key)))
    return _records(state, Schedule, state.with_key(query.tenant, query.key))


def _by_keys(state: State, query: SchedulesByKeys) -> Iterator[Schedule]:
    for key in sorted(set(query.keys)):
        yield from _records(state, Schedule, state.with_key(query.tenant, key))


def _schedule_list(state: State, query: ScheduleList) -> Iterator[Schedule]:
    before = _bound(query)
    if query.tenant is None:
        entries = state.index["schedule"].descending((), before)
    else:
        entries = state.index["schedule_created"].descending((query.tenant,), before)
        if query.newest is not None:
            entries = _among_newest(state, query.tenant, query.newest, entries)
    for schedule in _records(state, Schedule, entries):
        if (query.deleted or schedule.deleted_at is None) and _matches(schedule, query):
            yield schedule


def _among_newest(
    state: State, tenant: str, newest: int, entries: Iterator[IndexEntry]
) -> Iterator[IndexEntry]:
    last = next(islice(state.index["schedule_created"].descending((tenant,)), newest - 1, None), None)
    return entries if last is None else takewhile(lambda entry: entry >= last, entries)


def _schedules_by_beginning(state: State, query: SchedulesByBeginning) -> Iterator[Schedule]:
    found = _records(state, Schedule, state.index["schedule_created"].ascending((query.tenant,)))
    return iter(
        sorted((each for each in found if each.id.startswith(query.beginning)), key=lambda each: each.id)
    )


def _by_name(state: State, query: SchedulesByName) -> Iterator[Schedule]:
    after = () if query.after is None else (query.after, _LAST)
    return _in_order(state, "living_key", query, after)


def _by_next_time(state: State, query: SchedulesByNextTime) -> Iterator[Schedule]:
    return _in_order(state, "next_time", query, _bound(query) or ())


def _in_order(
    state: State, index: str, query: SchedulesByName | SchedulesByNextTime, after: IndexEntry
) -> Iterator[Schedule]:
    entries = state.index[index].ascending((query.tenant,), after)
    if query.first is not None:
        last = next(islice(state.index[index].ascending((query.tenant,)), query.first - 1, None), None)
        entries = entries if last is None else takewhile(lambda entry: entry <= last, entries)
    return (schedule for schedule in _records(state, Schedule, entries) if _matches(schedule, query))


def _matches(schedule: Schedule, query: ScheduleFilter) -> bool:
    return (
        query.status in (None, schedule.status)
        and query.kind in (None, target_kind(schedule))
        and query.template_id in (None, template_id(schedule))
        and (query.tag is None or query.tag in getattr(schedule.target, "tags", ()))
        and query.timezone in (None, schedule.timezone)
        and (query.text is None or search_text(query.text) in searched(schedule))
    )


def _run_list(state: State, query: RunList) -> Iterator[Run]:
    entries = state.index["run"].descending((query.schedule_id,), _bound(query))
    for run in _records(state, Run, entries):
        if query.since is not None and run.scheduled_at < query.since:
            return
        if (query.until is None or run.scheduled_at <= query.until) and query.status in (None, run.status):
            yield run


def _latest_runs(state: State, query: LatestRuns) -> Iterator[Run]:
    for each in query.by_schedule:
        yield from islice(_run_list(state, each), query.most)


def _signal_list(state: State, query: SignalList) -> Iterator[Signal]:
    for task_id in sorted(set(query.task_ids)):
        for signal in _records(state, Signal, state.index["signal"].ascending((task_id,))):
            if not query.unread or signal.received_at is None:
                yield signal


def _by_beginning(state: State, query: TasksByBeginning) -> Iterator[Task]:
    if len(query.beginning) < LONG_BEGINNING:
        newest = _records(state, Task, state.index["task_created"].descending((query.tenant,), None))
        return (task for task in newest if task.id.startswith(query.beginning))
    entries = state.index["task"].ascending((query.tenant,), _just_before(query.beginning))
    found = takewhile(lambda entry: entry[0].startswith(query.beginning), entries)
    tasks = _records(state, Task, found)
    return iter(sorted(tasks, key=lambda task: (task.created_at, task.id), reverse=True))


def _just_before(beginning: str) -> IndexEntry:
    """Behind every entry that is less than this text, and before all that begin with it."""
    return (beginning[:-1] + chr(ord(beginning[-1]) - 1) + "\U0010ffff",) if beginning else ()


def _is_listed_alarm(alarm: Alarm, query: AlarmList) -> bool:
    return query.subject_id in (None, alarm.subject_id) and (alarm.is_open or not query.is_open)


def _is_listed_gate(gate: Gate, query: GateList) -> bool:
    return query.subject in (None, gate.subject)


_of_tenant = _listed("event_of_tenant", "tenant")
_of_subject = _listed("event_of_subject", "tenant subject_id")


def _event_list(state: State, query: EventList) -> Iterator[Record]:
    return (_of_tenant if query.subject_id is None else _of_subject)(state, query)


_WALKS: dict[type[Query[Record]], Walk] = {
    DueSchedules: _up_to("due"),
    LostLeases: _up_to("lease"),
    PastExpiry: _up_to("expiry"),
    UntoldAlarms: _up_to("untold_alarm"),
    WatchedSchedules: _up_to("watch"),
    FinishedTasks: _older("finished"),
    IdleGates: _older("idle_gate"),
    OldAlarms: _older("old_alarm"),
    OldEvents: _older("event"),
    OldReceipts: _older("receipt"),
    OldRuns: _older("run_ended"),
    OldSchedules: _older("schedule_completed"),
    CalendarList: _listed("calendar", "tenant"),
    Cancelling: _listed("cancelling", "worker_id"),
    HeldTasks: _listed("lease", where=lambda task, query: task.worker_id == query.worker_id),
    OpenSchedules: _listed("open_key", "tenant"),
    PausedQueues: _listed("paused", "tenant"),
    ArtifactList: _in_groups("artifact", "task_ids"),
    ArtifactsByContent: _in_groups("content", "contents"),
    LiveTasks: _in_groups("live", "schedule_ids"),
    OpenAlarms: _in_groups("open_alarm", "subject_ids"),
    StepList: _in_groups("step", "task_ids"),
    AlarmList: _of_tenant_or_all(
        _listed("alarm_of_tenant", "tenant", _is_listed_alarm, newest=True),
        _listed("alarm", "", _is_listed_alarm, newest=True),
    ),
    ApiKeyList: _of_tenant_or_all(
        _listed("key_of_tenant", "tenant", newest=True), _listed("key", newest=True)
    ),
    EndedRuns: _listed("run_ended", "", _is_of_tenant),
    EndedTasks: _listed("finished", "", _is_of_tenant),
    EventList: _event_list,
    GateList: _listed("gate", "tenant", _is_listed_gate),
    LatestRuns: _latest_runs,
    NodeList: _listed("node"),
    OpenTasks: _open,
    OutdatedZones: _outdated_zones,
    ReadyTasks: _ready,
    ReturnedTasks: _listed("returned", "tenant"),
    RunList: _run_list,
    ScheduleByKey: _by_key,
    ScheduleList: _schedule_list,
    SchedulesByKeys: _by_keys,
    SchedulesByBeginning: _schedules_by_beginning,
    SchedulesByName: _by_name,
    SchedulesByNextTime: _by_next_time,
    SignalList: _signal_list,
    TaskList: _task_list,
    TasksByBeginning: _by_beginning,
    TasksInLine: _in_line,
    PlannedTasks: _planned,
    TemplateByAlias: _listed("alias", "tenant alias_key"),
    TemplateList: _listed("template", "tenant", newest=True),
    TenantList: _listed("tenant"),
    UpcomingTasks: _upcoming,
    UpdatedSteps: _listed("updated_step", "tenant"),
}
