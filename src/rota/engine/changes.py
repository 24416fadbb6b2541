"""Follows a tenant: the changes since a time, in the order in which they happened.

**Source.** No log of changes is written: it would double the writes of every task. Changes are read from indexes that
exist anyway. A task that changed since T was created since T, or runs, or waits again since T, or ended since T. Its
history has every change, so changes between two looks are told, too. A run follows its task; a run without a task
(skipped, not startable) is found by its end. The steps of workflows are found by when they were last recorded. The acts
of people are in the audit.

**Notices.** `notices_of` is pure: it makes one notice for each change that a record tells. A task tells each line of
its history, and the change of its run with it. A step tells what it is by now: it waits, is tried again, has ended.

**Late commits.** A change has the time at which its transaction began, so it may become visible after later ones. A
look therefore reaches back by `OVERLAP`, and leaves out what was told. A client that resumes behind a cursor starts
`OVERLAP` earlier and may hear a notice again: delivery is at least once, and the cursor of a notice identifies it.

**Not told**: lines that a task's history no longer holds (it keeps 50), records that retention has removed, the
archiving of a task, and commits that came more than `OVERLAP` after their transaction began.

**Cost.** A look is seven range scans: six begin at `since`, one covers every running task. It reads again the records
of the last `OVERLAP`: at R tasks a second about 10 R records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from ..domain.model import (
    Alarm,
    ApiKey,
    Calendar,
    Change,
    ChangeType,
    Event,
    Record,
    Run,
    Schedule,
    StepKind,
    Task,
    TaskStatus,
    Template,
    Tenant,
)
from ..domain.workflow import Step
from ..stores.base import Store, Tx
from ..stores.queries import (
    Cursor,
    EndedRuns,
    EndedTasks,
    EventList,
    LostLeases,
    Query,
    ReturnedTasks,
    TaskList,
    UpdatedSteps,
)
from .work import as_work

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"([0-9]{1,18})-[\x20-\x7e]{0,300}")


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One change: `task.completed`, `run.skipped`, `schedule.paused`, … `record` is as it is now, which may be later
    than the change; None if it is gone. `line` is the line of the task's history, `event` that of the audit."""

    at: datetime
    type: str
    action: str
    id: str
    number: int = 1
    record: Record | None = None
    line: Change | None = None
    event: Event | None = None
    schedule: Schedule | None = None
    task_id: str | None = None
    order: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.type}.{self.action}"

    @property
    def schedule_id(self) -> str | None:
        if self.type == "schedule":
            return self.id
        if isinstance(self.record, Alarm):
            return self.record.subject_id
        return self.record.schedule_id if isinstance(self.record, (Task, Run)) else None

    @property
    def cursor(self) -> str:
        """Every node gives a change the same one. A reader goes on behind it."""
        source = (
            self.id if self.event is None else self.event.id
        )  # not every line of the audit makes a version
        return cursor(self.at, f"{self.type}:{source}:{self.number}")


def cursor(at: datetime, rest: str = "") -> str:
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{rest}"


def time_of_cursor(text: str) -> datetime | None:
    """None: it is no cursor."""
    found = _CURSOR.fullmatch(text)
    try:
        return None if found is None else _EPOCH + timedelta(microseconds=int(found[1]))
    except OverflowError:
        return None


_ENDS = {
    TaskStatus.COMPLETED: "completed",
    TaskStatus.FAILED: "failed",
    TaskStatus.CANCELLED: "cancelled",
    TaskStatus.EXPIRED: "skipped",
}
"""How a run ends when its task does (`run.follows`)."""

_ACTIONS = {
    ChangeType.CREATED: "created",
    ChangeType.CLAIMED: "started",
    ChangeType.CANCEL_REQUESTED: "cancelling",
    ChangeType.RETRIED: "retrying",
    ChangeType.RESCHEDULED: "rescheduled",
    ChangeType.RELEASED: "returned",
    ChangeType.REPLAYED: "replayed",
    ChangeType.COMPLETED: "completed",
    ChangeType.FAILED: "failed",
    ChangeType.CANCELLED: "cancelled",
    ChangeType.EXPIRED: "expired",
}
"""The word for a change in the name of its notice."""


def notices_of(record: Task | Step | Run | Event) -> Iterator[Notice]:
    """Everything that a record tells, in order."""
    match record:
        case Task():
            yield from _of_task(record)
        case Step():
            yield Notice(
                at=record.updated_at,
                type="step",
                action=_step_action(record),
                id=record.id,
                number=_number(record),
                record=record,
                task_id=record.task_id,
                order=_step_order(record),
            )
        case Run():
            at = record.completed_at or record.created_at
            order = (at, 0, record.id, 1, 0)
            yield Notice(
                at=at, type="run", action=str(record.status), id=record.id, record=record, order=order
            )
        case Event():
            version = _version(record)
            yield Notice(
                at=record.at,
                type=record.subject_type,
                action=record.action,
                id=record.subject_id,
                number=version,
                event=record,
                order=(record.at, 1, record.subject_id, version, 0),
            )


def _step_order(step: Step) -> tuple[Any, ...]:
    """Steps come behind the claim and before the next change of the task. Of the same time, ended steps come before
    waiting ones."""
    return (step.updated_at, 0, step.task_id, 2, 3, not step.is_over, step.number or 0)


def _number(step: Step) -> int:
    """It waits, each try that failed, its end: not the version, which also counts that the code got the answer."""
    return 1 + step.attempts + step.is_over


def _step_action(step: Step) -> str:
    if step.is_over:
        return str(step.status)
    return "retrying" if step.kind in (StepKind.STEP, StepKind.UNDO) else "waiting"


def _version(event: Event) -> int:
    """The version that the event made of its subject; for one that is gone, the one it would have made."""
    if event.after is not None:
        return int(event.after.get("version", 1))
    return 1 + int((event.before or {}).get("version", 0))


def _of_task(task: Task) -> Iterator[Notice]:
    at = task.created_at
    for line in task.history:
        at = max(at, line.at)  # in the order of their numbers, also where a clock was set back
        action = _action(line)
        if action is None:
            continue
        of_run = None if task.run_id is None else _run_action(task, line, action)
        places = [(0, "run", "started")] if of_run == "started" else []
        places.append((1, "task", action))
        places += [(2, "run", of_run)] if of_run not in (None, "started") else []
        for place, type, told in places:
            yield Notice(
                at=line.at,
                type=type,
                action=told,
                id=task.id if type == "task" else task.run_id or "",
                number=line.number,
                record=task if type == "task" else None,
                line=line,
                task_id=task.id,
                order=(at, 0, task.id, line.number, place),
            )


def _action(line: Change) -> str | None:
    """None: the change is not told."""
    match line.type:
        case ChangeType.LEASE_LOST:
            return "retrying" if line.status is TaskStatus.PENDING else "failed"
        case ChangeType.CLOCK_SET_BACK:
            return "returned" if line.status is TaskStatus.PENDING else None
        case type:
            return _ACTIONS.get(type)


def _run_action(task: Task, line: Change, action: str) -> str | None:
    if action == "created":
        return "started"
    if line.status is TaskStatus.EXPIRED and task.error is not None:
        return "failed"
    return "replayed" if action == "replayed" else _ENDS.get(line.status)


OVERLAP = timedelta(seconds=10)
LIMIT = 10_000
"""So many notices are told at once; of more, only that they were too many."""

MARKED_AT_MOST = 200_000
RUNNING_AT_MOST = 100_000
PAGE = 1000

Mark = tuple[int, datetime]
"""Up to which number the lines of a record were told, and the time of the last of them."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Everything since a time but what was told. `marks`: also say up to where everything is told then."""

    since: datetime
    told: Mapping[str, Mark] = {}
    limit: int = LIMIT
    marks: bool = False


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, as of `at`. With `too_many` there are no notices; without `marks` they were too many, too."""

    at: datetime
    notices: list[Notice] = []
    too_many: bool = False
    marks: dict[str, Mark] | None = None


@as_work
async def changes_since(tx: Tx, tenant: str, *asks: Ask) -> list[Found]:
    """An answer to each, from the same snapshot."""
    return [await _answer(tx, tenant, ask) for ask in asks]


async def _answer(tx: Tx, tenant: str, ask: Ask) -> Found:
    since = ask.since if tx.now >= ask.since else tx.now - OVERLAP  # a clock that was set back
    gathered = _Gathered(ask, since)
    await _walk_tasks(tx, tenant, since, gathered.take)
    await _walk_others(tx, tenant, since, gathered.take)
    too_many = len(gathered.notices) > ask.limit
    return Found(
        at=tx.now,
        notices=[] if too_many else await _described(tx, gathered.notices),
        too_many=too_many,
        marks=None if gathered.has_too_many_marks else gathered.marks,
    )


class _Gathered:
    """The changes in some records that an asker has not heard of."""

    def __init__(self, ask: Ask, since: datetime) -> None:
        self._ask = ask
        self._since = since
        self._seen: set[str] = set()
        self.notices: list[Notice] = []
        self.marks: dict[str, Mark] = {}

    @property
    def has_too_many_marks(self) -> bool:
        return len(self.marks) > MARKED_AT_MOST

    def take(self, record: Task | Step | Run | Event) -> bool:
        """Whether it goes on: more would change the answer."""
        if record.id not in self._seen:
            self._seen.add(record.id)
            self._take(record)
        return not self.has_too_many_marks if self._ask.marks else len(self.notices) <= self._ask.limit

    def _take(self, record: Task | Step | Run | Event) -> None:
        told = self._ask.told.get(record.id, (0, None))[0]
        if told >= _last_number(record, told):
            return
        new = [each for each in notices_of(record) if each.number > told and each.order[0] >= self._since]
        if new and self._ask.marks:
            self.marks[record.id] = (max(each.number for each in new), max(each.order[0] for each in new))
        if len(self.notices) <= self._ask.limit:
            self.notices += new


def _last_number(record: Task | Step | Run | Event, told: int) -> int:
    """Of its notices. Only a task has several, and a step changes; of another, what was told was all."""
    if isinstance(record, Step):
        return _number(record)
    if not isinstance(record, Task):
        return told or 1
    return record.history[-1].number if record.history else 0


async def _walk_tasks(tx: Tx, tenant: str, since: datetime, take: Callable[[Any], bool]) -> None:
    """Every task that changed since, some twice."""
    newest = TaskList(tenant=tenant, at=tx.now)
    await _walk(tx, newest, "created_at", lambda task: task.created_at >= since and take(task))
    for task in await tx.find(LostLeases(at=None), RUNNING_AT_MOST):
        if task.tenant == tenant and task.updated_at >= since and not take(task):
            break
    await _walk(tx, ReturnedTasks(tenant=tenant, since=since), "updated_at", take)
    await _walk(tx, EndedTasks(tenant=tenant, since=since), "completed_at", take)


async def _walk_others(tx: Tx, tenant: str, since: datetime, take: Callable[[Any], bool]) -> None:
    """Every step, every row that ended without a task, and every line of the audit."""
    await _walk(tx, UpdatedSteps(tenant=tenant, since=since), "updated_at", take)
    rows = EndedRuns(tenant=tenant, since=since)
    await _walk(tx, rows, "completed_at", lambda row: row.target_id is not None or take(row))
    await _walk(tx, EventList(tenant=tenant, after=Cursor(at=since, id="")), "at", take)


async def _walk(tx: Tx, query: Query[Record], at: str, take: Callable[[Any], bool]) -> None:
    """Give what a listing finds to `take`, while it goes on. The first page is small: most looks find little."""
    size = PAGE // 10
    while True:
        page = await tx.find(query, size)
        if not all(take(record) for record in page) or len(page) < size:
            return
        query = replace(query, after=Cursor(at=getattr(page[-1], at), id=page[-1].id))
        size = PAGE


_SUBJECTS: dict[str, type[Record]] = {
    "run": Run,
    "schedule": Schedule,
    "template": Template,
    "calendar": Calendar,
    "alarm": Alarm,
    "key": ApiKey,
    "tenant": Tenant,
}


async def _described(tx: Tx, notices: list[Notice]) -> list[Notice]:
    """In order, with the records that they are about; without runs that are gone."""
    records: dict[tuple[str, str], Record] = {}
    for name, type in _SUBJECTS.items():
        ids = {each.id for each in notices if each.type == name and each.record is None}
        found = await tx.get_many(type, ids)
        records |= {(name, id): record for id, record in found.items()}
    full = [_with_record(each, records, tx.now) for each in sorted(notices, key=lambda each: each.order)]
    full = [each for each in full if each.type != "run" or each.record is not None]
    schedules = await _schedules(tx, full)
    return [replace(each, schedule=schedules.get(each.schedule_id or "")) for each in full]


def _with_record(notice: Notice, records: Mapping[tuple[str, str], Record], now: datetime) -> Notice:
    record = notice.record or records.get((notice.type, notice.id))
    return replace(notice, record=record.as_of(now) if isinstance(record, Task) else record)


async def _schedules(tx: Tx, notices: Iterable[Notice]) -> dict[str, Schedule]:
    ids = {id for each in notices if (id := each.schedule_id) is not None}
    return await tx.get_many(Schedule, ids)


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The notices of a look: for those who follow, and for one who begins anew behind a cursor (`missed`). `again_in`:
    when to look again, even if nothing changes."""

    at: datetime
    notices: list[Notice] = []
    too_many: bool = False
    missed: Found | None = None
    again_in: timedelta | None = None


class ChangeFollower:
    """Follows a tenant: each look brings what has not been told. The first brings nothing; it learns what there is."""

    def __init__(self, store: Store, tenant: str, limit: int = LIMIT) -> None:
        self._store = store
        self._tenant = tenant
        self._limit = limit
        self._told: dict[str, Mark] = {}
        self._since: datetime | None = None
        self._too_many_until: datetime | None = None

    async def look(self, behind: datetime | None = None) -> Look:
        """`behind`: also what changed since that time, whether it was told or not."""
        is_first = self._since is None
        since = self._since or await self._store.now() - OVERLAP
        asks = [Ask(since=since, told=self._told, limit=self._limit, marks=True)]
        if behind is not None:
            asks.append(Ask(since=behind - OVERLAP, limit=self._limit))
        found, *rest = await self._store.read(changes_since(self._tenant, *asks))
        too_many = self._note(found) or found.too_many
        return Look(
            at=found.at,
            notices=[] if is_first else found.notices,
            too_many=too_many and not is_first,
            missed=rest[0] if rest else None,
            again_in=None if self._too_many_until is None else self._too_many_until - found.at,
        )

    def _note(self, found: Found) -> bool:
        """Remember what is told now. If that is too much, begin anew from here (True); and True again when what
        had begun before must be visible: it was not told."""
        if found.marks is None:
            self._told, self._since = {}, found.at
            self._too_many_until = found.at + OVERLAP
            return True
        since = found.at - OVERLAP
        if self._too_many_until is not None:
            assert self._since is not None
            since = max(since, min(self._since, found.at))
        told = self._told | found.marks
        self._told = {id: mark for id, mark in told.items() if mark[1] >= since}
        self._since = since
        is_over = self._too_many_until is not None and found.at >= self._too_many_until
        if is_over:
            self._too_many_until = None
        return is_over
