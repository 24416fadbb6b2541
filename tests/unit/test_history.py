"""A task's history holds facts. The words for them are made in one place, and nothing is decided by them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rota.domain.model import ChangeType, Failure, Limits, Task
from rota.domain.model import task as task_shapes
from rota.domain.task import (
    Completed,
    Defaults,
    Failed,
    Outcome,
    Released,
    Rescheduled,
    Submission,
    admit,
    archive,
    brought_back,
    cancel,
    claim,
    expire,
    lose,
    replay,
    settle,
)
from rota.engine.changes import notices_of
from rota.engine.clock import SystemClock
from rota.engine.observe.metrics import Metrics
from rota.engine.observe.telemetry import TaskMoved
from rota.surfaces.http.tenants.answers import attempts

NOW = datetime(2026, 1, 28, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
BOOM = Failed(failure=Failure(type="ValueError", message="boom"))


def submitted(**options: Any) -> Task:
    return admit("t1", Submission(kind="send", **options), "default", NOW, Limits(), "ann")


def running(**options: Any) -> Task:
    task = submitted(**options)
    return claim(
        task, worker_id="w1", lease_id="L1", lease=30 * SECOND, defaults=Defaults(max_retries=1), now=NOW
    )


def settled(outcome: Outcome, task: Task | None = None) -> Task:
    return settle(task or running(), outcome, lease_id="L1", now=NOW + SECOND)


def every_change() -> Iterator[Task]:
    """Tasks whose last changes are of every type."""
    yield submitted()
    yield submitted(ttl=60 * SECOND)
    yield running()
    yield settled(Completed("done"))
    yield settled(BOOM)
    yield settled(BOOM, running(max_retries=0))
    yield settled(Rescheduled(delay=SECOND, extend_expiration=SECOND, detail="not yet"), running(ttl=SECOND))
    yield settled(Released())
    yield lose(running(), NOW + 60 * SECOND)
    yield lose(running(max_retries=0), NOW + 60 * SECOND)
    yield cancel(submitted(), NOW, "ann", "no need")
    yield cancel(running(), NOW, "ann")
    yield expire(submitted(ttl=SECOND), NOW + SECOND, "janitor")
    yield replay(settled(BOOM, running(max_retries=0)), NOW, "ann")
    yield archive(settled(Completed()), NOW, "ann")
    yield brought_back(settled(BOOM), NOW)
    yield brought_back(running(), NOW)


def test_every_type_happens_and_most_have_words() -> None:
    tasks = list(every_change())
    assert {task.last_change for task in tasks} == set(ChangeType)
    silent = {change.type for task in tasks for change in task.history if not change.detail}
    assert silent == {ChangeType.COMPLETED}


def test_a_reworded_sentence_changes_no_figure_and_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics, notices and attempts read facts."""

    def seen(words: str | None) -> list[Any]:
        if words is not None:
            monkeypatch.setattr(task_shapes, "describe", lambda change: words)
        metrics = Metrics(clock=SystemClock())
        tasks = list(every_change())
        for task in tasks:
            metrics.observe(TaskMoved(task))
        figures = [
            line
            for line in asyncio.run(metrics.render()).decode().splitlines()
            if line.startswith("rota_") and "_created" not in line
        ]
        notices = [notice.name for task in tasks for notice in notices_of(task)]
        tried = [replace(each, detail="") for task in tasks for each in attempts(task).items]
        return [figures, notices, tried]

    figures, notices, tried = before = seen(None)
    assert 'rota_task_retries_total{task_type="send"} 2.0' in figures
    assert 'rota_leases_lost_total{seen_by="janitor",task_type="send"} 2.0' in figures
    assert {"task.retrying", "task.started", "task.cancelling", "task.replayed"} <= set(notices)
    assert tried
    for words in ("", "attempt 7", "retry 1 of 3", "recommencé"):
        assert seen(words) == before
