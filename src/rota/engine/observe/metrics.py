"""Metrics for Prometheus: observations of the engine, calls of the store, the event loop, and the state of the store.

    metrics = Metrics()
    queue.store = metrics.observed(queue.store)         # its calls are timed
    node = Node(queue, observers=[metrics.observe])     # observations become counters and histograms
    await metrics.render(queue.store)                   # what /metrics answers

A process counts its own work since it began. Only the gauges are about the whole store: a scrape asks the store how
much there is of each, in one read that follows indexes. `docs/observability.md` lists every metric. This module needs
prometheus-client (`rota[server]`); the rest of the engine does not.

**Bounded labels.** A metric has a series for every combination of its labels, for as long as the process lives, and
users choose the names. So each label shows the first `most` names as they are, and the rest as `other`. A name is
judged once, when it is first seen: a counter that moved to `other` later would seem to have been reset.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ...domain import serving
from ...domain.errors import StoreError, Unavailable
from ...domain.model import ChangeType, RunStatus, RunTrigger, StepKind, Task, TaskStatus
from ...domain.schedule.run import follows, is_by_hand
from ...stores.base import Store, Tx
from ...stores.queries import AlarmList, DueSchedules, NodeList, PastExpiry, ScheduleList
from ..clock import Clock, SystemClock
from ..work import as_work, tally_open
from .observed import LoopLag, ObservedStore
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
    """Called with every observation. It runs once or twice for every task, so one costs one look-up by its type and one
    for each series."""

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
        if task.attempt == 1 and _claims_of(task) == 1:
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
        if task.attempt == 0 and not _claims_of(task):
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


def _claims_of(task: Task) -> int:
    """How often it was claimed. What was handed back is no attempt, but was seen."""
    return sum(change.type is ChangeType.CLAIMED for change in task.history)


def _seconds(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())


LATE = timedelta(seconds=60)
COUNTED_AT_MOST = 100_000
NODES_AT_MOST = 10_000
ALARMS_AT_MOST = 1000


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that a look at the store found: how many there are of each, by the labels of `_GAUGES`."""

    tasks: Mapping[tuple[str, ...], int] = {}
    workflows: Mapping[tuple[str, ...], int] = {}
    schedules: Mapping[tuple[str, ...], int] = {}
    near_expiration: Mapping[tuple[str, ...], int] = {}
    overdue: Mapping[tuple[str, ...], int] = {}
    nodes: Mapping[tuple[str, ...], int] = {}
    unhandled: Mapping[tuple[str, ...], int] = {}
    alarms: Mapping[tuple[str, ...], int] = {}


class Gauge(NamedTuple):
    """A gauge of the store: the field of a `Reading` that has its values, by these labels."""

    name: str
    about: str
    field: str
    labels: tuple[str, ...] = ()


_GAUGES = (
    Gauge("rota_schedules_overdue", "Active schedules that should have fired more than 60 s ago.", "overdue"),
    Gauge("rota_schedules_total", "Schedules by state.", "schedules", ("tenant", "state")),
    Gauge("rota_tasks", "Tasks that wait or run, by queue and state.", "tasks", ("tenant", "queue", "state")),
    Gauge("rota_workflows", "Workflows that wait or run, by state.", "workflows", ("task_type", "state")),
    Gauge("rota_nodes", "Nodes by role; silent: not seen for three heartbeats.", "nodes", ("role", "state")),
    Gauge(
        "rota_tasks_unhandled",
        "Pending tasks of a kind that no live worker handles.",
        "unhandled",
        ("task_type",),
    ),
    Gauge("rota_alarms_open", "Alarms that are not over, by rule.", "alarms", ("tenant", "rule")),
    Gauge("rota_tasks_near_expiration", "Pending tasks that expire soon.", "near_expiration", ("task_type",)),
)


@as_work
async def read_gauges(tx: Tx, near: timedelta, at: datetime | None = None) -> Reading:
    """`near` is how close its expiry must be for a task to be near it; `at` is when (None: the store's own now)."""
    now = at or tx.now
    past = await tx.tally(PastExpiry(at=now), "kind")  # these read as expired, swept or not
    soon = await tx.tally(PastExpiry(at=now + near), "kind")
    nodes = await tx.find(NodeList(), NODES_AT_MOST)
    alive = serving.living(nodes, now)
    alarms = await tx.find(AlarmList(tenant=None, is_open=True), ALARMS_AT_MOST)
    tasks: Tally[tuple[str, ...]] = Tally()
    workflows: Tally[tuple[str, ...]] = Tally()
    unhandled: Tally[tuple[str, ...]] = Tally()
    known = {kind for node in nodes for kind in node.workflows}
    for (tenant, queue, kind, status), number in (
        await tally_open(tx, "tenant", "queue", "kind", "status", at=now)
    ).items():
        tasks[tenant, queue, status] += number
        if kind in known:
            workflows[kind, status] += number
        if status == TaskStatus.PENDING and serving.is_unhandled(nodes, now, tenant, kind, queue):
            unhandled[(kind,)] += number
    return Reading(
        tasks=tasks,
        workflows=workflows,
        nodes=Tally((role, "alive" if node in alive else "silent") for node in nodes for role in node.roles),
        unhandled=unhandled,
        alarms=Tally((str(each.tenant), str(each.rule)) for each in alarms),
        schedules=await tx.tally(ScheduleList(tenant=None), "tenant", "status"),
        near_expiration=Tally(soon) - Tally(past),
        overdue={(): await tx.count(DueSchedules(at=now - LATE), at_most=COUNTED_AT_MOST)},
    )


def readable(is_readable: bool) -> GaugeMetricFamily:
    family = GaugeMetricFamily("rota_store_readable", "Whether the last look at the store succeeded.")
    family.add_metric([], 1 if is_readable else 0)
    return family


def families(reading: Reading | None, make: Instruments) -> Iterator[GaugeMetricFamily]:
    """The reading as gauges. Gauges that could not be read have no values: an old number would pass for a new one."""
    yield readable(reading is not None)
    for gauge in _GAUGES:
        yield _family(gauge, getattr(reading or Reading(), gauge.field), make.names)


def _family(
    gauge: Gauge, found: Mapping[tuple[str, ...], int], names: Mapping[str, Names]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(gauge.name, gauge.about, labels=gauge.labels)
    bounded: Tally[tuple[str, ...]] = Tally()
    for values, number in sorted(found.items(), key=lambda item: -item[1]):  # the largest get names first
        of_series = zip(gauge.labels, values, strict=True)
        shown = (names[label].shown(value) if label in names else value for label, value in of_series)
        bounded[tuple(shown)] += number
    for series, number in bounded.items():
        family.add_metric(series, number)
    return family


log = logging.getLogger("rota")

CONTENT_TYPE = CONTENT_TYPE_LATEST
NAMES = 100
NEAR = timedelta(minutes=5)
FRESH = timedelta(seconds=10)
PATIENCE = timedelta(seconds=5)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The metrics of one process. `loop_lag` is a role, to be kept running on the loop that is to be measured;
    `registry` takes collectors of your own, too.

    Of tenants, task types, queues and routes at most `names` each are told apart. A look at the store is good for
    `FRESH`, however often it is asked for; a task is near its expiry if that is at most `NEAR` away."""

    def __init__(self, *, names: int = NAMES, clock: Clock | None = None) -> None:
        make = Instruments(names)
        self.registry = make.registry
        self._clock = clock or SystemClock()
        self._reading: Reading | None = None
        self._read_at: float | None = None
        self._looking = asyncio.Lock()
        self._counts = ObservationCounts(make)
        self._of_store_and_loop(make)
        self._of_http(make)
        self.registry.register(_Gauges(lambda: families(self._reading, make)))

    def observe(self, seen: Observation) -> None:
        """An Observer, for `Node(observers=…)`."""
        self._counts(seen)

    def observed(self, store: Store) -> Store:
        """The same store, its calls timed and its errors counted."""
        return ObservedStore(store, self.store_answered, self.store_failed, self._clock)

    def http_request(self, route: str | None, method: str, status: int, seconds: float) -> None:
        """A request was answered. `route` is a template (`/api/tenants/{tenant}/schedules`) and never a path; None: no
        route matched."""
        route, method = route or OTHER, method if method in METHODS else OTHER
        self._http_requests(route, method, str(status)).inc()
        self._http_seconds(route, method).observe(seconds)

    async def render(self, store: Store | None = None, now: datetime | None = None) -> bytes:
        """The answer to a scraper, as `CONTENT_TYPE`. With a store: what it holds, too, as of `now` (None: the store's
        own), at most `FRESH` old. If the store does not answer, the rest is rendered without it."""
        if store is not None:
            await self._look(store, now)
        return await asyncio.to_thread(generate_latest, self.registry)

    async def _look(self, store: Store, now: datetime | None) -> None:
        """Ask the store, once for all who ask at the same time, and no more often if it fails."""
        async with self._looking:
            if self._read_at is not None and self._clock.monotonic() - self._read_at < FRESH.total_seconds():
                return
            try:
                async with asyncio.timeout(PATIENCE.total_seconds()):
                    self._reading = await store.read(read_gauges(NEAR, now))
            except Exception as error:  # whatever ails the store, the other metrics are wanted all the more
                self._reading = None
                self.store_failed("gauges", error.code if isinstance(error, StoreError) else "unexpected")
                log.warning(
                    "the store cannot be read for the metrics: %s", str(error) or type(error).__name__
                )
            self._read_at = self._clock.monotonic()

    def _of_store_and_loop(self, make: Instruments) -> None:
        self._store_seconds = make.histogram(
            "rota_store_seconds", "How long the store took to answer.", BRIEF, "operation"
        )
        self._store_errors = make.counter(
            "rota_store_errors", "Calls that the store did not answer.", "operation", "code"
        )
        lag = make.histogram("rota_loop_lag_seconds", "How late the event loop was.", BRIEF)
        self.loop_lag = LoopLag(lag().observe, self._clock)

    def _of_http(self, make: Instruments) -> None:
        self._http_requests = make.counter(
            "rota_http_requests", "Requests that were answered.", "route", "method", "status"
        )
        self._http_seconds = make.histogram(
            "rota_http_request_seconds", "How long an answer took.", BRIEF, "route", "method"
        )

    def store_answered(self, operation: str, seconds: float) -> None:
        """For an `ObservedStore` that is made before the metrics are."""
        self._store_seconds(operation).observe(seconds)

    def store_failed(self, operation: str, code: str) -> None:
        """As `store_answered`. A store that was there at the last look is looked at again."""
        self._store_errors(operation, code).inc()
        if code == Unavailable.code and self._reading is not None:
            self._read_at = None


def store_away() -> bytes:
    """The metrics for a scraper while the store does not answer: its key cannot be looked up, so it gets no others."""
    registry = CollectorRegistry()
    registry.register(_Gauges(lambda: iter([readable(False)])))
    return generate_latest(registry)


class _Gauges(Collector):
    """The gauges of the last look at the store."""

    def __init__(self, collected: Callable[[], Iterator[Metric]]) -> None:
        self._collected = collected

    def collect(self) -> Iterable[Metric]:
        return self._collected()
