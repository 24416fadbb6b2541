"""Tasks, their history, and what they have in common with templates.

A change in a history carries facts: its type, and the numbers and times that belong to it. Code reads the facts. The
words are for people, and `describe` is the only place that makes them: to reword a sentence changes no figure and no
event name.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import force_setattr

from ..recurrence import MICROSECOND
from ..runtimes import Command
from .shared import Duration, Record, Value, aware, to_the_second


class ChangeType(StrEnum):
    """The kinds of changes in the life of a task."""

    CREATED = "created"
    CLAIMED = "claimed"
    RETRIED = "retried"
    RESCHEDULED = "rescheduled"
    RELEASED = "released"
    """The worker stopped before the handler ended, or cannot run it."""
    LEASE_LOST = "lease_lost"
    """The worker did not renew its lease. The status says whether the task runs again or has failed."""
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    COMPLETED = "completed"
    FAILED = "failed"
    REPLAYED = "replayed"
    ARCHIVED = "archived"
    CLOCK_SET_BACK = "clock_set_back"


def describe(change: Change) -> str:
    """The change in words. Empty where the status says it all."""
    match change.type:
        case ChangeType.CREATED:
            return (
                "created"
                if change.expires_at is None
                else f"created, expires_at: {to_the_second(change.expires_at)}"
            )
        case ChangeType.CLAIMED:
            return f"attempt {change.attempt}"
        case ChangeType.RETRIED | ChangeType.LEASE_LOST if change.retry is not None:
            return (
                f"retry {change.retry} of {change.max_retries} in {_seconds(change.delay)}: {change.reason}"
            )
        case ChangeType.RESCHEDULED:
            return f"rescheduled in {_seconds(change.delay)}{_extended(change)}{_because(change)}"
        case ChangeType.RELEASED:
            return f"handed back: {change.reason or 'the worker stopped'}"
        case ChangeType.CANCEL_REQUESTED:
            return f"cancel requested{_because(change)}"
        case ChangeType.EXPIRED:
            return f"expired_at: {to_the_second(change.at)}"
        case ChangeType.REPLAYED:
            return "replayed"
        case ChangeType.ARCHIVED:
            return f"was {change.was}"
        case ChangeType.CLOCK_SET_BACK:
            return "the clock was set back: it counts from now"
        case _:
            return change.reason


def _extended(change: Change) -> str:
    return "" if change.expires_at is None else f", expires_at extended to {to_the_second(change.expires_at)}"


def _because(change: Change) -> str:
    return f": {change.reason}" if change.reason else ""


def _seconds(delay: timedelta) -> str:
    return f"{delay.total_seconds():,.3f}".rstrip("0").rstrip(".") + " s"


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
FOREVER = datetime.max.replace(tzinfo=UTC)


class RetryPolicy(Value, frozen=True, kw_only=True):
    """Backoff: `initial * multiplier ** retries`, at most `maximum`, spread by `jitter` to either side."""

    initial: timedelta = timedelta(seconds=1)
    multiplier: float = 2.0
    maximum: timedelta = timedelta(seconds=60)
    jitter: float = 0.25

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            initial: Duration = ...,
            multiplier: float = ...,
            maximum: Duration = ...,
            jitter: float = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """A duration that a program gave in another form becomes a timedelta; a stored one is that already."""
        for name in ("initial", "maximum"):
            given = getattr(self, name)
            if isinstance(given, (int, float, str)):
                from ..checks import check_duration  # which imports the model

                force_setattr(self, name, check_duration(f"retry_policy.{name}", given))


class Failure(Value, frozen=True, kw_only=True):
    """An error of a handler, as it can be stored."""

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
        """The change in words."""
        return describe(self)


class LogLine(Value, frozen=True, kw_only=True):
    """One line that a handler logged."""

    at: datetime
    attempt: int
    message: str


class Runnable(Record, frozen=True, kw_only=True):
    """The fields that a task and a template have in common: what to run, and how. `None` in max_retries, retry_policy,
    timeout: as the handler was registered."""

    kind: str
    queue: str = "default"
    priority: int = 128
    max_retries: int | None = None
    max_reschedules: int | None = None
    retry_policy: RetryPolicy | None = None
    timeout: timedelta | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    limit_key: str | None = None


class StepKind(StrEnum):
    """The kinds of things that a workflow asks for."""

    STEP = "step"
    CHILD = "child"
    SLEEP = "sleep"
    RECEIVE = "receive"
    UNDO = "undo"


class OpenWait(msgspec.Struct, frozen=True):
    """What a parked workflow waits for: a signal by its name, anything else by the key of its step."""

    kind: StepKind
    name: str

    def __str__(self) -> str:
        return f"receive:{self.name}" if self.kind is StepKind.RECEIVE else self.name

    @property
    def words(self) -> str:
        return f"the signal {self.name}" if self.kind is StepKind.RECEIVE else self.name


class Task(Runnable, frozen=True, kw_only=True, tag_field="record", tag="task.1"):
    """One piece of work. `scheduled_at` is the time of the schedule that it runs for, if a schedule started it; `trace`
    is the W3C traceparent of its submission; `command` is that of its template, if no function runs it. `awaited`: its
    schedule has something that begins when it has ended.

    A workflow has more: the `workflow_version` of the code that it began with (None: it has not begun), how often it
    was begun anew (`rewinds`), what it waits for while it is parked, and how many signals and children it has. A child
    knows its parent and the parent's step.

    `gates` are the limits that it has to pass, by the ids of their gates, and `passed` is how many it has passed.
    `line` is the gate in whose line it waits, since `available_at`. A rate gives it a time, `available_at`; it has to
    start by `slot_until`, or ask for another. `asks_late`: it was submitted without its gates, and gets them when a
    worker would start it."""

    is_workflow: bool = False
    command: Command | None = None
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
    awaited: bool = False
    idempotency_key: str | None = None
    trace: str | None = None
    progress: Any = None
    workflow_version: int | None = None
    rewinds: int = 0
    waits_for: tuple[OpenWait, ...] = ()
    unread_signals: int = 0
    live_children: int = 0
    parent_id: str | None = None
    parent_step: str | None = None
    gates: tuple[str, ...] = ()
    passed: int = 0
    line: str | None = None
    slot_until: datetime | None = None
    asks_late: bool = False
    logs: tuple[LogLine, ...] = ()
    history: tuple[Change, ...] = ()

    @property
    def task_type(self) -> str:
        return self.kind

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    @property
    def last_change(self) -> ChangeType | None:
        """The last thing that happened to it."""
        return self.history[-1].type if self.history else None

    @property
    def returned_at(self) -> datetime | None:
        """Since when it waits *again*: after a retry, a reschedule, a lost lease, a replay. A workflow that is parked
        goes on as it is."""
        again = (
            self.status is TaskStatus.PENDING and self.updated_at != self.created_at and not self.waits_for
        )
        return self.updated_at if again else None

    @property
    def ready_at(self) -> datetime:
        """When a worker may find it: in a line, never."""
        return self.available_at if self.line is None else FOREVER

    @property
    def lined_at(self) -> datetime | None:
        """Since when it waits in a line."""
        return None if self.line is None else self.available_at

    @property
    def asks_at(self) -> datetime | None:
        """From when on it has to ask at a gate before a worker may have it: it has not passed all of them, does not
        know them, or the moment that a rate gave it is over then. None: it has not to ask. In the line of its only gate
        it has asked."""
        has_asked = self.line is not None and len(self.gates) == 1
        if self.asks_late or (self.passed < len(self.gates) and not has_asked):
            return self.available_at
        return None if self.slot_until is None else self.slot_until + MICROSECOND

    @property
    def planned_by(self) -> str | None:
        """The gate whose rate gave it the moment that it waits for."""
        return self.gates[self.passed - 1] if self.passed and self.slot_until is not None else None

    def is_expired_at(self, at: datetime) -> bool:
        """Past its expiry and never started, or already marked so."""
        if self.status is TaskStatus.EXPIRED:
            return True
        return (
            self.status is TaskStatus.PENDING and self.expires_at is not None and aware(at) >= self.expires_at
        )

    def is_available_at(self, at: datetime) -> bool:
        at = aware(at)
        is_ready = self.status is TaskStatus.PENDING and self.line is None and at >= self.available_at
        return is_ready and not self.is_expired_at(at)

    def as_of(self, now: datetime) -> Task:
        """How this task reads at `now`: a pending one past its expiry is expired, swept or not. One that had no time to
        live has that in its history, too."""
        if self.expires_at is None or self.status is not TaskStatus.PENDING or not self.is_expired_at(now):
            return self
        at = self.created_at
        if self.expires_at > at or not self.history:
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
    """A task that is asked for: what to run, and how. Its fields are those that `options.TaskOptions` declares, as they
    are stored. `None`: as the handler was registered."""

    kind: str
    queue: str = "default"
    input: Any = None
    max_retries: int | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    tags: tuple[str, ...] = ()
    ttl: timedelta | None = None
    priority: int = 128
    timeout: timedelta | None = None
    max_reschedules: int | None = None
    retry_policy: RetryPolicy | None = None
    limit_key: str | None = None


class Runtime(StrEnum):
    """How a template is run."""

    PYTHON = "python"
    SHELL = "shell"
    HTTP = "http"


class Template(Runnable, frozen=True, kw_only=True, tag_field="record", tag="template.1"):
    """A stored task definition: what to run, kept apart from when. `command` is what its runtime runs; of a python
    template, what people call the function. `applied` is what a file said of it last; None: no file ever did."""

    alias: str
    runtime: Runtime = Runtime.PYTHON
    command: Command | str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    parameters_schema: dict[str, Any] | None = None
    ttl: timedelta | None = None
    enabled: bool = True
    applied: dict[str, str] | None = None
    created_at: datetime
    updated_at: datetime


class Artifact(Record, frozen=True, kw_only=True, tag_field="record", tag="artifact.1"):
    """A thing that a task left under a name. A small one has its bytes here (`inline`); those of a larger one are under
    the key `content`, beside the records. `digest` is the SHA-256 of the bytes, `attempt` the one that left it."""

    task_id: str
    name: str
    media_type: str
    size: int
    digest: str
    attempt: int
    created_at: datetime
    inline: bytes | None = None
    content: str | None = None
