"""The records that Rota stores, and the words for their states and policies.

All are frozen. Times are aware UTC datetimes; durations are timedeltas. `version` counts the writes of a record (0: not
stored yet), and only the store moves it. This module has shapes, and questions that a record can answer by itself; the
rules that change a record are in `task.py`, `schedule.py` and `definition.py`. In such a question a naive datetime is
the local time of the process.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from .history import ChangeType, describe
from .recurrence import Timing, next_after

__all__ = [
    "LIVE",
    "ApiKey",
    "Change",
    "ChangeType",
    "Event",
    "Failure",
    "Gate",
    "Limit",
    "Limits",
    "LogLine",
    "MissedRunPolicy",
    "OverlapPolicy",
    "Receipt",
    "Record",
    "RetryPolicy",
    "Role",
    "Run",
    "RunReason",
    "RunStatus",
    "RunTrigger",
    "Runtime",
    "Schedule",
    "ScheduleStatus",
    "Target",
    "Task",
    "TaskRequest",
    "TaskStatus",
    "TaskTarget",
    "Template",
    "TemplateTarget",
    "Tenant",
    "TenantStatus",
    "WorkflowTarget",
    "is_from_the_future",
]


class TaskStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    ARCHIVED = "archived"

    Pending = PENDING
    Running = RUNNING
    Completed = COMPLETED
    Failed = FAILED
    Cancelled = CANCELLED
    Expired = EXPIRED
    Archived = ARCHIVED


LIVE = frozenset({TaskStatus.PENDING, TaskStatus.RUNNING})


class ScheduleStatus(StrEnum):
    DRAFT = "draft"
    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"

    @classmethod
    def _missing_(cls, value: object) -> ScheduleStatus | None:
        return cls.PAUSED if value == "inactive" else None


class MissedRunPolicy(StrEnum):
    SKIP = "skip"
    EXECUTE_ONCE = "execute_once"
    CATCH_UP = "catch_up"


class OverlapPolicy(StrEnum):
    SKIP = "skip"
    ALLOW = "allow"
    CANCEL_PREVIOUS = "cancel_previous"


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class RunTrigger(StrEnum):
    SCHEDULED = "scheduled"
    MANUAL = "manual"
    CATCH_UP = "catch_up"


class RunReason(StrEnum):
    """Why a run is not simply `completed`."""

    MISSED = "missed"
    OVERLAP = "overlap"
    CHANGED = "changed"
    LIMIT = "limit"
    BAD_TARGET = "bad_target"
    EXPIRED = "expired"
    SUSPENDED = "suspended"


class TenantStatus(StrEnum):
    ACTIVE = "active"
    SUSPENDED = "suspended"


class Role(StrEnum):
    """What a key may do: look; run, pause, trigger and submit; or everything."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Runtime(StrEnum):
    """How a template is run."""

    PYTHON = "python"


_NO_STEP = timedelta(seconds=2)
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A part of a record. Frozen data has no cycles, so that the collector need not look for them."""


class Record(Value, frozen=True, kw_only=True):
    """What a store keeps: it has an identity, an owner and a count of its writes."""

    id: str
    tenant: str = "default"
    version: int = 0


class RetryPolicy(Value, frozen=True, kw_only=True):
    """Backoff: `initial * multiplier ** retries`, at most `maximum`, spread by `jitter` to either side."""

    initial: timedelta = timedelta(seconds=1)
    multiplier: float = 2.0
    maximum: timedelta = timedelta(seconds=60)
    jitter: float = 0.25


class Failure(Value, frozen=True, kw_only=True):
    """What went wrong in a handler, as it can be stored."""

    type: str
    message: str
    traceback: str | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class Change(Value, frozen=True, kw_only=True):
    """One line of a task's history: what happened, and the status since then. The facts from `attempt` on belong to
    some types only. `expires_at` is the expiry that the change set; `was` is the status of a task that was archived."""

    number: int
    at: datetime
    status: TaskStatus
    actor: str
    type: ChangeType
    attempt: int | None = None
    retry: int | None = None
    max_retries: int | None = None
    delay: timedelta = timedelta(0)
    expires_at: datetime | None = None
    was: TaskStatus | None = None
    reason: str = ""

    @property
    def detail(self) -> str:
        """What happened, in words."""
        return describe(self)


class LogLine(Value, frozen=True, kw_only=True):
    """One line that a handler logged."""

    at: datetime
    attempt: int
    message: str


class Runnable(Record, frozen=True, kw_only=True):
    """What a task and a template have in common: what to run, and how. `None` in max_retries, retry_policy, timeout: as
    the handler was registered."""

    kind: str
    queue: str = "default"
    priority: int = 128
    max_retries: int | None = None
    max_reschedules: int | None = None
    retry_policy: RetryPolicy | None = None
    timeout: timedelta | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    limit_key: str | None = None


class Task(Runnable, frozen=True, kw_only=True, tag_field="record", tag="task.1"):
    """One piece of work. `scheduled_at` is the time of the schedule that it runs for, if a schedule started it; `trace`
    is the W3C traceparent of whoever submitted it.

    `gates` are the limits that it has to pass, by the ids of their gates, and `passed` is how many it has passed.
    `line` is the gate in whose line it waits, since `lined_at`. A rate gives it a time, `available_at`; it has to start
    by `slot_until`, or ask for another."""

    is_workflow: bool = False
    input: Any = None
    output: Any = None
    error: Failure | None = None
    status: TaskStatus = TaskStatus.PENDING
    created_at: datetime
    available_at: datetime
    expires_at: datetime | None = None
    expired_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    updated_at: datetime
    attempt: int = 0
    retries: int = 0
    reschedules: int = 0
    lease_id: str | None = None
    lease_expires_at: datetime | None = None
    worker_id: str | None = None
    cancel_requested: bool = False
    cancelled_by: str | None = None
    cancel_reason: str | None = None
    schedule_id: str | None = None
    run_id: str | None = None
    scheduled_at: datetime | None = None
    idempotency_key: str | None = None
    trace: str | None = None
    progress: Any = None
    logs: tuple[LogLine, ...] = ()
    history: tuple[Change, ...] = ()
    gates: tuple[str, ...] = ()
    passed: int = 0
    line: str | None = None
    lined_at: datetime | None = None
    slot_until: datetime | None = None

    @property
    def task_type(self) -> str:
        return self.kind

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    @property
    def last_change(self) -> ChangeType | None:
        """What happened to it last."""
        return self.history[-1].type if self.history else None

    @property
    def returned_at(self) -> datetime | None:
        """Since when it waits *again*: after a retry, a reschedule, a lost lease, a replay."""
        again = self.status is TaskStatus.PENDING and self.updated_at != self.created_at
        return self.updated_at if again else None

    @property
    def ready_at(self) -> datetime:
        """When a worker may find it: in a line, never."""
        return self.available_at if self.line is None else END_OF_TIME

    def is_expired_at(self, at: datetime) -> bool:
        """Past its expiry and never started, or already marked so."""
        if self.status is TaskStatus.EXPIRED:
            return True
        return (
            self.status is TaskStatus.PENDING
            and self.expires_at is not None
            and _aware(at) >= self.expires_at
        )

    def is_available_at(self, at: datetime) -> bool:
        at = _aware(at)
        is_ready = self.status is TaskStatus.PENDING and self.line is None and at >= self.available_at
        return is_ready and not self.is_expired_at(at)

    def as_of(self, now: datetime) -> Task:
        """How this task reads at `now`: a pending one past its expiry is expired, swept or not. One that had no time to
        live has that in its history, too."""
        if self.status is not TaskStatus.PENDING or not self.is_expired_at(now):
            return self
        at = self.created_at
        if self.expires_at is None or self.expires_at > at or not self.history:
            return msgspec.structs.replace(self, status=TaskStatus.EXPIRED)
        last = self.history[-1]
        line = Change(
            number=last.number + 1,
            at=at,
            status=TaskStatus.EXPIRED,
            actor=last.actor,
            type=ChangeType.EXPIRED,
        )
        return msgspec.structs.replace(
            self,
            status=TaskStatus.EXPIRED,
            expired_at=at,
            completed_at=at,
            history=(*self.history, line),
        )


class TaskRequest(Value, frozen=True, kw_only=True):
    """What to run, and how: the fields that `options.TaskOptions` declares, as they are stored. `None`: as the handler
    was registered."""

    kind: str
    queue: str = "default"
    input: Any = None
    max_retries: int | None = None
    metadata: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    ttl: timedelta | None = None
    priority: int = 128
    timeout: timedelta | None = None
    max_reschedules: int | None = None
    retry_policy: RetryPolicy | None = None
    limit_key: str | None = None


class TaskTarget(TaskRequest, frozen=True, kw_only=True, tag_field="type", tag="task"):
    """A schedule that submits a task."""


class WorkflowTarget(TaskRequest, frozen=True, kw_only=True, tag_field="type", tag="workflow"):
    """A schedule that starts a workflow."""


class TemplateTarget(Value, frozen=True, kw_only=True, tag_field="type", tag="template"):
    """A schedule that runs a stored template, its parameters overlaid with `input`."""

    template_id: str
    input: Any = None


Target = TaskTarget | WorkflowTarget | TemplateTarget


class Schedule(Record, frozen=True, kw_only=True, tag_field="record", tag="schedule.1"):
    """When to run what. `next_run_at` is the nominal time; `due_at` is when a tick fires it: jitter added.
    `misfire_grace` is None unless one was given: then it is the shorter of a minute and the distance to the next
    time."""

    key: str
    description: str = ""
    timing: Timing
    target: Target
    status: ScheduleStatus = ScheduleStatus.ACTIVE
    next_run_at: datetime | None = None
    due_at: datetime | None = None
    last_run_at: datetime | None = None
    last_task_id: str | None = None
    run_count: int = 0
    max_runs: int | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    missed_run_policy: MissedRunPolicy = MissedRunPolicy.SKIP
    misfire_grace: timedelta | None = None
    catch_up_window: timedelta = timedelta(days=365)
    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    jitter: timedelta = timedelta(0)
    pause_note: str | None = None
    pause_on_failure: bool = False
    completed_reason: str | None = None
    metadata: dict[str, Any] = {}
    zone_data: str = ""
    created_by: str | None = None
    updated_by: str | None = None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None

    @property
    def schedule_id(self) -> str:
        return self.key

    @property
    def name(self) -> str:
        return self.key

    @property
    def enabled(self) -> bool:
        return self.status is ScheduleStatus.ACTIVE and self.deleted_at is None

    @property
    def is_open(self) -> bool:
        """Neither deleted nor completed: what counts towards a tenant's limit."""
        return self.deleted_at is None and self.status is not ScheduleStatus.COMPLETED

    @property
    def completed_at(self) -> datetime | None:
        """When it completed, or was changed last since then; None: it has not completed."""
        return self.updated_at if self.status is ScheduleStatus.COMPLETED else None

    @property
    def timezone(self) -> str:
        return getattr(self.timing, "timezone", "UTC")

    def is_due(self, now: datetime) -> bool:
        return self.enabled and self.due_at is not None and self.due_at <= _aware(now)

    def has_reached_end_date(self, now: datetime) -> bool:
        return self.end_at is not None and _aware(now) > self.end_at

    def has_reached_max_executions(self) -> bool:
        return self.max_runs is not None and self.run_count >= self.max_runs

    def next_occurrence(self, after: datetime) -> datetime | None:
        """The first time after `after` that the timing and its bounds allow, whatever the status is."""
        return next_after(self.timing, _aware(after), start_at=self.start_at, end_at=self.end_at)


class Run(Record, frozen=True, kw_only=True, tag_field="record", tag="run.1"):
    """The ledger: one row for every time a schedule was expected to run.

    A run of misses is one row: `scheduled_at` is the first, `until` the last, `count` how many."""

    schedule_id: str
    scheduled_at: datetime
    until: datetime | None = None
    count: int = 1
    trigger: RunTrigger = RunTrigger.SCHEDULED
    status: RunStatus = RunStatus.RUNNING
    reason: RunReason | None = None
    target_type: str = "task"
    target_id: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: str | None = None
    created_at: datetime
    actor: str | None = None


class Template(Runnable, frozen=True, kw_only=True, tag_field="record", tag="template.1"):
    """A stored task definition: what to run, kept apart from when."""

    alias: str
    runtime: Runtime = Runtime.PYTHON
    command: str = ""
    parameters: dict[str, Any] = {}
    ttl: timedelta | None = None
    enabled: bool = True
    created_at: datetime
    updated_at: datetime


class Limit(Value, frozen=True, kw_only=True):
    """At most `concurrency` tasks at once, and at most `rate` of them ("100/m"); with `key`, for each value that this
    field of their input has. None: no such limit, and one for all of them."""

    concurrency: int | None = None
    rate: str | None = None
    key: str | None = None


class Gate(Record, frozen=True, kw_only=True, tag_field="record", tag="gate.1"):
    """The state of a limit for one key. `subject` is what is limited ("kind:mail", "queue:mail"). `inside` have passed
    and not ended, `waiting` are in its line, and `next_at` is the next moment that its rate leaves free."""

    subject: str
    key: str | None = None
    limit: Limit
    inside: int = 0
    waiting: int = 0
    next_at: datetime | None = None
    updated_at: datetime

    @property
    def idle_since(self) -> datetime | None:
        """Since when nobody needs it; None: someone does."""
        if self.inside or self.waiting:
            return None
        return self.updated_at if self.next_at is None else max(self.next_at, self.updated_at)


class Limits(Value, frozen=True, kw_only=True):
    """What one tenant may use. `pending_tasks`: None is no limit; to count costs time on every submission. `tasks` has
    the limits of its tasks by what they limit ("kind:mail", "queue:mail")."""

    schedules: int = 10_000
    pending_tasks: int | None = None
    minimum_interval: timedelta = timedelta(seconds=1)
    input_bytes: int = 1024 * 1024
    tasks: dict[str, Limit] = {}


class Tenant(Record, frozen=True, kw_only=True, tag_field="record", tag="tenant.1"):
    """Who owns records. `id` is its name; a tenant without a record has the default limits."""

    status: TenantStatus = TenantStatus.ACTIVE
    limits: Limits = Limits()
    created_at: datetime


class ApiKey(Record, frozen=True, kw_only=True, tag_field="record", tag="key.1"):
    """Who may do what over HTTP. The key itself is shown once, to whoever creates it; `digest` is the SHA-256 of its
    secret part. `tenant` is `*` for a key to every tenant."""

    name: str
    role: Role
    digest: str
    created_at: datetime
    created_by: str
    revoked_at: datetime | None = None
    revoked_by: str | None = None


class Receipt(Record, frozen=True, kw_only=True, tag_field="record", tag="receipt.1"):
    """What was answered to a request that carried an Idempotency-Key, so that it is answered the same again."""

    at: datetime
    fingerprint: str
    status: int
    answer: Any = None


class Event(Record, frozen=True, kw_only=True, tag_field="record", tag="event.1"):
    """What someone did to a schedule, template, tenant or key: append-only."""

    at: datetime
    actor: str
    action: str
    subject_type: str
    subject_id: str
    detail: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


def is_from_the_future(written_at: datetime, now: datetime) -> bool:
    """Whether a clock that was ahead wrote it, and was set back since. Two seconds are no step."""
    return written_at > now + _NO_STEP


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.astimezone(UTC)
