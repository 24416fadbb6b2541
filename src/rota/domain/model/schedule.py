"""Schedules, what they start, and the ledger of their runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from ..recurrence import ClockChange, Covered, Openings, Timing, clock_changes
from .alarm import Watch
from .shared import Record, Value, aware
from .task import TaskRequest


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
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    CANCEL_PREVIOUS = "cancel_previous"
    TERMINATE_PREVIOUS = "terminate_previous"


class ExcludedPolicy(StrEnum):
    """Where a time goes that a calendar takes away. `next` and `previous`: it moves to the nearest day that the
    calendars leave it, at the same time of day."""

    SKIP = "skip"
    NEXT = "next"
    PREVIOUS = "previous"


class RunStatus(StrEnum):
    """`buffered`: it waits until the runs before it have ended, and has no task yet."""

    BUFFERED = "buffered"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class RunTrigger(StrEnum):
    SCHEDULED = "scheduled"
    MANUAL = "manual"
    CATCH_UP = "catch_up"
    BACKFILL = "backfill"


class BackfillStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class RunReason(StrEnum):
    """Why a run is not simply `completed`."""

    MISSED = "missed"
    OVERLAP = "overlap"
    CHANGED = "changed"
    LIMIT = "limit"
    BAD_TARGET = "bad_target"
    EXPIRED = "expired"
    SUSPENDED = "suspended"
    DISABLED = "disabled"
    EXCLUDED = "excluded"


class TaskTarget(TaskRequest, frozen=True, kw_only=True, tag_field="type", tag="task"):
    """A schedule that submits a task."""


class WorkflowTarget(TaskRequest, frozen=True, kw_only=True, tag_field="type", tag="workflow"):
    """A schedule that starts a workflow."""


class TemplateTarget(Value, frozen=True, kw_only=True, tag_field="type", tag="template"):
    """A schedule that runs a stored template, its parameters overlaid with `input`."""

    template_id: str
    input: Any = None


_ROLLS = {ExcludedPolicy.SKIP: 0, ExcludedPolicy.NEXT: 1, ExcludedPolicy.PREVIOUS: -1}
Target = TaskTarget | WorkflowTarget | TemplateTarget


class Backfill(Value, frozen=True, kw_only=True):
    """Times of the past, from `start` to `end`, that a schedule runs after all. `total` is how many there are;
    `started` and `passed` (they had run already) say how far it is, and `after` is the last that was looked at."""

    id: str
    start: datetime
    end: datetime
    overlap_policy: OverlapPolicy
    status: BackfillStatus = BackfillStatus.RUNNING
    total: int
    started: int = 0
    passed: int = 0
    after: datetime
    note: str | None = None
    created_by: str
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.status is BackfillStatus.RUNNING

    @property
    def left(self) -> int:
        """How many are still to be looked at."""
        return self.total - self.started - self.passed


class Cause(Value, frozen=True, kw_only=True):
    """The end of a run that a schedule comes after: the key of its schedule, and its row."""

    key: str
    run_id: str


class Schedule(Record, frozen=True, kw_only=True, tag_field="record", tag="schedule.1"):
    """When to run what. `next_run_at` is the nominal time; `due_at` is when a tick fires it: `offset` and jitter added.
    `misfire_grace` is None unless one was given: then it is the shorter of a minute and the distance to the next
    time. A pause that ends by itself ends at `pause_until`, which is `due_at` then, too. `pause_on_failure` is after
    how many failures in a row it pauses (0: never; earlier releases wrote true and false). `buffered` are the times
    that wait for the end of what runs, oldest first; they count as runs. `followers` are the ids of schedules
    that come after this one; `causes` are the ends that this one has heard of, and has not fired for yet. `exclude` and
    `only` name calendars, and `calendars` is what these cover; `excluded_from` is the first time before `next_run_at`
    that they take away; `ended_by_calendars`: it has completed, since they leave none. `applied` is what a file said of
    it last (`domain/plan`); None: no file ever did."""

    key: str
    description: str = ""
    timing: Timing
    target: Target
    status: ScheduleStatus = ScheduleStatus.ACTIVE
    next_run_at: datetime | None = None
    due_at: datetime | None = None
    last_run_at: datetime | None = None
    last_task_id: str | None = None
    buffered: tuple[datetime, ...] = ()
    backfill: Backfill | None = None
    followers: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    run_count: int = 0
    max_runs: int | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    missed_run_policy: MissedRunPolicy = MissedRunPolicy.SKIP
    misfire_grace: timedelta | None = None
    catch_up_window: timedelta = timedelta(days=365)
    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    offset: timedelta = timedelta(0)
    jitter: timedelta = timedelta(0)
    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    excluded_policy: ExcludedPolicy = ExcludedPolicy.SKIP
    calendars: tuple[Covered, ...] = ()
    excluded_from: datetime | None = None
    pause_note: str | None = None
    pause_until: datetime | None = None
    paused_by: str | None = None
    paused_at: datetime | None = None
    pause_on_failure: int | bool = 0
    alarm_late: timedelta | None = None
    alarm_no_success: timedelta | None = None
    alarm_failures: int | None = None
    alarm_duration: timedelta | None = None
    alarm_ending: timedelta | None = None
    heartbeat_url: str | None = None
    watch: Watch | None = None
    completed_reason: str | None = None
    ended_by_calendars: bool = False
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    zone_data: str = ""
    applied: dict[str, str] | None = None
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
    def awaits_ends(self) -> bool:
        """Whether something of it begins when what is live has ended."""
        return bool(self.buffered) or (self.backfill is not None and self.backfill.is_open)

    @property
    def most_put_off(self) -> timedelta:
        """How much later than its timing says a time may be due."""
        return self.offset + self.jitter

    @property
    def watch_at(self) -> datetime | None:
        """When its alarms are looked at next."""
        return None if self.watch is None else self.watch.at

    @property
    def timezone(self) -> str:
        return getattr(self.timing, "timezone", "UTC")

    @property
    def openings(self) -> Openings:
        """Its times: those of its timing that its bounds and its calendars leave."""
        return Openings(
            self.timing,
            tuple(each for each in self.calendars if each.name in self.only),
            tuple(each for each in self.calendars if each.name in self.exclude),
            self.timezone,
            self.start_at,
            self.end_at,
            _ROLLS[self.excluded_policy],
        )

    def is_due(self, now: datetime) -> bool:
        """Whether a tick has something to do: a time has come, or the end of a pause."""
        ends = self.pause_until if self.status is ScheduleStatus.PAUSED and self.deleted_at is None else None
        return (self.enabled or ends is not None) and self.due_at is not None and self.due_at <= aware(now)

    def has_reached_end_date(self, now: datetime) -> bool:
        return self.end_at is not None and aware(now) > self.end_at

    def has_reached_max_executions(self) -> bool:
        return self.max_runs is not None and self.run_count >= self.max_runs

    def next_occurrence(self, after: datetime) -> datetime | None:
        """The first time after `after` that the timing, its bounds and its calendars allow, whatever the status is."""
        return self.openings.next_after(aware(after))

    def latest_occurrence(self, after: datetime, until: datetime) -> datetime | None:
        """The last such time in `(after, until]`."""
        return self.openings.latest(after, until)

    def clock_changes(self, now: datetime) -> tuple[ClockChange, ...]:
        """The clock changes of the coming year that touch it: none whose times its bounds or calendars take away."""
        return tuple(
            each
            for each in clock_changes(self.timing, now)
            if any(map(self._leaves, each.runs or (each.at,)))
        )

    def _leaves(self, at: datetime) -> bool:
        is_within = (self.start_at is None or at >= self.start_at) and (
            self.end_at is None or at <= self.end_at
        )
        return is_within and not (self.calendars and self.openings.closed_by(at))


class Run(Record, frozen=True, kw_only=True, tag_field="record", tag="run.1"):
    """The ledger: one row for every time a schedule was expected to run.

    A run of misses is one row: `scheduled_at` is the first, `until` the last, `count` how many. `calendar` is the one
    that excluded it. Of a schedule that comes after others, `causes` are the runs whose end made it run; they have it
    as an effect."""

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
    causes: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    calendar: str | None = None
    created_at: datetime
    actor: str | None = None
