"""Counts the observations of the engine, in series whose labels are bounded.

`ObservationCounts` is an observer. It runs once or twice for every task, so one costs one look-up by its type and one
for each series.

**Bounded labels.** A metric has a series for every combination of its labels, for as long as the process lives, and
users choose the names. So each label shows the first `most` names as they are, and the rest as `other`. A name is
judged once, when it is first seen: a counter that moved to `other` later would seem to have been reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ...domain.model import ChangeType, RunStatus, RunTrigger, Task, TaskStatus
from ...domain.schedule.run import follows, is_by_hand
from ...domain.workflow import StepKind
from .telemetry import (
    AlarmBegan,
    AlarmOver,
    ClockJumped,
    HookFailed,
    LeaseLost,
    LoopBlocked,
    LoopFailed,
    Observation,
    ResultLost,
    StepRecorded,
    TaskMoved,
    TaskStarted,
    TimesHandled,
    WorkflowParked,
    WorkflowReplayed,
)

__all__ = [
    "BRIEF",
    "LONG",
    "OTHER",
    "Instruments",
    "Names",
    "ObservationCounts",
    "Series",
]

OTHER = "other"

M = TypeVar("M", Counter, Histogram)


class Names:
    """One label: which of its values are shown."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def shown(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name


class Series(Collector, Generic[M]):
    """A metric of prometheus-client whose labels are bounded. Called with the values of its labels, it gives the series
    that they belong to. When each series began is left out: that would be one series more for each."""

    def __init__(self, metric: M, labels: Mapping[str, Names]) -> None:
        self._metric: M = metric
        self._labels = labels
        self._known: dict[tuple[str, ...], M] = {}

    def __call__(self, *values: str) -> M:
        return self._known.get(values) or self._found(values)

    def _found(self, values: tuple[str, ...]) -> M:
        shown = tuple(names.shown(value) for names, value in zip(self._labels.values(), values, strict=True))
        series: M = self._metric.labels(*shown) if shown else self._metric
        if shown == values:
            self._known[values] = series
        return series

    def collect(self) -> Iterator[Metric]:
        for family in self._metric.collect():
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family


BRIEF = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
LIVES = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400, 30 * 86_400)

_ENDS = (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.EXPIRED)


class Instruments:
    """Makes metrics, and registers them. `names` are bounded across all metrics; any other label (a status, a code) is
    bounded in each."""

    def __init__(self, most: int) -> None:
        self.registry = CollectorRegistry()
        self.names = {label: Names(most) for label in ("tenant", "queue", "task_type", "route")}
        self._most = most

    def counter(self, name: str, about: str, *labels: str) -> Series[Counter]:
        return self._registered(Counter(name, about, labels, registry=None), labels)

    def histogram(self, name: str, about: str, bounds: tuple[float, ...], *labels: str) -> Series[Histogram]:
        return self._registered(Histogram(name, about, labels, registry=None, buckets=bounds), labels)

    def _registered(self, metric: M, labels: tuple[str, ...]) -> Series[M]:
        series = Series(metric, {label: self.names.get(label) or Names(self._most) for label in labels})
        self.registry.register(series)
        return series


class ObservationCounts:
    """Called with every observation."""

    def __init__(self, make: Instruments) -> None:
        self._of_tasks(make)
        self._of_workflows(make)
        self._of_schedules(make)
        self._of_trouble(make)
        self._handle: dict[type[Observation], Callable[[Any], None]] = {
            TaskStarted: self._task_started,
            TaskMoved: self._task_moved,
            TimesHandled: self._times_handled,
            StepRecorded: self._step_recorded,
            WorkflowReplayed: lambda seen: self._replay(seen.task.kind).observe(seen.took.total_seconds()),
            WorkflowParked: self._workflow_parked,
            LeaseLost: lambda seen: self._leases_lost(seen.task.kind, "worker").inc(),
            ResultLost: lambda seen: self._results_lost(seen.task.kind).inc(),
            LoopFailed: lambda seen: self._loop_failures(seen.role).inc(),
            HookFailed: lambda seen: self._hook_failures(seen.hook).inc(),
            LoopBlocked: lambda seen: self._loop_blocked().inc(),
            ClockJumped: lambda seen: self._clock_jumps().inc(),
            AlarmBegan: lambda seen: self._alarms(seen.alarm.rule.value, "began").inc(),
            AlarmOver: lambda seen: self._alarms(seen.alarm.rule.value, "over").inc(),
        }

    def __call__(self, seen: Observation) -> None:
        handle = self._handle.get(type(seen))
        if handle is not None:
            handle(seen)

    # What there is to count

    def _of_tasks(self, make: Instruments) -> None:
        self._claims = make.counter("rota_task_claims", "Tasks that a worker took.", "queue")
        self._wait = make.histogram(
            "rota_task_wait_seconds", "From when a task could run until a worker took it.", LONG, "queue"
        )
        self._duration = make.histogram(
            "rota_task_duration_seconds", "How long attempts took.", LONG, "task_type"
        )
        self._ended = make.counter("rota_tasks_ended", "Tasks that ended.", "queue", "task_type", "status")
        self._retries = make.counter(
            "rota_task_retries", "Attempts that failed and will be repeated.", "task_type"
        )
        self._expired = make.counter("rota_tasks_expired", "Tasks that expired before they ran.", "task_type")
        self._ttl = make.histogram(
            "rota_task_ttl_seconds", "Time from submission to expiry.", LIVES, "task_type"
        )
        self._leases_lost = make.counter("rota_leases_lost", "Leases that ran out.", "task_type", "seen_by")
        self._results_lost = make.counter(
            "rota_results_lost", "Results that could not be stored.", "task_type"
        )

    def _of_workflows(self, make: Instruments) -> None:
        self._steps = make.histogram(
            "rota_workflow_step_seconds", "From the first try at a step to its end.", LONG, "task_type"
        )
        self._step_retries = make.counter(
            "rota_workflow_step_retries", "Tries at a step that failed and will be repeated.", "task_type"
        )
        self._replay = make.histogram(
            "rota_workflow_replay_seconds", "How long code ran over what is recorded.", BRIEF, "task_type"
        )
        self._parks = make.counter(
            "rota_workflow_waits", "Waits for which a run was parked.", "task_type", "reason"
        )

    def _of_schedules(self, make: Instruments) -> None:
        self._runs = make.counter(
            "rota_schedule_runs",
            "Times of schedules, and what became of them.",
            "tenant",
            "status",
            "target_type",
        )
        self._latency = make.histogram(
            "rota_schedule_run_latency_seconds",
            "From when a run was scheduled until it was started.",
            LONG,
            "tenant",
        )

    def _of_trouble(self, make: Instruments) -> None:
        self._loop_failures = make.counter("rota_loop_failures", "Rounds of a loop that failed.", "role")
        self._hook_failures = make.counter("rota_hook_failures", "Hooks that raised.", "hook")
        self._loop_blocked = make.counter(
            "rota_loop_blocked", "Times that a handler kept the event loop from turning."
        )
        self._clock_jumps = make.counter("rota_clock_jumps", "Times that the wall clock moved on its own.")
        self._alarms = make.counter("rota_alarms", "Alarms that began or were over.", "rule", "change")

    # What observations mean

    def _task_started(self, seen: TaskStarted) -> None:
        task = seen.task
        self._claims(task.queue).inc()
        if task.started_at is not None:
            self._wait(task.queue).observe(_seconds(task.available_at, task.updated_at))
        if task.attempt == 1:
            self._first_seen(task)

    def _first_seen(self, task: Task) -> None:
        """Once for each task. Who triggers a run by hand may be a command, whose counts nobody would see."""
        if task.expires_at is not None:
            self._ttl(task.kind).observe(_seconds(task.created_at, task.expires_at))
        if is_by_hand(task):
            self._run_of(task, RunStatus.RUNNING)

    def _task_moved(self, seen: TaskMoved) -> None:
        task = seen.task
        if task.status is TaskStatus.PENDING:
            self._returned(task)
        elif task.status is TaskStatus.EXPIRED:
            self._task_expired(task)
        else:
            self._ended(task.queue, task.kind, task.status.value).inc()
            self._attempt_ended(task)
        if task.run_id is not None and task.status in _ENDS:
            self._run_of(task, follows(task))

    def _returned(self, task: Task) -> None:
        """Its last change says why; an error may be that of an earlier attempt."""
        if task.last_change in (ChangeType.RETRIED, ChangeType.LEASE_LOST):
            self._retries(task.kind).inc()
        self._attempt_ended(task)

    def _attempt_ended(self, task: Task) -> None:
        if task.last_change is ChangeType.LEASE_LOST:
            self._leases_lost(task.kind, "janitor").inc()  # how long it really took nobody knows
        elif task.started_at is not None:
            self._duration(task.kind).observe(_seconds(task.started_at, task.updated_at))

    def _task_expired(self, task: Task) -> None:
        self._ended(task.queue, task.kind, task.status.value).inc()
        self._expired(task.kind).inc()
        if task.attempt == 0:
            self._first_seen(task)

    def _step_recorded(self, seen: StepRecorded) -> None:
        step, kind = seen.step, seen.task.kind
        if not step.is_over:
            self._step_retries(kind).inc()
        elif step.started_at is not None and step.completed_at is not None:
            self._steps(kind).observe(_seconds(step.started_at, step.completed_at))

    def _workflow_parked(self, seen: WorkflowParked) -> None:
        for step in seen.waits:
            reason = "retry" if step.kind in (StepKind.STEP, StepKind.UNDO) else step.kind.value
            self._parks(seen.task.kind, reason).inc()

    def _times_handled(self, seen: TimesHandled) -> None:
        run, task = seen.run, seen.task
        self._run(run.tenant, run.status, run.target_type, run.count)
        if task is None or run.started_at is None or run.trigger is RunTrigger.BACKFILL:
            return
        self._latency(run.tenant).observe(_seconds(run.scheduled_at, run.started_at))

    def _run_of(self, task: Task, status: RunStatus) -> None:
        self._run(task.tenant, status, "workflow" if task.is_workflow else "task")

    def _run(self, tenant: str, status: RunStatus, target_type: str, count: int = 1) -> None:
        """A template starts a task; a task no longer knows of the template."""
        started = "workflow" if target_type == "workflow" else "task"
        self._runs(tenant, status.value, started).inc(count)


def _seconds(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())
