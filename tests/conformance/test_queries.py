"""Every named index: its filter, its order, its limit, its cursor; each against its sentence in `queries.py`,
in Python.

The oracle is a plain `sorted(filter(everything))`. The population has few distinct times, so orders are
decided by ids, and every shape that a filter distinguishes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import product
from typing import Any, NamedTuple

import pytest

from loops import tidy_runner
from records import (
    CONTENTS,
    FIXED,
    FLOWS,
    GATES,
    KINDS,
    OWNERS,
    QUEUES,
    SCHEDULES,
    TAGS,
    TENANTS,
    WORKERS,
    ZONES,
    population,
)
from rota.domain.model import (
    LIVE,
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
from rota.domain.template import alias_key
from rota.domain.workflow import Signal, Step
from rota.stores import queries
from rota.stores.base import Store
from rota.stores.queries import (
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
    ScheduleList,
    SchedulesByBeginning,
    SchedulesByKeys,
    SchedulesByName,
    SchedulesByNextTime,
    SignalList,
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
from stores import START, STORES, TestClock, opened_store, put, reading
from worlds import THOROUGH

TIMES = [START + timedelta(minutes=m) for m in (-9, -5, -1, 0, 3, 9)]
EVERYTHING = 10**6
FLOW_IDS: tuple[tuple[str, ...], ...] = ((), (FLOWS[0],), (*FLOWS, FLOWS[0]), ("nobody",))


class Sentence(NamedTuple):
    """What a docstring says: which record, which filter, which order; `newest`: both keys descending."""

    record: type[Record]
    matches: Callable[[Any, Any], bool]
    order: Callable[[Any], Any]
    newest: bool = False


def status_at(task: Task, at: datetime) -> TaskStatus:
    past = task.status == "pending" and task.expires_at is not None and task.expires_at <= at
    return TaskStatus.EXPIRED if past else task.status


def given(wanted: Any, found: Any) -> bool:
    return wanted is None or wanted == found


def one_of(wanted: Any, found: Any) -> bool:
    return wanted is None or found in wanted


def due(at: datetime | None, time: datetime | None) -> bool:
    return time is not None and (at is None or time <= at)


def lane(q: Any, t: Task) -> bool:
    return (
        t.status == "pending"
        and t.line is None
        and one_of(q.queues, t.queue)
        and one_of(q.kinds, t.kind)
        and given(q.tenant, t.tenant)
    )


def alive(s: Schedule) -> bool:
    return s.status == "active" and s.deleted_at is None


def behind(q: Any, time: datetime, id: str, newest: bool = True) -> bool:
    if q.after is None:
        return True
    return (time, id) < (q.after.at, q.after.id) if newest else (time, id) > (q.after.at, q.after.id)


def ended(q: Any, record: Task | Run) -> bool:
    """Of the tenant and over, since then: of a task or a run that has ended."""
    at = record.completed_at
    is_over = record.status not in LIVE if isinstance(record, Task) else record.status != "running"
    return (
        record.tenant == q.tenant
        and is_over
        and at is not None
        and at >= q.since
        and behind(q, at, record.id, newest=False)
    )


def waits_again(t: Task) -> bool:
    return t.status == "pending" and t.updated_at != t.created_at and not t.waits_for


def idle_since(g: Gate) -> datetime:
    return max(g.updated_at, g.next_at or g.updated_at)


def told_of(s: Schedule) -> tuple[str, ...]:
    """Where a text is looked for."""
    return (s.key, s.description, getattr(s.target, "kind", ""), *getattr(s.target, "tags", ()))


def listed_schedule(q: ScheduleList, s: Schedule) -> bool:
    is_there = q.deleted or s.deleted_at is None
    return is_there and matching_schedule(q, s) and behind(q, s.created_at, s.id)


def matching_schedule(q: ScheduleList | SchedulesByName | SchedulesByNextTime, s: Schedule) -> bool:
    text = None if q.text is None else q.text.casefold()
    return (
        given(q.tenant, s.tenant)
        and given(q.status, s.status)
        and given(q.kind, getattr(s.target, "kind", None))
        and given(q.template_id, getattr(s.target, "template_id", None))
        and (q.tag is None or q.tag in getattr(s.target, "tags", ()))
        and given(q.timezone, s.timezone)
        and (text is None or any(text in each.casefold() for each in told_of(s)))
    )


SENTENCES: dict[type[Query[Record]], Sentence] = {
    DueSchedules: Sentence(
        Schedule, lambda q, s: s.deleted_at is None and due(q.at, s.due_at), lambda s: (s.due_at, s.id)
    ),
    OutdatedZones: Sentence(
        Schedule, lambda q, s: alive(s) and s.zone_data not in ("", q.zone_data), lambda s: s.id
    ),
    ReadyTasks: Sentence(
        Task,
        lambda q, t: (
            lane(q, t)
            and t.available_at <= q.at
            and status_at(t, q.at) == "pending"
            and t.id not in q.without
        ),
        lambda t: (-t.priority, t.available_at, t.id),
    ),
    UpcomingTasks: Sentence(
        Task,
        lambda q, t: lane(q, t) and t.available_at > q.after and status_at(t, q.after) == "pending",
        lambda t: (t.available_at, t.id),
    ),
    TasksInLine: Sentence(
        Task,
        lambda q, t: t.line in q.gates and status_at(t, q.at) == "pending",
        lambda t: (t.line, -t.priority, t.lined_at, t.id),
    ),
    PlannedTasks: Sentence(
        Task,
        lambda q, t: t.planned_by == q.gate and t.status == "pending" and t.available_at > q.after,
        lambda t: (t.available_at, t.id),
    ),
    LostLeases: Sentence(
        Task,
        lambda q, t: t.status == "running" and due(q.at, t.lease_expires_at),
        lambda t: (t.lease_expires_at, t.id),
    ),
    PastExpiry: Sentence(
        Task, lambda q, t: t.status == "pending" and due(q.at, t.expires_at), lambda t: (t.expires_at, t.id)
    ),
    HeldTasks: Sentence(
        Task,
        lambda q, t: t.status == "running" and t.lease_expires_at and t.worker_id == q.worker_id,
        lambda t: (t.lease_expires_at, t.id),
    ),
    Cancelling: Sentence(
        Task,
        lambda q, t: t.status == "running" and t.cancel_requested and t.worker_id == q.worker_id,
        lambda t: t.id,
    ),
    LiveTasks: Sentence(
        Task,
        lambda q, t: t.status in LIVE and t.schedule_id in q.schedule_ids,
        lambda t: (t.schedule_id, t.created_at, t.id),
    ),
    FinishedTasks: Sentence(
        Task,
        lambda q, t: t.status not in LIVE and t.completed_at is not None and t.completed_at < q.before,
        lambda t: (t.completed_at, t.id),
    ),
    TaskList: Sentence(
        Task,
        lambda q, t: (
            t.tenant == q.tenant
            and given(q.status, status_at(t, q.at))
            and given(q.kind, t.kind)
            and given(q.queue, t.queue)
            and given(q.schedule_id, t.schedule_id)
            and given(q.is_workflow, t.is_workflow)
            and (q.tag is None or q.tag in t.tags)
            and (q.since is None or t.created_at >= q.since)
            and behind(q, t.created_at, t.id)
        ),
        lambda t: (t.created_at, t.id),
        newest=True,
    ),
    OpenTasks: Sentence(Task, lambda q, t: t.status in LIVE, lambda t: (t.created_at, t.id)),
    TasksByBeginning: Sentence(
        Task,
        lambda q, t: t.tenant == q.tenant and t.id.startswith(q.beginning),
        lambda t: (t.created_at, t.id),
        newest=True,
    ),
    EndedTasks: Sentence(Task, ended, lambda t: (t.completed_at, t.id)),
    ReturnedTasks: Sentence(
        Task,
        lambda q, t: (
            t.tenant == q.tenant
            and waits_again(t)
            and t.updated_at >= q.since
            and behind(q, t.updated_at, t.id, newest=False)
        ),
        lambda t: (t.updated_at, t.id),
    ),
    ScheduleByKey: Sentence(
        Schedule,
        lambda q, s: (s.tenant, s.key) == (q.tenant, q.key) and (s.deleted_at is not None) == q.deleted,
        lambda s: (s.created_at, s.id),
        newest=True,
    ),
    SchedulesByKeys: Sentence(
        Schedule,
        lambda q, s: s.tenant == q.tenant and s.key in q.keys and s.deleted_at is None,
        lambda s: s.key,
    ),
    OpenSchedules: Sentence(
        Schedule,
        lambda q, s: s.tenant == q.tenant and s.deleted_at is None and s.status != "completed",
        lambda s: s.key,
    ),
    OldSchedules: Sentence(
        Schedule,
        lambda q, s: s.status == "completed" and s.updated_at < q.before,
        lambda s: (s.updated_at, s.id),
    ),
    TemplateByAlias: Sentence(
        Template,
        lambda q, m: (m.tenant, m.alias.lower().replace("-", "").replace("_", "")) == (q.tenant, q.alias_key),
        lambda m: m.id,
    ),
    SchedulesByBeginning: Sentence(
        Schedule,
        lambda q, s: s.tenant == q.tenant and s.id.startswith(q.beginning),
        lambda s: s.id,
    ),
    SchedulesByName: Sentence(
        Schedule,
        lambda q, s: s.deleted_at is None and matching_schedule(q, s) and s.key > (q.after or ""),
        lambda s: s.key,
    ),
    SchedulesByNextTime: Sentence(
        Schedule,
        lambda q, s: (
            s.deleted_at is None
            and matching_schedule(q, s)
            and behind(q, s.due_at or queries.NEVER, s.id, newest=False)
        ),
        lambda s: (s.due_at or queries.NEVER, s.id),
    ),
    ScheduleList: Sentence(Schedule, listed_schedule, lambda s: (s.created_at, s.id), newest=True),
    RunList: Sentence(
        Run,
        lambda q, r: (
            r.schedule_id == q.schedule_id
            and given(q.status, r.status)
            and (q.since is None or r.scheduled_at >= q.since)
            and (q.until is None or r.scheduled_at <= q.until)
            and behind(q, r.scheduled_at, r.id)
        ),
        lambda r: (r.scheduled_at, r.id),
        newest=True,
    ),
    LatestRuns: Sentence(
        Run,
        lambda q, r: r.schedule_id in q.schedule_ids,
        lambda r: (r.scheduled_at, r.id),
        newest=True,
    ),
    OldRuns: Sentence(
        Run,
        lambda q, r: r.status != "running" and r.completed_at is not None and r.completed_at < q.before,
        lambda r: (r.completed_at, r.id),
    ),
    EndedRuns: Sentence(Run, ended, lambda r: (r.completed_at, r.id)),
    EventList: Sentence(
        Event,
        lambda q, e: (
            e.tenant == q.tenant and given(q.subject_id, e.subject_id) and behind(q, e.at, e.id, newest=False)
        ),
        lambda e: (e.at, e.id),
    ),
    OldEvents: Sentence(Event, lambda q, e: e.at < q.before, lambda e: (e.at, e.id)),
    TemplateList: Sentence(
        Template,
        lambda q, m: m.tenant == q.tenant and (q.after is None or m.id < q.after),
        lambda m: m.id,
        newest=True,
    ),
    ApiKeyList: Sentence(
        ApiKey,
        lambda q, k: given(q.tenant, k.tenant) and (q.after is None or k.id < q.after),
        lambda k: k.id,
        newest=True,
    ),
    TenantList: Sentence(Tenant, lambda q, n: q.after is None or n.id > q.after, lambda n: n.id),
    GateList: Sentence(
        Gate,
        lambda q, g: (
            g.tenant == q.tenant and given(q.subject, g.subject) and (q.after is None or g.id > q.after)
        ),
        lambda g: g.id,
    ),
    IdleGates: Sentence(
        Gate,
        lambda q, g: not g.inside and not g.has_line and idle_since(g) < q.before,
        lambda g: (idle_since(g), g.id),
    ),
    ArtifactList: Sentence(
        Artifact, lambda q, a: a.task_id in q.task_ids, lambda a: (a.task_id, a.name, a.id)
    ),
    ArtifactsByContent: Sentence(Artifact, lambda q, a: a.content in q.contents, lambda a: (a.content, a.id)),
    StepList: Sentence(Step, lambda q, s: s.task_id in q.task_ids, lambda s: (s.task_id, s.created_at, s.id)),
    UpdatedSteps: Sentence(
        Step,
        lambda q, s: (
            s.tenant == q.tenant and s.updated_at >= q.since and behind(q, s.updated_at, s.id, newest=False)
        ),
        lambda s: (s.updated_at, s.id),
    ),
    SignalList: Sentence(
        Signal,
        lambda q, g: g.task_id in q.task_ids and not (q.unread and g.received_at is not None),
        lambda g: (g.task_id, g.at, g.id),
    ),
    OldReceipts: Sentence(Receipt, lambda q, r: r.at < q.before, lambda r: (r.at, r.id)),
    NodeList: Sentence(NodeState, lambda q, n: q.after is None or n.id > q.after, lambda n: n.id),
    CalendarList: Sentence(Calendar, lambda q, c: c.tenant == q.tenant, lambda c: (c.name, c.id)),
    PausedQueues: Sentence(PausedQueue, lambda q, p: p.tenant == q.tenant, lambda p: (p.queue, p.id)),
    WatchedSchedules: Sentence(Schedule, lambda q, s: due(q.at, s.watch_at), lambda s: (s.watch_at, s.id)),
    OpenAlarms: Sentence(
        Alarm,
        lambda q, a: a.over_at is None and a.subject_id in q.subject_ids,
        lambda a: (a.subject_id, a.began_at, a.id),
    ),
    AlarmList: Sentence(
        Alarm,
        lambda q, a: (
            given(q.tenant, a.tenant)
            and given(q.subject_id, a.subject_id)
            and not (q.is_open and a.over_at is not None)
            and behind(q, a.began_at, a.id)
        ),
        lambda a: (a.began_at, a.id),
        newest=True,
    ),
    UntoldAlarms: Sentence(Alarm, lambda q, a: due(q.at, a.tell_at), lambda a: (a.tell_at, a.id)),
    OldAlarms: Sentence(
        Alarm, lambda q, a: a.over_at is not None and a.over_at < q.before, lambda a: (a.over_at, a.id)
    ),
}


def expected(query: Query[Record], records: Iterable[Record]) -> list[Record]:
    sentence = SENTENCES[type(query)]
    found = [each for each in records if type(each) is sentence.record and sentence.matches(query, each)]
    if isinstance(query, ReadyTasks):
        paused = {(each.tenant, each.queue) for each in records if isinstance(each, PausedQueue)}
        found = [each for each in found if (each.tenant, getattr(each, "queue", "")) not in paused]
    found = sorted(found, key=sentence.order, reverse=sentence.newest)
    if isinstance(query, ScheduleList) and query.newest is not None:
        every = expected(ScheduleList(tenant=query.tenant, deleted=True), records)
        return [each for each in found if each in every[: query.newest]]
    if isinstance(query, SchedulesByName | SchedulesByNextTime) and query.first is not None:
        every = expected(type(query)(tenant=query.tenant), records)
        return [each for each in found if each in every[: query.first]]
    if isinstance(query, TasksInLine):
        return first_of_each(found, "line", query.gates, query.most)
    if isinstance(query, LatestRuns):
        return first_of_each(found, "schedule_id", query.schedule_ids, query.most)
    return found


def first_of_each(found: list[Record], field: str, wanted: Iterable[str], most: int) -> list[Record]:
    groups = [[each for each in found if getattr(each, field) == value] for value in sorted(set(wanted))]
    return [each for group in groups for each in group[:most]]


def some(*values: Any) -> tuple[Any, ...]:
    return (None, *values)


def lanes() -> Iterator[dict[str, Any]]:
    queues = (None, ("default",), ("mail", "ärger"), ("nowhere",), ())
    kinds = (None, ("send",), ("aaa", "report", "zzz"), ("send", "send_later"), ("nothing",), ())
    for q, k, tenant in product(queues, kinds, some("other")):
        yield {"queues": q, "kinds": k, "tenant": tenant}


def task_lists() -> Iterator[Query[Record]]:
    for tenant, at, status in product(TENANTS, (TIMES[0], START, TIMES[-1]), some(*TaskStatus)):
        filters: tuple[dict[str, Any], ...] = (
            {},
            {"kind": KINDS[0]},
            {"queue": QUEUES[2]},
            {"schedule_id": "s1"},
            {"tag": TAGS[0]},
        )
        for one, two in product(filters, filters[-2:]):
            yield TaskList(tenant=tenant, at=at, status=status, **(one | two))
        yield TaskList(tenant=tenant, at=at, status=status)
        yield from (TaskList(tenant=tenant, at=at, status=status, since=since) for since in TIMES[1:5])
        yield from (
            TaskList(tenant=tenant, at=at, status=status, is_workflow=is_one) for is_one in (True, False)
        )
        yield TaskList(tenant=tenant, at=at, status=status, is_workflow=True, schedule_id="s1")


def schedule_lists() -> Iterator[Query[Record]]:
    for status, deleted in product(some(*ScheduleStatus), (False, True)):
        yield ScheduleList(tenant="default", status=status, deleted=deleted)
        yield ScheduleList(tenant=None, status=status, deleted=deleted)
        for text in ("KEY", "übersicht", "%", "_", "morning", "none of them", "", "S0", "Send_", "GENT"):
            yield ScheduleList(tenant="other", status=status, deleted=deleted, text=text)
    for kind, tag, template_id in product(some(*KINDS), some(*TAGS), some("m1")):
        yield ScheduleList(tenant="default", kind=kind, tag=tag, template_id=template_id)
    for zone, tag in product(("UTC", "Asia/Tokyo", "Asia"), some(*TAGS)):
        yield ScheduleList(tenant="default", timezone=zone, tag=tag)
    for newest, status in product((1, 3, 1000), some(*ScheduleStatus)):
        yield ScheduleList(tenant="default", newest=newest, status=status, deleted=newest == 3)


def ordered_schedules(kind: type[SchedulesByName | SchedulesByNextTime]) -> Iterator[Query[Record]]:
    for tenant, status, first in product(TENANTS, some(*ScheduleStatus), some(1, 3, 1000)):
        yield kind(tenant=tenant, status=status, first=first)
    for text, tag, first in product(some("KEY", "none of them"), some(*TAGS), some(5)):
        yield kind(tenant="default", text=text, tag=tag, first=first)


def since_then(kind: Any, records: list[Record]) -> Iterator[Query[Record]]:
    """With bounds before, at and behind each other."""
    ids = sorted(each.id for each in records if type(each) is SENTENCES[kind].record)
    cursors = some(*(Cursor(at=at, id=id) for at, id in product(TIMES[1:5], ("", ids[len(ids) // 2], "z"))))
    for tenant, at, after in product((*TENANTS, "nobody"), TIMES, cursors):
        yield kind(tenant=tenant, since=at, after=after)


def by_id(kind: type[Query[Record]], records: list[Record]) -> Iterator[Query[Record]]:
    ids = sorted(each.id for each in records if type(each) is SENTENCES[kind].record)
    for after in some(ids[0], ids[3], ids[-1], "", "\U0010fffe"):
        if kind is GateList:
            of = product((*TENANTS, "nobody"), some("queue:mail", "queue:nothing"))
            yield from (GateList(tenant=tenant, subject=subject, after=after) for tenant, subject in of)
            continue
        if kind in (TenantList, NodeList):
            yield kind(after=after)
        elif kind is TemplateList:
            yield from (TemplateList(tenant=tenant, after=after) for tenant in (*TENANTS, "nobody"))
        else:
            yield from (ApiKeyList(tenant=tenant, after=after) for tenant in some(*TENANTS, "*", "nobody"))


def questions(kind: type[Query[Record]], records: list[Record]) -> list[Query[Record]]:
    """Every way to ask that makes a difference. With `make test`, of many about fifty, from all over them."""
    every = list(every_question(kind, records))
    return every if THOROUGH else every[:: max(1, len(every) // 35)]


def every_question(kind: type[Query[Record]], records: list[Record]) -> Iterator[Query[Record]]:
    if kind in (DueSchedules, LostLeases, PastExpiry, WatchedSchedules, UntoldAlarms):
        yield from (kind(at=at) for at in some(*TIMES))
    elif kind is OpenTasks:
        yield OpenTasks()
    elif kind is TasksByBeginning or kind is SchedulesByBeginning:
        known = [each.id for each in records if type(each) is SENTENCES[kind].record]
        beginnings = ("", "nobody", *known[:2], *(id[:length] for id in known[::5] for length in (1, 2, 8)))
        yield from (kind(tenant=who, beginning=each) for who in TENANTS for each in dict.fromkeys(beginnings))
    elif kind in (EndedTasks, ReturnedTasks, EndedRuns, UpdatedSteps):
        yield from since_then(kind, records)
    elif kind is TasksInLine:
        some_gates = [(), *((gate,) for gate in GATES), (*reversed(GATES), "none", GATES[0])]
        for gates, most, at in product(some_gates, (1, 100), TIMES):
            yield TasksInLine(gates=gates, most=most, at=at)
    elif kind is PlannedTasks:
        yield from (PlannedTasks(gate=gate, after=at) for gate, at in product((*GATES, "none"), TIMES))
    elif kind in (PausedQueues, CalendarList):
        yield from (kind(tenant=tenant) for tenant in (*TENANTS, "nobody", "no one"))
    elif kind in (TemplateList, ApiKeyList, TenantList, NodeList, GateList):
        yield from by_id(kind, records)
    elif kind in (FinishedTasks, OldRuns, OldEvents, OldReceipts, OldSchedules, IdleGates, OldAlarms):
        yield from (kind(before=at) for at in TIMES)
    elif kind is ReadyTasks:
        yield from (ReadyTasks(at=at, **each) for at, each in product(TIMES, lanes()))
        ids = tuple(each.id for each in records if type(each) is Task)
        yield from (ReadyTasks(at=TIMES[-1], without=some) for some in (ids, ids[::2], ("nothing",)))
    elif kind is UpcomingTasks:
        yield from (UpcomingTasks(after=at, **each) for at, each in product(TIMES, lanes()))
    elif kind in (Cancelling, HeldTasks):
        yield from (kind(worker_id=worker) for worker in (*WORKERS, "nobody"))
    elif kind is LiveTasks:
        yield from (
            LiveTasks(schedule_ids=ids) for ids in ((), ("s1",), ("s3", "s1", "s1"), SCHEDULES, ("s9",))
        )
    elif kind is ArtifactList:
        yield from (ArtifactList(task_ids=ids) for ids in ((), ("t1",), (*OWNERS, "t1"), ("nobody",)))
    elif kind is ArtifactsByContent:
        yield from (ArtifactsByContent(contents=keys) for keys in ((), CONTENTS[:1], CONTENTS, ("c" * 64,)))
    elif kind is OpenAlarms:
        yield from (OpenAlarms(subject_ids=ids) for ids in ((), ("s1",), (*SCHEDULES, "fleet"), ("s9",)))
    elif kind is AlarmList:
        for tenant, subject, is_open in product(some(*TENANTS, "*"), some("s1", "s9"), (True, False)):
            yield AlarmList(tenant=tenant, subject_id=subject, is_open=is_open)
    elif kind is StepList:
        yield from (StepList(task_ids=ids) for ids in FLOW_IDS)
    elif kind is SignalList:
        yield from (SignalList(task_ids=ids, unread=unread) for ids in FLOW_IDS for unread in (True, False))
    elif kind is OutdatedZones:
        yield from (OutdatedZones(zone_data=zone) for zone in (*ZONES, "1999z"))
    elif kind is TaskList:
        yield from task_lists()
    elif kind is OpenSchedules:
        yield from (OpenSchedules(tenant=tenant) for tenant in (*TENANTS, "nobody"))
    elif kind is ScheduleList:
        yield from schedule_lists()
    elif kind is SchedulesByName or kind is SchedulesByNextTime:
        yield from ordered_schedules(kind)
    elif kind is TemplateByAlias:
        keys = [alias_key(each.alias) for each in records if isinstance(each, Template)][:20]
        yield from (TemplateByAlias(tenant=t, alias_key=k) for t, k in product(TENANTS, (*keys, "nobody")))
    elif kind is ScheduleByKey:
        keys = [each.key for each in records if isinstance(each, Schedule)][:20]
        yield from (
            ScheduleByKey(tenant=t, key=k, deleted=d) for t, k, d in product(TENANTS, keys, (False, True))
        )
    elif kind is SchedulesByKeys:
        keys = [each.key for each in records if isinstance(each, Schedule)][:20]
        some_keys = ((), tuple(keys), ("nobody", *keys[:2]), (keys[0], keys[0]))
        yield from (SchedulesByKeys(tenant=t, keys=each) for t, each in product(TENANTS, some_keys))
    elif kind is RunList:
        for each, status, since, until in product(
            SCHEDULES, some(*RunStatus), some(*TIMES[1:4]), some(*TIMES[3:])
        ):
            yield RunList(schedule_id=each, status=status, since=since, until=until)
    elif kind is LatestRuns:
        for ids, most in product(((), ("s1",), ("s3", "s1", "s1"), SCHEDULES, ("s9",)), (1, 3, 100)):
            yield LatestRuns(schedule_ids=ids, most=most)
    elif kind is EventList:
        yield from (EventList(tenant=t, subject_id=s) for t, s in product(TENANTS, some(*SCHEDULES, "s9")))


def fill(store: Store, runner: asyncio.Runner) -> dict[str, Record]:
    stored = runner.run(put(store, *population(seed=7, size=150)))
    return {each.id: each for each in stored}


@pytest.fixture
def filled(store: Store, runner: asyncio.Runner) -> dict[str, Record]:
    """The store with the population in it; the records as stored."""
    return fill(store, runner)


class TestEveryQuery:
    """Nothing is written here, so a store is filled once for all kinds of query; each kind fails by itself."""

    @pytest.fixture(scope="class")
    @classmethod
    def runner(cls) -> Iterator[asyncio.Runner]:
        with tidy_runner() as runner:
            yield runner

    @pytest.fixture(scope="class", params=STORES)
    @classmethod
    def store(
        cls,
        request: pytest.FixtureRequest,
        tmp_path_factory: pytest.TempPathFactory,
        runner: asyncio.Runner,
    ) -> Iterator[Store]:
        clock = TestClock(runner.get_loop())
        with opened_store(request.param, tmp_path_factory.mktemp("store"), clock, runner) as store:
            yield store

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, store: Store, runner: asyncio.Runner) -> dict[str, Record]:
        return fill(store, runner)

    @pytest.mark.parametrize("kind", SENTENCES, ids=lambda kind: kind.__name__)
    async def test_query(self, store: Store, filled: dict[str, Record], kind: type[Query[Record]]) -> None:
        records = list(filled.values())
        hits = await reading(store, lambda tx: right_answers(tx, kind, records))
        assert hits, "no question found anything: the test shows nothing"


async def right_answers(tx: Any, kind: type[Query[Record]], records: list[Record]) -> int:
    """How many questions of a kind found something; the first ten with every limit, the others with each in turn."""
    hits = 0
    for number, query in enumerate(questions(kind, records)):
        wanted = expected(query, records)
        hits += bool(wanted)
        assert await tx.find(query, EVERYTHING) == wanted, query
        assert await tx.count(query) == len(wanted), query
        limits = (1, len(wanted), 2, len(wanted) + 1, 0)
        for limit in limits if number < 10 else [limits[number % len(limits)]]:
            found = await tx.find(query, limit)
            assert [each.id for each in found] == [each.id for each in wanted[:limit]], (query, limit)
            assert await tx.count(query, at_most=limit) == len(wanted[:limit]), (query, limit)
    return hits


def test_every_query_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Query.__subclasses__())


PAGED = (
    *(TaskList(tenant="default", at=START, status=status) for status in some(*TaskStatus)),
    TaskList(tenant="other", at=START, schedule_id="s2"),
    ScheduleList(tenant="default", deleted=True),
    ScheduleList(tenant="other", status=ScheduleStatus.ACTIVE),
    ScheduleList(tenant="default", newest=5),
    SchedulesByName(tenant="default"),
    SchedulesByName(tenant="default", first=5),
    SchedulesByNextTime(tenant="default"),
    SchedulesByNextTime(tenant="other", first=5, status=ScheduleStatus.ACTIVE),
    RunList(schedule_id="s1"),
    RunList(schedule_id="s1", since=TIMES[1], until=TIMES[4]),
    EventList(tenant="default"),
    EventList(tenant="default", subject_id="s1"),
    TaskList(tenant="default", at=START, is_workflow=True),
    ScheduleList(tenant=None),
    EndedTasks(tenant="default", since=TIMES[1]),
    EndedRuns(tenant="other", since=TIMES[2]),
    ReturnedTasks(tenant="default", since=TIMES[0]),
    UpdatedSteps(tenant="default", since=TIMES[0]),
    TemplateList(tenant="other"),
    ApiKeyList(tenant=None),
    ApiKeyList(tenant="default"),
    TenantList(),
)


TIME_OF: dict[type[Any], str] = {
    TaskList: "created_at",
    ScheduleList: "created_at",
    SchedulesByNextTime: "due_at",
    RunList: "scheduled_at",
    EventList: "at",
    EndedTasks: "completed_at",
    EndedRuns: "completed_at",
    ReturnedTasks: "returned_at",
    UpdatedSteps: "updated_at",
}


@pytest.mark.parametrize("size", [1, 3, 50] if THOROUGH else [3])
async def test_pages_cover_everything_exactly_once(
    store: Store, filled: dict[str, Record], size: int
) -> None:
    async def ask(tx: Any) -> None:
        for query in PAGED:
            wanted = expected(query, filled.values())
            seen = [each async for each in pages(tx, query, size)]
            assert seen == wanted, query

    await reading(store, ask)


async def pages(tx: Any, query: Any, size: int) -> Any:
    values = {name: getattr(query, name) for name in query.__struct_fields__}
    while page := await tx.find(type(query)(**values), size):
        for each in page:
            yield each
        time = TIME_OF.get(type(query))
        last = page[-1]
        if isinstance(query, SchedulesByName):
            values["after"] = last.key
        else:
            at = None if time is None else getattr(last, time) or queries.NEVER
            values["after"] = last.id if at is None else Cursor(at=at, id=last.id)


async def test_get_many(store: Store, filled: dict[str, Record]) -> None:
    wanted = {each.id: each for each in filled.values() if type(each) is Task}
    ids = [*wanted, "nobody", *list(wanted)[:3]]

    async def ask(tx: Any) -> None:
        assert await tx.get_many(Task, ids) == wanted
        assert await tx.get_many(Task, iter(ids[:2])) == {each: wanted[each] for each in ids[:2]}
        assert await tx.get_many(Task, []) == {}
        assert await tx.get_many(Run, ids) == {}

    await reading(store, ask)


async def test_thousands_of_ids_at_once(store: Store) -> None:
    async def ask(tx: Any) -> None:
        ids = tuple(f"id-{n}" for n in range(50_000))
        assert await tx.get_many(Task, ids) == {}
        assert await tx.find(LiveTasks(schedule_ids=ids), 10) == []

    await reading(store, ask)


async def test_a_query_inside_a_transaction_sees_the_same(store: Store, filled: dict[str, Record]) -> None:
    async def ask(tx: Any) -> list[Any]:
        return list(await tx.find(ReadyTasks(at=START), 10, lock=True))

    assert (
        await store.transact(ask)
        == await store.read(ask)
        == expected(ReadyTasks(at=START), filled.values())[:10]
    )


async def test_indexes_follow_every_change(store: Store, filled: dict[str, Record]) -> None:
    """Each record becomes another of its type (as far as it may), or goes; then all queries are asked
    again."""
    others = iter(population(seed=8, size=150))
    by_type: dict[type, list[Record]] = {}
    for each in others:
        by_type.setdefault(type(each), []).append(each)
    changes, gone = [], []
    for n, old in enumerate(filled.values()):
        new = by_type[type(old)].pop()
        if n % 7 == 0:
            gone.append(old)
        else:
            kept = {name: getattr(old, name) for name in FIXED if name in old.__struct_fields__}
            values = {name: getattr(new, name) for name in new.__struct_fields__} | kept
            changes.append(type(old)(**values))

    async def work(tx: Any) -> list[Record]:
        for each in gone:
            tx.delete(each)
        return [tx.put(each) for each in changes]

    after = await store.transact(work)

    async def ask(tx: Any) -> None:
        for kind in SENTENCES:
            for query in questions(kind, after)[::5]:
                assert await tx.find(query, EVERYTHING) == expected(query, after), query
                assert await tx.count(query) == len(expected(query, after)), query

    await reading(store, ask)
