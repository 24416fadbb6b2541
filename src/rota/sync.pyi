"""Made from `rota.Queue` by `python tools/make_sync_stub.py`. Change that, not this."""

import builtins
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from rota.domain.model import Change, Event, RetryPolicy, Run, RunStatus, Schedule, Task, TaskStatus
from rota.domain.why import Why
from rota.engine.app import App
from rota.engine.clock import SteadyClock
from rota.engine.queries import Occurrence
from rota.engine.telemetry import Observer
from rota.stores.base import Store
from rota.surfaces.calls import Page

__all__ = ["Queue", "connect"]

class Queue:
    """`rota.Queue`, each of its calls made through the portal."""

    store: Store
    clock: SteadyClock
    tenant: str
    actor: str

    def __enter__(self) -> Queue: ...
    def __exit__(self, *about: object) -> None: ...
    def close(self) -> None: ...
    def submit(
        self,
        kind: str,
        input: Any = None,
        *,
        schedule_at: datetime | None = None,
        expires_at: datetime | None = None,
        ttl: timedelta | float | None = None,
        ttl_seconds: float | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_retries: int | None = None,
        max_reschedules: int | None = None,
        retry_policy: RetryPolicy | None = None,
        timeout_seconds: float | timedelta | None = None,
        idempotency_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tags: Iterable[str] | None = None,
        connection: Any = None,
    ) -> Task:
        """Submit a task, to run now or at `schedule_at`. It is durable when this returns.

        On PostgreSQL, `connection` is one of yours (asyncpg or psycopg): the task then exists if and only if the
        transaction commits that is open on it."""
    def submit_many(self, tasks: Iterable[tuple[str, Any]], **options: Any) -> builtins.list[Task]:
        """Submit many `(kind, input)` pairs in one transaction: all of them or none. Options as in `submit`."""
    def get(self, task_id: str) -> Task: ...
    def list(
        self,
        *,
        status: TaskStatus | str | None = None,
        kind: str | None = None,
        queue: str | None = None,
        schedule: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Task]:
        """The newest tasks that match; give a page's `next_cursor` as `cursor` to go on."""
    def count(
        self,
        *,
        status: TaskStatus | str | None = None,
        kind: str | None = None,
        queue: str | None = None,
        schedule: str | None = None,
        tag: str | None = None,
    ) -> int: ...
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
        status: TaskStatus | str | None = None,
        kind: str | None = None,
        queue: str | None = None,
        schedule: str | None = None,
        tag: str | None = None,
    ) -> int:
        """Cancel the tasks named, or all live ones that match the filters; how many were cancelled or asked to stop.

        A task that has ended meanwhile is passed over."""
    def mark_expired(self, task_id: str) -> Task:
        """Expire a pending task by hand."""
    def replay(self, task_id: str) -> Task:
        """Run a failed or cancelled task again, with fresh retries."""
    def archive(self, task_id: str) -> Task:
        """Put an ended task away."""
    def wait(self, task_id: str, timeout: timedelta | float | None = None) -> Task:
        """The task once it has ended; TimeoutError if that takes longer than `timeout`."""
    def create_schedule(
        self,
        schedule_id: str | None = None,
        *,
        id: str | None = None,
        **options: Any,
    ) -> Schedule:
        """Create a schedule: what to run (`task_type` with `input`, or `target`) and when (one of `cron`,
        `interval`, `run_at`, `rrule`, `rule`).

        Also: timezone, start_at, end_at, max_runs, missed_run_policy, misfire_grace, catch_up_window,
        overlap_policy, jitter, pause_on_failure, description, status, metadata; and for the task: queue, priority,
        max_retries, ttl, timeout, tags."""
    def get_schedule(self, schedule_id: str) -> Schedule: ...
    def list_schedules(
        self,
        *,
        limit: int = 100,
        cursor: str | None = None,
        **filters: Any,
    ) -> Page[Schedule]:
        """The newest schedules that match: status, kind, template_id, tag, text; `deleted=True`: deleted ones too."""
    def count_schedules(self, **filters: Any) -> int: ...
    def update_schedule(
        self,
        schedule_id: str,
        *,
        version: int | None = None,
        **changes: Any,
    ) -> Schedule:
        """Change what is named, options as in `create_schedule`. With `version`: only if it is still at that one."""
    def pause_schedule(self, schedule_id: str, note: str | None = None) -> Schedule: ...
    def resume_schedule(self, schedule_id: str) -> Schedule:
        """Fire again from the first time after now; what was due meanwhile is not made up for."""
    def disable_schedule(self, schedule_id: str, note: str | None = None) -> Schedule: ...
    def enable_schedule(self, schedule_id: str) -> Schedule:
        """Fire again from the first time after now; what was due meanwhile is not made up for."""
    def trigger_schedule(self, schedule_id: str, input: Any = ...) -> Task:
        """Run it now, beside its times (with another `input`, if one is given); the task."""
    def delete_schedule(self, schedule_id: str, *, hard: bool = False) -> None:
        """Delete it: hidden, stopped, its history kept, restorable; with `hard` it is removed for good."""
    def restore_schedule(self, schedule_id: str) -> Schedule: ...
    def schedule_history(self, schedule_id: str) -> builtins.list[Event]:
        """Every version of the schedule, oldest first: who, when, before, after."""
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
    def why(self, schedule_id: str, at: datetime) -> Why:
        """What became of an expected time, and why, in words. A naive `at` is on the clock of the schedule's zone."""
    def run_due(self, *, observe: Observer = ...) -> builtins.list[Run]:
        """One tick, for those who bring their own cron: fire everything that is due; the rows it wrote."""
    def declare_schedules(self, app: App) -> None:
        """Create the schedules that an app declares, and bring those that differ up to date."""
    def now(self) -> datetime:
        """The store's clock, which all nodes share."""

def connect(
    store: str | None = None,
    *,
    bucket: str | None = None,
    tenant: str = "default",
    actor: str | None = None,
) -> Queue: ...
