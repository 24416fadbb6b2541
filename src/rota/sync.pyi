"""Made from `rota.Queue` by `python tools/make_sync_stub.py`. Change that, not this."""

import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

import rota
from rota.domain.model import (
    Alarm,
    AlarmRules,
    ApiKey,
    Artifact,
    Backfill,
    Calendar,
    Change,
    Event,
    Limit,
    NodeState,
    OverlapPolicy,
    PausedQueue,
    Role,
    Run,
    RunStatus,
    Schedule,
    Task,
    Template,
    Tenant,
)
from rota.domain.options import (
    AlarmOptions,
    Duration,
    LimitOptions,
    ScheduleChanges,
    ScheduleFilters,
    ScheduleOptions,
    SubmitManyOptions,
    SubmitOptions,
    TaskFilters,
    TemplateChanges,
    TemplateOptions,
    TimingOptions,
)
from rota.domain.plan import Plan
from rota.domain.recurrence import ClockChange, Timing
from rota.domain.schedule.calendar_options import CalendarOptions
from rota.domain.schedule.forecast import Forecast
from rota.domain.schedule.spread import Spread
from rota.domain.schedule.why import Why
from rota.domain.serving import Waiting
from rota.domain.workflow import Signal, Step
from rota.engine.app import App
from rota.engine.clock import Clock
from rota.engine.observe.telemetry import Observer
from rota.engine.queries import Occurrence, TenantUse
from rota.engine.queries.overview import Hour, Overview
from rota.engine.queries.serving import QueueUse
from rota.engine.queries.workflows import RunTree
from rota.surfaces.python.calls.base import Batch, DueRuns, Page, Report
from rota.surfaces.python.calls.tasks import Tasks

__all__ = ["Handle", "OpenArtifact", "Queue", "TaskFunction", "connect"]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)

class OpenArtifact:
    """`rota.OpenArtifact`, read through the portal."""

    @property
    def artifact(self) -> Artifact: ...
    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to `stop` (None: the end), in pieces."""

    def read(self) -> bytes:
        """All of it, in memory."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write all of it to a file, which is there when it is whole."""

class Queue:
    """`rota.Queue`, each of its calls made through the portal. What they return is data, or is sync itself."""

    @property
    def tenant(self) -> str: ...
    @property
    def actor(self) -> str: ...
    @property
    def clock(self) -> Clock: ...
    def __enter__(self) -> Queue: ...
    def __exit__(self, *about: object) -> None: ...
    def bind(self, function: rota.TaskFunction[P, R]) -> TaskFunction[P, R]:
        """The function, submitted to this queue: `queue.bind(function).submit(…)`."""
    def close(self) -> None: ...
    def for_tenant(self, tenant: str) -> Queue:
        """The same store, for another tenant. Closing either closes the store of both."""
    def start_workflow(
        self,
        kind: str,
        input: Any = None,
        *,
        signals: Mapping[str, Any] | None = None,
        connection: Any = None,
        **options: Unpack[SubmitOptions],
    ) -> Task:
        """Start a workflow, which runs as a task of its own. Options as in `submit`. `signals` (payloads by name) are
        there when it begins; with an `idempotency_key` they reach the run that is there already."""
    def start_workflows(
        self,
        workflows: Iterable[tuple[str, Any]],
        **options: Unpack[SubmitManyOptions],
    ) -> Tasks:
        """Start a workflow for each `(kind, input)` pair in one transaction: all of them or none. Options as in
        `submit`."""
    def signal(
        self,
        task_id: str,
        name: str,
        payload: Any = None,
        *,
        idempotency_key: str | None = None,
    ) -> Task:
        """Send a signal to a workflow that has not ended. When this returns it is kept until `ctx.receive(name)` takes
        it, once. The same `idempotency_key` is the same signal."""
    def steps(self, task_id: str) -> builtins.list[Step]:
        """What a workflow did and waits for, oldest first."""
    def unread_signals(self, task_id: str) -> builtins.list[Signal]:
        """What was sent to a workflow and not received yet, oldest first."""
    def run_tree(self, task_id: str) -> RunTree:
        """A workflow with what it started: its steps, and the tasks and workflows below them."""
    def submit(
        self,
        kind: str,
        input: Any = None,
        *,
        connection: Any = None,
        **options: Unpack[SubmitOptions],
    ) -> Task:
        """Submit a task, to run now or at `schedule_at`. It is durable when this returns.

        On PostgreSQL, `connection` is one of yours (asyncpg or psycopg): the task then exists if and only if the
        transaction commits that is open on it."""
    def submit_many(
        self,
        tasks: Iterable[tuple[str, Any]],
        **options: Unpack[SubmitManyOptions],
    ) -> builtins.list[Task]:
        """Submit many `(kind, input)` pairs in one transaction: all of them or none. Options as in `submit`."""
    def get(self, task_id: str) -> Task: ...
    def task_id(self, beginning: str) -> str:
        """The id of the one task whose id begins so. With more than 100,000 tasks at least 8 characters are needed.
        What cannot be the beginning of an id is taken as it is."""
    def list(
        self,
        *,
        limit: int = 100,
        cursor: str | None = None,
        **filters: Unpack[TaskFilters],
    ) -> Page[Task]:
        """The newest tasks that match; give a page's `next_cursor` as `cursor` to go on."""
    def recent(
        self,
        *,
        back: Duration | None = None,
        limit: int = 100,
        cursor: str | None = None,
        **filters: Unpack[TaskFilters],
    ) -> tuple[Page[Task], timedelta | None]:
        """As `list`, for people who wait: only tasks created within `back` are looked through. Without it, as far back
        as about 10,000 tasks reach. The second is how far that was; None: to the first."""
    def count(self, *, at_most: int | None = None, **filters: Unpack[TaskFilters]) -> int:
        """How many tasks match. With `at_most` the counting stops there: to count costs as much as there are."""
    def history(self, task_id: str) -> tuple[Change, ...]:
        """What happened to a task, oldest first."""
    def cancel(self, task_id: str, reason: str = "") -> Task:
        """Cancel a task: at once if it is pending; if it is running its handler is asked to stop."""
    def request_cancellation(self, task_id: str, reason: str = "") -> Task:
        """Cancel a task: at once if it is pending; if it is running its handler is asked to stop."""
    def cancel_many(
        self,
        task_ids: Iterable[str] | None = None,
        *,
        reason: str = "",
        report: Report | None = None,
        **filters: Unpack[TaskFilters],
    ) -> int:
        """Cancel the tasks named, or all live ones that match the filters, in commits of 500; how many were
        cancelled or asked to stop. `report` is called after each commit with how many tasks it looked at.

        A task that has ended meanwhile is passed over."""
    def cancel_page(
        self,
        task_ids: Iterable[str] | None = None,
        *,
        reason: str = "",
        cursor: str | None = None,
        **filters: Unpack[TaskFilters],
    ) -> Batch:
        """One commit of `cancel_many`: the tasks named, or the next 500 that match the filters and are pending (or
        running: `status="running"`). Give its `next_cursor` as `cursor` to go on."""
    def mark_expired(self, task_id: str) -> Task:
        """Expire a pending task by hand."""
    def replay(self, task_id: str, *, from_step: str | None = None) -> Task:
        """Run a failed or cancelled task again, with fresh retries. A workflow goes on where it failed, or from the
        step with this key: what came before is not done again."""
    def replay_many(
        self,
        *,
        since: Duration | None = None,
        dry_run: bool = False,
        report: Report | None = None,
        **filters: Unpack[TaskFilters],
    ) -> int:
        """Run again all failed tasks that match the filters (or cancelled ones: `status="cancelled"`), with fresh
        retries, in commits of 500; how many there are. With `since`, only those that ended at most that long ago; with
        `dry_run` they are only counted. What has expired meanwhile is passed over. `report` is called after each commit
        with how many tasks it looked at."""
    def replay_page(
        self,
        *,
        ended_since: datetime | None = None,
        dry_run: bool = False,
        cursor: str | None = None,
        **filters: Unpack[TaskFilters],
    ) -> Batch:
        """One commit of `replay_many`: the next 500 that match the filters. Give its `next_cursor` as `cursor` to go
        on."""
    def archive(self, task_id: str) -> Task:
        """Put an ended task away."""
    def wait(self, task_id: str, timeout: Duration | None = None) -> Task:
        """The task once it has ended; TimeoutError if that takes longer than `timeout`."""
    def artifacts(self, task_id: str) -> builtins.list[Artifact]:
        """What a task has left so far, by name. What its handler returned comes first, as `result`."""
    def open_artifact(self, task_id: str, name: str) -> OpenArtifact:
        """One artifact, to be read whole (`read()`), into a file (`save(path)`), or in pieces (`chunks(start, stop)`,
        without ever having all of it in memory)."""
    def create_schedule(
        self,
        schedule_id: str | None = None,
        *,
        id: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Create a schedule: what to run (`task_type` with `input`, or `target`) and when (one of `cron`,
        `interval`, `run_at`, `rrule`, `rule`, `timings`, `after`). A key that a completed schedule has is taken from
        it."""
    def create_schedules(self, schedules: Mapping[str, ScheduleOptions]) -> builtins.list[Schedule]:
        """Create many schedules in one transaction, all of them or none: by key, the options of `create_schedule`."""
    def get_schedule(self, schedule_id: str, *, deleted: bool = False) -> Schedule:
        """One schedule, by its key or its id. With `deleted`, by its id, also one that is deleted."""
    def schedule_id(self, beginning: str) -> str:
        """The id of the one schedule, living or deleted, whose id begins so. A name, and what begins no id, is taken as
        it is."""
    def list_schedules(
        self,
        *,
        limit: int = 100,
        cursor: str | None = None,
        order: str = "newest",
        **filters: Unpack[ScheduleFilters],
    ) -> Page[Schedule]:
        """The schedules that match: the newest first, by `name`, or by their `next` times; give a page's `next_cursor`
        as `cursor` to go on in the same order."""
    def sorted_schedules(
        self,
        order: str = "newest",
        *,
        limit: int = 100,
        cursor: str | None = None,
        among_all: bool = False,
        **filters: Unpack[ScheduleFilters],
    ) -> tuple[Page[Schedule], int | None]:
        """As `list_schedules`, for people who wait: where there are many schedules, those that match are looked for
        among the first 10,000 in this order. The second is that number; None: among all."""
    def count_schedules(self, **filters: Unpack[ScheduleFilters]) -> int: ...
    def update_schedule(
        self,
        schedule_id: str,
        *,
        version: int | None = None,
        **changes: Unpack[ScheduleChanges],
    ) -> Schedule:
        """Change what is named, options as in `create_schedule`. With `version`: only if it is still at that one."""
    def plan_create(self, schedule_id: str, **options: Unpack[ScheduleOptions]) -> Plan:
        """What `create_schedule` would make of this; nothing is written."""
    def plan_update(self, schedule_id: str, **changes: Unpack[ScheduleChanges]) -> Plan:
        """What `update_schedule` would change: which times appear, vanish or move, and that nothing runs because of it.
        Nothing is written."""
    def pause_schedule(
        self,
        schedule_id: str,
        note: str | None = None,
        *,
        until: datetime | None = None,
    ) -> Schedule:
        """Stop firing until it is resumed, or until a time."""
    def resume_schedule(self, schedule_id: str) -> Schedule:
        """Fire again from the first time after now; what was due meanwhile is not made up for."""
    def disable_schedule(
        self,
        schedule_id: str,
        note: str | None = None,
        *,
        until: datetime | None = None,
    ) -> Schedule:
        """Stop firing until it is resumed, or until a time."""
    def enable_schedule(self, schedule_id: str) -> Schedule:
        """Fire again from the first time after now; what was due meanwhile is not made up for."""
    def trigger_schedule(self, schedule_id: str, input: Any = ...) -> Task:
        """Run it now, beside its times (with another `input`, if one is given); the task."""
    def backfill(
        self,
        schedule_id: str,
        start: datetime,
        end: datetime,
        *,
        overlap_policy: OverlapPolicy | str = "buffer_all",
        at_most: int = 1000,
        dry_run: bool = False,
    ) -> Backfill:
        """Run the times of the past from `start` to `end` that have not run: one after the other (`buffer_all`), or all
        at once (`allow`). More than `at_most` times are refused. `get_schedule(…).backfill` says how far it is. With
        `dry_run` nothing happens, and the answer says what would: `started` of `total`."""
    def cancel_backfill(self, schedule_id: str) -> Backfill:
        """Start no more of it. What was started goes on."""
    def delete_schedule(
        self,
        schedule_id: str,
        *,
        hard: bool = False,
        report: Report | None = None,
    ) -> None:
        """Delete it: hidden, stopped, its history kept, restorable; with `hard` it is removed for good, and `report` is
        called after each commit with how many runs it removed."""
    def restore_schedule(self, schedule_id: str) -> Schedule: ...
    def schedule_history(self, schedule_id: str) -> builtins.list[Event]:
        """Every version of the schedule, oldest first: who, when, before, after."""
    def put_back_schedule(self, schedule_id: str, version: int) -> Schedule:
        """Give it the timing, the target and the policies of an earlier version, as a new one. It stays paused or
        active as it is, and nothing runs because of it."""
    def count_runs(self, schedule_id: str) -> int:
        """How long the ledger of a schedule is, living or else deleted."""
    def runs(
        self,
        schedule_id: str,
        *,
        status: RunStatus | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Run]:
        """The ledger: every expected time and what became of it, latest first."""
    def preview(self, schedule_id: str, n: int = 5) -> builtins.list[Occurrence]:
        """The next n times, each with its local time and what daylight saving does to it."""
    def clock_changes(self, schedule_id: str) -> tuple[ClockChange, ...]:
        """The clock changes of the coming year that touch the schedule, and when it runs for the times in them."""
    def preview_timing(
        self,
        *,
        n: int = 5,
        **options: Unpack[TimingOptions],
    ) -> tuple[Timing, builtins.list[Occurrence], tuple[str, ...]]:
        """When a timing that is not saved would fire: the timing as stored, its next n times, what is odd about it."""
    def why(self, schedule_id: str, at: datetime) -> Why:
        """What became of an expected time, and why, in words. A naive `at` is on the clock of the schedule's zone."""
    def explained_runs(self, schedule_id: str, *, limit: int = 60) -> builtins.list[Why]:
        """The latest rows of the ledger, oldest first, each in the words of `why`; `run` of each is the row."""
    def last_runs(
        self,
        schedules: Sequence[Schedule],
        *,
        limit: int = 30,
    ) -> dict[str, builtins.list[Run]]:
        """The latest runs of each of these schedules, oldest first, by the id of the schedule."""
    def open_schedules(self) -> int:
        """How many schedules are neither deleted nor completed. Every store keeps this number."""
    def overview(self) -> Overview:
        """How things are: what is late, failing or stuck, what runs, what is due within the hour."""
    def last_day(self) -> builtins.list[Hour]:
        """The last 24 hours, oldest first: how many tasks each brought, how late they began, how long they waited."""
    def run_due(self, *, observe: Observer = ...) -> DueRuns:
        """One tick, for those who bring their own cron: fire what is due; the rows it wrote. A call writes a few
        thousand at most: if `is_more_due` is set in what it returns, call it again."""
    def declare_schedules(self, app: App) -> None:
        """Create the schedules that an app declares, and bring those that differ up to date: all of them, or, if one is
        refused, none. A suspended tenant's stay as they are."""
    def plan(
        self,
        source: Mapping[str, Any] | App | Path | str,
        *,
        prune: bool = False,
        force: bool = False,
        report: Report | None = None,
    ) -> Plan:
        """What would change if the store said what a file says (its path, its content, or an app): created, changed and
        removed, and which times appear, vanish or move. Nothing is written. `report` is called with 1 for each schedule
        of the file that has been compared."""
    def apply(
        self,
        source: Mapping[str, Any] | App | Path | str,
        plan: Plan | tuple[datetime, str] | None = None,
        *,
        prune: bool = False,
        force: bool = False,
        report: Report | None = None,
    ) -> Plan:
        """Make the store say what a file says, in one transaction. With the `plan` that was made of it (or its time and
        token), only if that still holds. What the file no longer has is paused with `prune`; what was edited by hand is
        overwritten with `force`. `report` is called with 1 for each schedule of the file that has been compared and for
        each that is ready to be written. Then all are written at once."""
    def export(self, schedules: Sequence[str] | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        """All schedules, templates and calendars, as a file would declare them; or only those schedules, with the
        templates that they run and the calendars that they name. Completed schedules are left out."""
    def forecast(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        by: str = "hour",
    ) -> Forecast:
        """How many runs are expected from `start` (now) to before `end` (24 hours later), and how much work they are,
        by minute, hour or day on the clock of `start`; the busiest minutes, who is in them, and what spreading them
        would do. It comes from the schedules themselves, and from how long their last runs took."""
    def spread(
        self,
        at: datetime | None = None,
        over: Duration | None = None,
        *,
        token: str | None = None,
        dry_run: bool = False,
    ) -> Spread:
        """Spread the schedules that fire in the minute of `at` (the busiest of the next 24 hours) over a while: each
        gets an `offset`, so that all minutes of the while become equally busy. `over` is how long the while is; by
        default, the shortest that takes the peak to a quarter. A schedule that has an offset or a jitter is left alone,
        and one that fires again within the while. With `dry_run` nothing is changed. With the `token` of a dry run,
        exactly its changes are made, or none."""
    def create_template(
        self,
        alias: str | None,
        kind: str | None = None,
        **fields: Unpack[TemplateOptions],
    ) -> Template:
        """Store what to run: a `kind` of task, or a `command` of another `runtime`, under a name for people (`alias`;
        None: one is made from what it runs).

        No two templates have the same alias, letter case, `-` and `_` aside, and it serves wherever an id does."""
    def get_template(self, template_id: str) -> Template: ...
    def template_id(self, beginning: str) -> str:
        """The id of the one template whose id begins so. An alias, and what begins no id, is taken as it is."""
    def list_templates(self, *, limit: int = 100, cursor: str | None = None) -> Page[Template]:
        """The newest templates; give a page's `next_cursor` as `cursor` to go on."""
    def update_template(
        self,
        template_id: str,
        *,
        version: int | None = None,
        replace: bool = False,
        **changes: Unpack[TemplateChanges],
    ) -> Template:
        """Change what is named; with `replace`, all else goes back to its default. With `version`: only if it is still
        at that one."""
    def delete_template(self, template_id: str) -> None:
        """Remove it for good, and delete the schedules that run it."""
    def execute_template(self, template_id: str, input: Any = None) -> Task:
        """Run it now: its parameters, overlaid with `input` (a dict), are the task's input."""
    def create_calendar(self, name: str, **fields: Unpack[CalendarOptions]) -> Calendar:
        """Store days, rules of days (RRULEs) and windows of the day under a name. Days may also be the holidays of a
        `country`, and the all-day events of an `.ics` file, given as its text."""
    def get_calendar(self, name: str) -> Calendar: ...
    def list_calendars(self) -> builtins.list[Calendar]:
        """All of them, by name."""
    def update_calendar(
        self,
        name: str,
        *,
        version: int | None = None,
        **changes: Unpack[CalendarOptions],
    ) -> Calendar:
        """Change what is named, and plan the schedules that name this calendar anew, from now: all in one transaction.
        With `version`: only if it is still at that one."""
    def delete_calendar(self, name: str) -> None:
        """Remove it for good; refused while a schedule names it."""
    def create_key(
        self,
        name: str,
        role: Role | str,
        *,
        every_tenant: bool = False,
    ) -> tuple[ApiKey, str]:
        """Make a key for the HTTP API: its record, and the key itself, which is not stored and never shown again.

        `role` is viewer, operator or admin. With `every_tenant` the key is good for all of them."""
    def list_keys(
        self,
        *,
        every_tenant: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[ApiKey]:
        """The newest keys, revoked ones too. With `every_tenant`: those of all tenants."""
    def revoke_key(self, key_id: str, *, every_tenant: bool = False) -> ApiKey:
        """End a key, by its id, or by its name if only one has it. With `every_tenant`: whosever it is."""
    def create_tenant(self, name: str, **limits: Unpack[LimitOptions]) -> Tenant:
        """Create a tenant. A tenant need not be created to be used; one that is not has the default limits."""
    def get_tenant(self, name: str) -> Tenant: ...
    def list_tenants(self) -> builtins.list[TenantUse]:
        """Every tenant that has a record, a schedule or an open task, with how many it has of them; by name."""
    def set_limits(self, name: str, **limits: Unpack[LimitOptions]) -> Tenant:
        """Change the limits that are named, as in `create_tenant`; `pending_tasks=None` takes that one away."""
    def suspend_tenant(self, name: str, note: str = "") -> Tenant:
        """Let nothing new begin there: submissions, triggers and edits are refused, and what its schedules would have
        fired is skipped. Tasks that were submitted before still run."""
    def resume_tenant(self, name: str) -> Tenant:
        """End the suspension. What was skipped meanwhile is not made up for."""
    def events(
        self,
        subject_id: str | None = None,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Event]:
        """The audit, oldest first: who did what to which schedule, template, tenant or key, before and after."""
    def nodes(self, *, dead: bool = False) -> builtins.list[NodeState]:
        """The live nodes that work for this tenant; with `dead`, also those that were not heard of for too long."""
    def waiting(self, task_id: str) -> Waiting | None:
        """Why a task does not run: its time, its queue, its worker. None: it runs, or has ended."""
    def list_queues(self) -> builtins.list[QueueUse]:
        """Every queue that has open tasks, is paused, or is served by name, with how much is in it; by name."""
    def pause_queue(self, name: str, note: str = "") -> PausedQueue:
        """Let no worker take tasks of this queue until it is resumed. What runs goes on; tasks can be submitted."""
    def resume_queue(self, name: str) -> bool:
        """Let workers take tasks of this queue again; whether it was paused."""
    def drain_queue(
        self,
        name: str,
        note: str = "",
        timeout: Duration | None = None,
        *,
        report: Report | None = None,
    ) -> PausedQueue:
        """Pause the queue, and wait until nothing of it runs any more. It stays paused, also if that takes longer than
        `timeout`, which is a TimeoutError. `report` is called with how many tasks have ended since
        the call before."""
    def limit_queue(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: str | None = None,
    ) -> Limit | None:
        """Let at most `concurrency` tasks of the queue be at work at once, and at most `rate` of them ("50/s") begin.
        What waits is planned anew. Without either, the limit is taken away."""
    def limit_kind(
        self,
        kind: str,
        *,
        concurrency: int | None = None,
        rate: str | None = None,
        key: str | None = None,
    ) -> Limit | None:
        """The same for tasks of a kind; with `key`, for each value that this field of their input has. A worker that
        has a handler with another limit sets that one when it starts."""
    def task_limits(self, *, declared: bool | None = None) -> dict[str, Limit]:
        """The limits of kinds ("kind:send") and queues ("queue:mail"). With `declared`: only those that handlers have;
        with False: only those that were set by calls."""
    def declare_limits(self, app: App) -> None:
        """Set the limits that the handlers of an app have, as a worker does when it starts. A limit that was declared
        for a kind is taken away if its handler has none here. A change of a limit that was interrupted is ended."""
    def alarms(
        self,
        *,
        schedule: str | None = None,
        over: bool = False,
        fleet: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Alarm]:
        """The alarms of this tenant, of one schedule if it is named; newest first. With `over`: those that are over,
        too. With `fleet`: those about the whole store, which belong to no tenant."""
    def alarm_rules(self) -> dict[str, AlarmRules]:
        """The rules of tags, by tag."""
    def set_alarm_rules(self, tag: str, **rules: Unpack[AlarmOptions]) -> AlarmRules:
        """The rules of all schedules whose target has the tag, instead of those it had. Where a schedule has a rule of
        its own, that holds."""
    def remove_alarm_rules(self, tag: str) -> None:
        """Take away the rules of a tag."""
    def now(self) -> datetime:
        """The store's clock, which all nodes share."""

class TaskFunction(Generic[P, R]):
    """`rota.TaskFunction`, bound to a queue, without `await`."""

    def options(self, *, connection: Any = None, **options: Unpack[SubmitOptions]) -> TaskFunction[P, R]: ...
    def args(self, *args: P.args, **kwargs: P.kwargs) -> rota.Arguments[P]: ...
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
    @overload
    def map(self, items: Iterable[rota.Arguments[P]]) -> list[Handle[R]]: ...
    @overload
    def map(self: _OfOne[A, R], items: Iterable[A]) -> list[Handle[R]]: ...

class _OfOne(Protocol[A_contra, R]):
    def submit(self, item: A_contra, /) -> Handle[R]: ...

class Handle(Generic[R]):
    """`rota.Handle`, without `await`."""

    @property
    def task(self) -> Task: ...
    @property
    def id(self) -> str: ...
    def get(self) -> Task: ...
    def cancel(self, reason: str = "") -> Task: ...
    def result(self, timeout: Duration | None = None) -> R: ...

def connect(
    store: str | None = None,
    *,
    bucket: str | None = None,
    tenant: str = "default",
    actor: str | None = None,
    app: App | None = None,
) -> Queue: ...
