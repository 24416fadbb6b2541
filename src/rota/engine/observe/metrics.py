"""Metrics for Prometheus: observations of the engine, calls of the store, the event loop, and the state of the store.

    metrics = Metrics()
    queue.store = metrics.observed(queue.store)         # its calls are timed
    node = Node(queue, observers=[metrics.observe])     # observations become counters and histograms
    await metrics.render(queue.store)                   # what /metrics answers

A process counts its own work since it began. Only the gauges are about the whole store: a scrape asks the store how
much there is of each, in one read that follows indexes. `docs/observability.md` lists every metric. This module needs
prometheus-client (`rota[server]`); the rest of the engine does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ...domain import serving
from ...domain.errors import StoreError, Unavailable
from ...domain.model import TaskStatus
from ...stores.base import Store, Tx
from ...stores.queries import AlarmList, DueSchedules, NodeList, OpenTasks, PastExpiry, ScheduleList
from ..clock import Clock, SystemClock
from ..work import as_work
from .counting import BRIEF, OTHER, Instruments, Names, ObservationCounts
from .observed import LoopLag, ObservedStore
from .telemetry import Observation

__all__ = [
    "CONTENT_TYPE",
    "LATE",
    "Metrics",
    "Reading",
    "families",
    "read_gauges",
    "readable",
    "store_away",
]

LATE = timedelta(seconds=60)
COUNTED_AT_MOST = 100_000
NODES_AT_MOST = 10_000
ALARMS_AT_MOST = 1000


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the store found: how many there are of each, by the labels of `_GAUGES`."""

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
    tasks: Counter[tuple[str, ...]] = Counter()
    workflows: Counter[tuple[str, ...]] = Counter()
    unhandled: Counter[tuple[str, ...]] = Counter()
    known = {kind for node in nodes for kind in node.workflows}
    for (tenant, queue, kind, status), number in (
        await tx.tally(OpenTasks(), "tenant", "queue", "kind", "status")
    ).items():
        tasks[tenant, queue, status] += number
        if kind in known:
            workflows[kind, status] += number
        if status == TaskStatus.PENDING and serving.is_unhandled(nodes, now, tenant, kind, queue):
            unhandled[(kind,)] += number
    return Reading(
        tasks=tasks,
        workflows=workflows,
        nodes=Counter(
            (role, "alive" if node in alive else "silent") for node in nodes for role in node.roles
        ),
        unhandled=unhandled,
        alarms=Counter((str(each.tenant), str(each.rule)) for each in alarms),
        schedules=await tx.tally(ScheduleList(tenant=None), "tenant", "status"),
        near_expiration=Counter(soon) - Counter(past),
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
    bounded: Counter[tuple[str, ...]] = Counter()
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
    `fresh`, however often it is asked for; a task is near its expiry if that is at most `near` away."""

    def __init__(
        self,
        *,
        names: int = NAMES,
        near: timedelta = NEAR,
        fresh: timedelta = FRESH,
        clock: Clock | None = None,
    ) -> None:
        make = Instruments(names)
        self.registry = make.registry
        self._clock = clock or SystemClock()
        self._near = near
        self._fresh = fresh.total_seconds()
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
        """What to answer a scraper, as `CONTENT_TYPE`. With a store: what it holds, too, as of `now` (None: the store's
        own), at most `fresh` old. If the store does not answer, the rest is rendered without it."""
        if store is not None:
            await self._look(store, now)
        return await asyncio.to_thread(generate_latest, self.registry)

    async def _look(self, store: Store, now: datetime | None) -> None:
        """Ask the store, once for all who ask at the same time, and no more often if it fails."""
        async with self._looking:
            if self._read_at is not None and self._clock.monotonic() - self._read_at < self._fresh:
                return
            try:
                async with asyncio.timeout(PATIENCE.total_seconds()):
                    self._reading = await store.read(read_gauges(self._near, now))
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
