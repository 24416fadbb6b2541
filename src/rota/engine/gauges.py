"""What a scrape asks the store: how much there is of what, now. One read of a few questions, each for an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
from prometheus_client.core import GaugeMetricFamily

from ..stores.base import Tx, Work
from ..stores.queries import DueSchedules, OpenTasks, PastExpiry, ScheduleList
from .series import Names

__all__ = ["LATE", "Bounds", "Reading", "families", "read_gauges", "readable"]

LATE = timedelta(seconds=60)
COUNTED_AT_MOST = 100_000


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The answers: tasks by (tenant, queue, state), schedules by (tenant, state), tasks that will expire by (type)."""

    tasks: Mapping[tuple[str, ...], int]
    schedules: Mapping[tuple[str, ...], int]
    near_expiration: Mapping[tuple[str, ...], int]
    overdue: int


class Bounds(Protocol):
    """The labels, each with its own limit."""

    @property
    def tenant(self) -> Names: ...

    @property
    def queue(self) -> Names: ...

    @property
    def task_type(self) -> Names: ...


def read_gauges(near: timedelta, at: datetime | None = None) -> Work[Reading]:
    """`near` is how close its expiry must be for a task to be near it; `at` is when (None: the store's own now)."""

    async def work(tx: Tx) -> Reading:
        now = at or tx.now
        past = await tx.tally(PastExpiry(at=now), "kind")  # these read as expired, swept or not
        soon = await tx.tally(PastExpiry(at=now + near), "kind")
        return Reading(
            tasks=await tx.tally(OpenTasks(), "tenant", "queue", "status"),
            schedules=await tx.tally(ScheduleList(tenant=None), "tenant", "status"),
            near_expiration=Counter(soon) - Counter(past),
            overdue=await tx.count(DueSchedules(at=now - LATE), at_most=COUNTED_AT_MOST),
        )

    return work


def readable(is_readable: bool) -> GaugeMetricFamily:
    family = GaugeMetricFamily("rota_store_readable", "Whether the last look at the store succeeded.")
    family.add_metric([], 1 if is_readable else 0)
    return family


def families(reading: Reading | None, bounds: Bounds) -> Iterator[GaugeMetricFamily]:
    """As Prometheus has them. What could not be read is left out: an old number would pass for a new one."""
    yield readable(reading is not None)
    overdue = GaugeMetricFamily(
        "rota_schedules_overdue", "Active schedules that should have fired more than 60 s ago."
    )
    if reading is not None:
        overdue.add_metric([], reading.overdue)
    yield overdue
    yield _family(
        "rota_schedules_total",
        "Schedules by state.",
        {"tenant": bounds.tenant, "state": None},
        {} if reading is None else reading.schedules,
    )
    yield _family(
        "rota_tasks",
        "Tasks that wait or run, by queue and state.",
        {"tenant": bounds.tenant, "queue": bounds.queue, "state": None},
        {} if reading is None else reading.tasks,
    )
    yield _family(
        "rota_tasks_near_expiration",
        "Pending tasks that expire soon.",
        {"task_type": bounds.task_type},
        {} if reading is None else reading.near_expiration,
    )


def _family(
    name: str, about: str, labels: Mapping[str, Names | None], found: Mapping[tuple[str, ...], int]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=list(labels))
    shown: Counter[tuple[str, ...]] = Counter()
    for values, count in sorted(found.items(), key=lambda item: -item[1]):  # the largest get names first
        of_series = zip(labels.values(), values, strict=True)
        shown[tuple(value if names is None else names.shown(value) for names, value in of_series)] += count
    for series, count in shown.items():
        family.add_metric(series, count)
    return family
