"""The named indexes: each query type says which record it finds, with which filter, in which order. `base.py` has the
rest of the contract."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Generic, TypeVar, get_args

import msgspec

from ..domain.model import (
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
from ..domain.workflow import Signal, Step

R = TypeVar("R", bound=Record, covariant=True)

LONG_BEGINNING = 8
"""From so many characters on, few ids begin with the same: those in order of creation that were made within about a
minute. Tasks are then found by their ids; by a shorter beginning, among all tasks of the tenant."""
NEVER = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
"""Where a time that is not set stands in an order by time."""


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a listing stopped: the sort key of the last record seen."""

    at: datetime
    id: str


class Query(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A named index. Each subclass says which record it finds, with which filter, in which order."""


class DueSchedules(Query[Schedule], frozen=True, kw_only=True):
    """Schedule: not deleted, `due_at` set and <= `at` (None: any). By due_at, id."""

    at: datetime | None


class OutdatedZones(Query[Schedule], frozen=True, kw_only=True):
    """Schedule: active, not deleted, `zone_data` set and other than the one given. By id."""

    zone_data: str


class ReadyTasks(Query[Task], frozen=True, kw_only=True):
    """Task: pending, in no line, available_at <= `at`, not past its expiry at `at`, in one of `queues`, of one of
    `kinds`, of `tenant` (None for each: any), in no queue that its tenant has paused (PausedQueue), and none of
    `without`, which are ids. By priority (highest first), available_at, id."""

    at: datetime
    queues: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    tenant: str | None = None
    without: tuple[str, ...] = ()


class UpcomingTasks(Query[Task], frozen=True, kw_only=True):
    """Task: as ReadyTasks, but available_at > `after`. By available_at, id. Asked with limit 1: when to
    wake."""

    after: datetime
    queues: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    tenant: str | None = None


class LostLeases(Query[Task], frozen=True, kw_only=True):
    """Task: running, lease_expires_at set and <= `at` (None: any). By lease_expires_at, id."""

    at: datetime | None


class HeldTasks(Query[Task], frozen=True, kw_only=True):
    """Task: running under `worker_id`, lease_expires_at set. By lease_expires_at, id."""

    worker_id: str


class PastExpiry(Query[Task], frozen=True, kw_only=True):
    """Task: pending, expires_at set and <= `at` (None: any). By expires_at, id."""

    at: datetime | None


class Cancelling(Query[Task], frozen=True, kw_only=True):
    """Task: running under `worker_id` with cancel_requested. By id."""

    worker_id: str


class LiveTasks(Query[Task], frozen=True, kw_only=True):
    """Task: pending or running, of one of `schedule_ids`. By schedule_id, created_at, id."""

    schedule_ids: tuple[str, ...]


class TasksInLine(Query[Task], frozen=True, kw_only=True):
    """Task: pending, in the line of one of `gates`, not past its expiry at `at`; of each line the first `most`. By
    line, priority (highest first), lined_at, id."""

    gates: tuple[str, ...]
    most: int
    at: datetime


class PlannedTasks(Query[Task], frozen=True, kw_only=True):
    """Task: pending, planned by `gate`, available_at > `after`. By available_at, id."""

    gate: str
    after: datetime


class FinishedTasks(Query[Task], frozen=True, kw_only=True):
    """Task: ended (any status but pending and running), completed_at < `before`. By completed_at, id."""

    before: datetime


class TaskList(Query[Task], frozen=True, kw_only=True):
    """Task: of `tenant`, matching every filter that is given. `status` is the status *as read at `at`*: a
    pending task whose expires_at <= `at` counts as expired, not as pending. With `since`: created_at >= `since`,
    and no older ones are looked at. Newest first: created_at, id, both descending; `after` continues behind a
    cursor."""

    tenant: str
    at: datetime
    status: TaskStatus | None = None
    kind: str | None = None
    queue: str | None = None
    schedule_id: str | None = None
    tag: str | None = None
    is_workflow: bool | None = None
    since: datetime | None = None
    after: Cursor | None = None


class TasksByBeginning(Query[Task], frozen=True, kw_only=True):
    """Task: of `tenant`, whose id begins with `beginning`. Newest first: created_at, id, both descending."""

    tenant: str
    beginning: str


class OpenTasks(Query[Task], frozen=True, kw_only=True):
    """Task: pending or running, of any tenant. By created_at, id."""


class SinceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """`since` is where a listing by time begins, `after` where it goes on."""

    tenant: str
    since: datetime
    after: Cursor | None = None

    @property
    def bound(self) -> Cursor:
        """Both as one cursor: all records that are found lie behind it."""
        since = Cursor(at=self.since, id="")
        return since if self.after is None else max(since, self.after, key=lambda each: (each.at, each.id))


class EndedTasks(Query[Task], SinceFilter, frozen=True, kw_only=True):
    """Task: of `tenant`, ended, completed_at >= `since`. By completed_at, id; `after` continues behind a cursor."""


class ReturnedTasks(Query[Task], SinceFilter, frozen=True, kw_only=True):
    """Task: of `tenant`, pending again (`Task.returned_at` set) and returned_at >= `since`. By returned_at, id; `after`
    continues behind a cursor."""


class ScheduleByKey(Query[Schedule], frozen=True, kw_only=True):
    """Schedule: of `tenant` with `key`; living ones, or deleted ones (`deleted`). Newest first: created_at,
    id, descending."""

    tenant: str
    key: str
    deleted: bool = False


class SchedulesByKeys(Query[Schedule], frozen=True, kw_only=True):
    """Schedule: of `tenant`, living, with one of `keys`. By key."""

    tenant: str
    keys: tuple[str, ...]


class OpenSchedules(Query[Schedule], frozen=True, kw_only=True):
    """Schedule: of `tenant`, neither deleted nor completed. By key. Every store knows their number without counting."""

    tenant: str


class OldSchedules(Query[Schedule], frozen=True, kw_only=True):
    """Schedule: completed (deleted or not), completed_at < `before`. By completed_at, id."""

    before: datetime


class ScheduleFilter(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is the target's kind, `template_id` the target's template, `tag` one of the target's tags, `timezone` the
    zone of its timing, `text` a part of key, description, kind or a tag, any letter case."""

    status: ScheduleStatus | None = None
    kind: str | None = None
    template_id: str | None = None
    tag: str | None = None
    timezone: str | None = None
    text: str | None = None


class ScheduleList(Query[Schedule], ScheduleFilter, frozen=True, kw_only=True):
    """Schedule: of `tenant` (None: any), matching every filter given.
    Deleted ones are left out unless `deleted` is set: then they are listed among the living. With `newest` (and a
    tenant): they are looked for among so many newest of the tenant, deleted ones counted. By created_at, id, both
    descending; `after` continues behind a cursor."""

    tenant: str | None
    deleted: bool = False
    newest: int | None = None
    after: Cursor | None = None


class SchedulesByBeginning(Query[Schedule], frozen=True, kw_only=True):
    """Schedule: of `tenant`, living or deleted, whose id begins with `beginning`. By id."""

    tenant: str
    beginning: str


class SchedulesByName(Query[Schedule], ScheduleFilter, frozen=True, kw_only=True):
    """Schedule: of `tenant`, living, matching every filter given. With `first`: they are looked for among so many first
    of the tenant. By key; `after` continues behind a key."""

    tenant: str
    first: int | None = None
    after: str | None = None


class SchedulesByNextTime(Query[Schedule], ScheduleFilter, frozen=True, kw_only=True):
    """Schedule: of `tenant`, living, matching every filter given. With `first`: they are looked for among so many first
    of the tenant. By `due_at`, id; those without one come last, as if they were due at `NEVER`; `after` continues
    behind a cursor."""

    tenant: str
    first: int | None = None
    after: Cursor | None = None


class RunList(Query[Run], frozen=True, kw_only=True):
    """Run: of `schedule_id`, scheduled_at in [since, until]. Latest first: scheduled_at, id, both
    descending."""

    schedule_id: str
    status: RunStatus | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: Cursor | None = None


class LatestRuns(Query[Run], frozen=True, kw_only=True):
    """Run: of one of `schedule_ids`; of each schedule the latest `most`. By schedule_id; of one schedule latest first:
    scheduled_at, id, both descending."""

    schedule_ids: tuple[str, ...]
    most: int

    @property
    def by_schedule(self) -> list[RunList]:
        """The same as one query for each schedule, in this order: each with the limit `most`."""
        return [RunList(schedule_id=id) for id in sorted(set(self.schedule_ids))]


class OldRuns(Query[Run], frozen=True, kw_only=True):
    """Run: not running, completed_at < `before`. By completed_at, id."""

    before: datetime


class EndedRuns(Query[Run], SinceFilter, frozen=True, kw_only=True):
    """Run: of `tenant`, not running, completed_at >= `since`. By completed_at, id; `after` continues behind a
    cursor."""


class EventList(Query[Event], frozen=True, kw_only=True):
    """Event: of `tenant`, about `subject_id` if given. Oldest first: at, id; `after` continues behind a
    cursor."""

    tenant: str
    subject_id: str | None = None
    after: Cursor | None = None


class OldEvents(Query[Event], frozen=True, kw_only=True):
    """Event: at < `before`. By at, id."""

    before: datetime


class ArtifactList(Query[Artifact], frozen=True, kw_only=True):
    """Artifact: of one of the tasks `task_ids`. By task_id, name, id."""

    task_ids: tuple[str, ...]


class ArtifactsByContent(Query[Artifact], frozen=True, kw_only=True):
    """Artifact: whose content is one of `contents`. By content, id."""

    contents: tuple[str, ...]


class StepList(Query[Step], frozen=True, kw_only=True):
    """Step: of one of the tasks `task_ids`. By task_id, created_at, id."""

    task_ids: tuple[str, ...]


class UpdatedSteps(Query[Step], SinceFilter, frozen=True, kw_only=True):
    """Step: of `tenant`, updated_at >= `since`. By updated_at, id; `after` continues behind a cursor."""


class SignalList(Query[Signal], frozen=True, kw_only=True):
    """Signal: of one of the tasks `task_ids`; with `unread`, those that were not received yet. By task_id, at, id."""

    task_ids: tuple[str, ...]
    unread: bool = False


class TemplateByAlias(Query[Template], frozen=True, kw_only=True):
    """Template: of `tenant`, whose alias is compared as `alias_key`. There is at most one."""

    tenant: str
    alias_key: str


class TemplateList(Query[Template], frozen=True, kw_only=True):
    """Template: of `tenant`. Newest first, as their ids have it: id, descending; `after` continues behind an id."""

    tenant: str
    after: str | None = None


class ApiKeyList(Query[ApiKey], frozen=True, kw_only=True):
    """ApiKey: of `tenant` (None: any), revoked ones too. Newest first: id, descending; `after` continues behind an
    id."""

    tenant: str | None
    after: str | None = None


class TenantList(Query[Tenant], frozen=True, kw_only=True):
    """Tenant: all. By id; `after` continues behind an id."""

    after: str | None = None


class NodeList(Query[NodeState], frozen=True, kw_only=True):
    """NodeState: all, of any tenant. By id; `after` continues behind an id."""

    after: str | None = None


class PausedQueues(Query[PausedQueue], frozen=True, kw_only=True):
    """PausedQueue: of `tenant`. By queue, id."""

    tenant: str


class CalendarList(Query[Calendar], frozen=True, kw_only=True):
    """Calendar: of `tenant`. By name, id."""

    tenant: str


class WatchedSchedules(Query[Schedule], frozen=True, kw_only=True):
    """Schedule: of any state, `watch_at` set and <= `at` (None: any). By watch_at, id."""

    at: datetime | None


class OpenAlarms(Query[Alarm], frozen=True, kw_only=True):
    """Alarm: not over, about one of `subject_ids`. By subject_id, began_at, id."""

    subject_ids: tuple[str, ...]


class AlarmList(Query[Alarm], frozen=True, kw_only=True):
    """Alarm: of `tenant` (None: any), about `subject_id` if given; with `is_open`, those that are not over. Newest
    first: began_at, id, both descending; `after` continues behind a cursor."""

    tenant: str | None
    subject_id: str | None = None
    is_open: bool = False
    after: Cursor | None = None


class UntoldAlarms(Query[Alarm], frozen=True, kw_only=True):
    """Alarm: `tell_at` set and <= `at` (None: any). By tell_at, id."""

    at: datetime | None


class OldAlarms(Query[Alarm], frozen=True, kw_only=True):
    """Alarm: over, over_at < `before`. By over_at, id."""

    before: datetime


class OldReceipts(Query[Receipt], frozen=True, kw_only=True):
    """Receipt: at < `before`. By at, id."""

    before: datetime


class GateList(Query[Gate], frozen=True, kw_only=True):
    """Gate: of `tenant`, of `subject` (None: any). By id; `after` continues behind an id."""

    tenant: str
    subject: str | None = None
    after: str | None = None


class IdleGates(Query[Gate], frozen=True, kw_only=True):
    """Gate: `Gate.idle_since` set and < `before`. By idle_since, id."""

    before: datetime


RECORD_OF: dict[type[Query[Record]], type[Record]] = {
    each: get_args(each.__orig_bases__[0])[0]  # type: ignore[attr-defined]  # a class with a generic base has it
    for each in Query.__subclasses__()
}
"""The record that each query finds: the `Task` of `Query[Task]`."""
