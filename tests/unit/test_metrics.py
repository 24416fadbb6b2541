"""Metrics: what is counted, under which name, and that names cannot grow without end."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import rota
from rota import testing
from rota.domain.errors import NotFound, Unavailable
from rota.domain.model import TaskTarget, WorkflowTarget
from rota.engine.clock import SystemClock
from rota.engine.node import Node
from rota.engine.observe.metrics import CONTENT_TYPE, Metrics
from rota.engine.observe.observed import LoopLag, ObservedStore
from rota.engine.observe.telemetry import (
    ClockJumped,
    HookFailed,
    LoopBlocked,
    LoopFailed,
    TaskMoved,
    TaskStarted,
)
from rota.stores.base import Store
from rota.stores.memory.store import MemoryStore
from rota.testing import LoopClock
from worlds import EVERY_STORE, HOUR, MINUTE, SECOND, STORES, World, play

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scraped(metrics: Metrics, store: Store | None = None) -> Samples:
    text = (await metrics.render(store)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


@pytest.fixture(params=EVERY_STORE)
def make_store(request: pytest.FixtureRequest) -> Any:
    return EVERY_STORE[request.param]


# Signals


def test_tasks_are_counted(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        metrics = Metrics(clock=world.clock)

        @world.app.task("good")
        async def good() -> None:
            await asyncio.sleep(2)

        @world.app.task("flaky", retry_policy=rota.RetryPolicy(initial=SECOND, jitter=0))
        async def flaky(context: Any) -> None:
            if context.attempt == 1:
                raise ValueError("not yet")

        @world.app.task("bad", max_retries=0)
        def bad() -> None:
            raise ValueError("never")

        @world.app.task("later")
        async def later(context: Any) -> None:
            if context.attempt == 1:
                raise rota.RescheduleError(delay_seconds=1)

        await world.queue.submit("good", queue="fast", ttl=HOUR)
        await world.queue.submit_many([("flaky", None), ("bad", None), ("later", None)])
        dead = await world.queue.submit("good", schedule_at=world.clock.now() + HOUR, ttl=MINUTE)
        worker = rota.Worker(world.queue, world.app, observers=[metrics.observe])
        worker.jump_watch.every = HOUR
        running = asyncio.create_task(worker.run(handle_signals=False))
        await world.at(2 * MINUTE)
        worker.stop()
        await running
        assert (await world.queue.get(dead.id)).status == "expired"

        seen = await scraped(metrics)
        assert value(seen, "rota_task_claims_total", queue="fast") == 1
        assert value(seen, "rota_task_claims_total", queue="default") == 5
        assert value(seen, "rota_task_wait_seconds_count", queue="default") == 5
        assert value(seen, "rota_tasks_ended_total", queue="fast", task_type="good", status="completed") == 1
        assert value(seen, "rota_tasks_ended_total", queue="default", task_type="bad", status="failed") == 1
        assert value(seen, "rota_tasks_ended_total", queue="default", task_type="good", status="expired") == 1
        assert value(seen, "rota_task_retries_total", task_type="flaky") == 1
        assert value(seen, "rota_task_retries_total", task_type="later") is None
        assert value(seen, "rota_task_duration_seconds_sum", task_type="good") == 2
        assert value(seen, "rota_task_duration_seconds_count", task_type="flaky") == 2
        assert value(seen, "rota_tasks_expired_total", task_type="good") == 1
        assert value(seen, "rota_task_ttl_seconds_count", task_type="good") == 2
        assert value(seen, "rota_task_ttl_seconds_sum", task_type="good") == 3660

    play(scenario, STORES["memory"], tmp_path)


def test_runs_of_schedules_are_counted(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        metrics = Metrics(clock=world.clock)

        @world.app.task("work")
        async def work() -> None:
            await asyncio.sleep(90)

        @world.app.workflow("flow", max_retries=0)
        async def flow(ctx: rota.Workflow) -> None:
            raise ValueError("no")

        await world.schedule("s", interval=MINUTE)
        await world.queue.create_schedule("w", target=WorkflowTarget(kind="flow"), cron="30 * * * *")
        worker = rota.Worker(world.queue, world.app, observers=[metrics.observe])
        worker.jump_watch.every = HOUR
        running = asyncio.create_task(worker.run(handle_signals=False))
        await world.at(4 * MINUTE + SECOND)
        four_minutes = await scraped(metrics)
        await world.at(31 * MINUTE)
        worker.stop()
        await running
        seen = await scraped(metrics)

        def runs(samples: Samples, status: str, target_type: str = "task") -> float | None:
            return value(
                samples,
                "rota_schedule_runs_total",
                tenant="default",
                status=status,
                target_type=target_type,
            )

        assert runs(four_minutes, "running") == 2
        assert runs(four_minutes, "skipped") == 2
        assert runs(four_minutes, "completed") == 1
        assert runs(seen, "running", "workflow") == runs(seen, "failed", "workflow") == 1
        latency = "rota_schedule_run_latency_seconds"
        assert value(four_minutes, f"{latency}_count", tenant="default") == 2
        assert value(four_minutes, f"{latency}_sum", tenant="default") == pytest.approx(0, abs=0.1)

    play(scenario, STORES["memory"], tmp_path)


def test_steps_replays_and_waits_of_workflows_are_counted(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        metrics = Metrics(clock=world.clock)
        tries: list[int] = []

        async def charge() -> None:
            tries.append(1)
            await asyncio.sleep(2)
            if len(tries) == 1:
                raise ValueError("busy")

        @world.app.workflow("flow")
        async def flow(ctx: rota.Workflow) -> None:
            await ctx.step(charge)
            await ctx.first(late=ctx.sleep(HOUR), paid=ctx.receive("paid"))

        worker = rota.Worker(world.queue, world.app, observers=[metrics.observe])
        worker.jump_watch.every = HOUR
        running = asyncio.create_task(worker.run(handle_signals=False))
        await world.queue.start_workflow("flow")
        await world.at(MINUTE)
        seen = await scraped(metrics, world.queue.store)
        worker.stop()
        await running
        assert value(seen, "rota_workflows", task_type="flow", state="pending") == 1
        assert value(seen, "rota_workflow_step_retries_total", task_type="flow") == 1
        assert value(seen, "rota_workflow_step_seconds_count", task_type="flow") == 1
        assert (value(seen, "rota_workflow_step_seconds_sum", task_type="flow") or 0) > 4
        assert value(seen, "rota_workflow_replay_seconds_count", task_type="flow") == 1
        reasons = {"retry": 1, "sleep": 1, "receive": 1, "child": None}
        found = {
            reason: value(seen, "rota_workflow_waits_total", task_type="flow", reason=reason)
            for reason in reasons
        }
        assert found == reasons

    play(scenario, STORES["memory"], tmp_path)


@pytest.mark.parametrize("target_type", ["task", "workflow"])
def test_a_run_that_is_triggered_by_hand_is_counted_once_when_it_starts_and_once_when_it_ends(
    tmp_path: Path, make_store: Any, target_type: str
) -> None:
    """Whoever triggers it has no metrics, if it is a command: the worker counts its start, and only of the first
    attempt."""

    async def scenario(world: World) -> None:
        metrics = Metrics(clock=world.clock)

        @world.app.task("work", retry_policy=rota.RetryPolicy(initial=SECOND, jitter=0))
        async def work(context: Any) -> None:
            if context.attempt == 1:
                raise ValueError("not yet")

        target = WorkflowTarget(kind="work") if target_type == "workflow" else TaskTarget(kind="work")
        await world.queue.create_schedule("s", target=target, interval=MINUTE)
        await world.queue.trigger_schedule("s")
        worker = rota.Worker(world.queue, world.app, observers=[metrics.observe])
        worker.jump_watch.every = HOUR
        running = asyncio.create_task(worker.run(handle_signals=False))
        await world.at(30 * SECOND)
        by_hand = await scraped(metrics)
        await world.at(90 * SECOND)
        worker.stop()
        await running
        both = await scraped(metrics)

        def runs(samples: Samples) -> dict[str, float]:
            labels = {"tenant": "default", "target_type": target_type}
            found = {
                status: value(samples, "rota_schedule_runs_total", status=status, **labels)
                for status in ("running", "completed", "failed", "skipped", "cancelled")
            }
            return {status: count for status, count in found.items() if count}

        assert runs(by_hand) == {"running": 1, "completed": 1}
        assert runs(both) == {"running": 2, "completed": 2}

    play(scenario, make_store, tmp_path)


@pytest.mark.parametrize("end", ["completed", "skipped"])
def test_a_run_by_hand_that_is_handed_back_is_counted_as_started_once(
    tmp_path: Path, make_store: Any, end: str
) -> None:
    async def scenario(world: World) -> None:
        metrics = Metrics(clock=world.clock)

        @world.app.task("work")
        async def work() -> None:
            await asyncio.sleep(30)

        await world.schedule("s", interval=HOUR, ttl=55)
        task = await world.queue.trigger_schedule("s")

        async def worked(seconds: float) -> None:
            worker = rota.Worker(
                world.queue, world.app, observers=[metrics.observe], scheduler=False, shutdown_timeout=0
            )
            running = asyncio.create_task(worker.run(handle_signals=False))
            await asyncio.sleep(seconds)
            worker.stop()
            await running

        await worked(10)
        assert (await world.queue.get(task.id)).status == "pending"
        if end == "skipped":
            await world.at(MINUTE)
        await worked(40)
        seen = await scraped(metrics)
        runs = {"tenant": "default", "target_type": "task"}
        assert value(seen, "rota_schedule_runs_total", status="running", **runs) == 1
        assert value(seen, "rota_schedule_runs_total", status=end, **runs) == 1
        assert value(seen, "rota_task_ttl_seconds_count", task_type="work") == 1

    play(scenario, make_store, tmp_path)


def test_a_ttl_of_nothing_is_counted_as_an_expiry(tmp_path: Path, make_store: Any) -> None:
    """Whoever submitted it: the janitor finds it."""

    async def scenario(world: World) -> None:
        metrics = Metrics(clock=world.clock)
        task = await world.queue.submit("work", ttl=0)
        assert task.status == (await world.queue.get(task.id)).status == "expired"
        await world.schedule("s", interval=MINUTE, ttl=0)
        await world.queue.trigger_schedule("s")
        node = Node(world.queue, observers=[metrics.observe])
        for moment in (SECOND, MINUTE, MINUTE + SECOND, MINUTE + 2 * SECOND):
            await world.at(moment)
            await node.run_once()
        seen = await scraped(metrics)
        assert value(seen, "rota_tasks_expired_total", task_type="work") == 3
        assert value(seen, "rota_task_ttl_seconds_count", task_type="work") == 3
        ended = {"queue": "default", "task_type": "work", "status": "expired"}
        assert value(seen, "rota_tasks_ended_total", **ended) == 3
        runs = {"tenant": "default", "target_type": "task"}
        assert value(seen, "rota_schedule_runs_total", status="running", **runs) == 2
        assert value(seen, "rota_schedule_runs_total", status="skipped", **runs) == 2
        assert value(seen, "rota_schedule_runs_total", status="failed", **runs) is None

    play(scenario, make_store, tmp_path)


def test_lost_leases_are_counted_by_who_saw_them(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        metrics = Metrics(clock=world.clock)

        @world.app.task("work", max_retries=1)
        async def work() -> None:
            await asyncio.sleep(3600)

        await world.queue.submit("work")
        cut_off = rota.Worker(
            world.queue, world.app, lease=5, scheduler=False, janitor=False, observers=[metrics.observe]
        )
        await cut_off.tasks.run_once()
        await world.at(MINUTE)  # without a round, and so without a renewal
        await Node(world.queue, scheduler=False, observers=[metrics.observe]).run_once()
        cut_off.tasks.accepting = False
        await cut_off.tasks.leases.run_once()
        await testing.settle()
        cut_off.tasks.close()

        seen = await scraped(metrics)
        assert value(seen, "rota_leases_lost_total", task_type="work", seen_by="janitor") == 1
        assert value(seen, "rota_leases_lost_total", task_type="work", seen_by="worker") == 1
        assert value(seen, "rota_task_retries_total", task_type="work") == 1
        assert value(seen, "rota_task_duration_seconds_count", task_type="work") is None

    play(scenario, STORES["memory"], tmp_path)


async def test_trouble_is_counted() -> None:
    metrics = Metrics()
    metrics.observe(LoopFailed("worker", ValueError(), SECOND))
    metrics.observe(HookFailed("on_error", ValueError()))
    metrics.observe(LoopBlocked(SECOND, (), ""))
    metrics.observe(ClockJumped(HOUR))
    seen = await scraped(metrics)
    assert value(seen, "rota_loop_failures_total", role="worker") == 1
    assert value(seen, "rota_hook_failures_total", hook="on_error") == 1
    assert value(seen, "rota_loop_blocked_total") == 1
    assert value(seen, "rota_clock_jumps_total") == 1


# Gauges


def test_gauges_show_what_the_store_holds(tmp_path: Path, make_store: Any) -> None:
    async def scenario(world: World) -> None:
        metrics = Metrics(clock=world.clock)
        other = world.queue.for_tenant("acme")
        await world.queue.submit_many([("a", None)] * 3)
        await world.queue.submit("a", queue="mail", ttl=MINUTE)
        await world.queue.submit("a", ttl=HOUR)
        await other.submit("b", ttl=2 * SECOND)
        await world.schedule("s", interval=MINUTE)
        await other.create_schedule("t", task_type="work", interval=MINUTE)
        await other.pause_schedule("t")

        seen = await scraped(metrics, world.store)
        assert value(seen, "rota_tasks", tenant="default", queue="default", state="pending") == 4
        assert value(seen, "rota_tasks", tenant="default", queue="mail", state="pending") == 1
        assert value(seen, "rota_tasks", tenant="acme", queue="default", state="pending") == 1
        assert value(seen, "rota_schedules_total", tenant="default", state="active") == 1
        assert value(seen, "rota_schedules_total", tenant="acme", state="paused") == 1
        assert value(seen, "rota_tasks_near_expiration", task_type="a") == 1
        assert value(seen, "rota_tasks_near_expiration", task_type="b") == 1
        assert value(seen, "rota_schedules_overdue") == 0
        assert value(seen, "rota_store_readable") == 1

        await world.at(MINUTE + timedelta(seconds=59))
        seen = await scraped(metrics, world.store)
        assert value(seen, "rota_schedules_overdue") == 0
        assert value(seen, "rota_tasks_near_expiration", task_type="b") is None  # past, not near
        await world.at(3 * MINUTE)
        assert value(await scraped(metrics, world.store), "rota_schedules_overdue") == 1

    play(scenario, make_store, tmp_path)


class CountingStore(MemoryStore):
    reads = 0
    fails = False

    async def read(self, work: Any, /) -> Any:
        type(self).reads += 1
        if self.fails:
            raise Unavailable("gone")
        return await super().read(work)


def test_the_store_is_asked_at_most_every_ten_seconds(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        store = world.store
        assert isinstance(store, CountingStore)
        metrics = Metrics(clock=world.clock)
        await asyncio.gather(*(metrics.render(store) for _ in range(20)))
        assert store.reads == 1
        await world.at(timedelta(seconds=9))
        await metrics.render(store)
        assert store.reads == 1
        await world.at(timedelta(seconds=10))
        await metrics.render(store)
        assert store.reads == 2

        store.fails = True
        await world.at(timedelta(seconds=20))
        for _ in range(3):
            seen = await scraped(metrics, store)
        assert store.reads == 3
        assert value(seen, "rota_store_readable") == 0
        assert value(seen, "rota_schedules_overdue") is None
        assert value(seen, "rota_store_errors_total", operation="gauges", code="unavailable") == 1

    play(scenario, lambda folder, clock: CountingStore(clock), tmp_path)


# The store and the loop


def test_calls_of_the_store_are_timed_and_their_errors_counted(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        metrics = Metrics(clock=world.clock)
        store = metrics.observed(world.store)
        assert store.url == world.store.url
        queue = rota.Queue(store, clock=world.clock)
        await queue.submit("a")
        with pytest.raises(NotFound):
            await queue.get("none")

        async def failing(tx: Any) -> None:
            raise Unavailable("gone")

        async def broken(tx: Any) -> None:
            raise ZeroDivisionError

        with pytest.raises(Unavailable):
            await store.read(failing)
        with pytest.raises(ZeroDivisionError):
            await store.transact(broken)
        seen = await scraped(metrics)
        assert value(seen, "rota_store_seconds_count", operation="transact") == 2
        assert value(seen, "rota_store_seconds_count", operation="read") == 3  # one looked for the nodes
        assert value(seen, "rota_store_errors_total", operation="read", code="unavailable") == 1
        assert value(seen, "rota_store_errors_total", operation="transact", code="unexpected") == 1

    play(scenario, STORES["memory"], tmp_path)


def test_an_observed_store_is_a_whole_store() -> None:
    offered = {name for name in vars(Store) if not name.startswith("_")}
    assert offered <= set(vars(ObservedStore))


async def test_what_only_some_stores_have_is_still_there() -> None:
    store = Metrics().observed(MemoryStore(LoopClock(testing.START)))
    nothing: Any = None
    with pytest.raises(rota.Invalid, match="has none to join"):
        await store.join(None, nothing)


async def test_the_lag_of_the_loop_is_how_late_a_round_is() -> None:
    class Steady:
        seconds = 100.0

        def monotonic(self) -> float:
            return self.seconds

    clock: Any = Steady()
    seen: list[Any] = []
    lag = LoopLag(seen.append, clock)
    assert await lag.run_once() == SECOND
    clock.seconds += 1.25
    await lag.run_once()
    clock.seconds += 0.5  # woken early: not late
    await lag.run_once()
    assert seen == [0.25, 0.0]


async def test_requests_are_counted_by_route() -> None:
    metrics = Metrics()
    metrics.http_request("/api/tenants/{tenant}/schedules", "GET", 200, 0.01)
    metrics.http_request(None, "BREW", 404, 0.01)
    seen = await scraped(metrics)
    labels = {"route": "/api/tenants/{tenant}/schedules", "method": "GET"}
    assert value(seen, "rota_http_requests_total", **labels, status="200") == 1
    assert value(seen, "rota_http_request_seconds_count", **labels) == 1
    assert value(seen, "rota_http_requests_total", route="other", method="other", status="404") == 1


# Bounds and form


async def test_names_are_as_promtool_wants_them() -> None:
    """But for one gauge, whose name was promised."""
    metrics = Metrics()
    metrics.http_request("/", "GET", 200, 0.1)
    text = (await metrics.render(MemoryStore(SystemClock()))).decode()
    kinds = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
    helped = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP ")}
    assert helped == kinds.keys()
    totals = {name for name in kinds if name.endswith("_total")}
    counters = {name for name, kind in kinds.items() if kind == "counter"}
    assert totals == counters | {"rota_schedules_total"}
    assert all(name.endswith("_seconds") for name, kind in kinds.items() if kind == "histogram")
    reserved = ("_count", "_sum", "_bucket", "_info")
    assert not [name for name in kinds if name.endswith(reserved) or name != name.lower()]


def test_labels_are_bounded(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        metrics = Metrics(names=5, clock=world.clock)
        for number in range(20):
            queue = world.queue.for_tenant(f"tenant-{number}")
            task = await queue.submit(f"kind-{number}", queue=f"queue-{number}", ttl=MINUTE)
            await queue.create_schedule("s", task_type="work", interval=MINUTE)
            for _ in range(2):
                metrics.observe(TaskStarted(task))
                metrics.observe(TaskMoved(task))
            metrics.http_request(f"/{number}", "GET", 200, 0.1)
        seen = await scraped(metrics, world.store)
        for name in {name for name, _ in seen}:
            for label in ("tenant", "queue", "task_type", "route"):
                values = {dict(labels).get(label) for found, labels in seen if found == name}
                assert len(values) <= 6, (name, label, values)
        claims = [count for (name, _), count in seen.items() if name == "rota_task_claims_total"]
        assert sum(claims) == 40
        assert value(seen, "rota_task_claims_total", queue="other") == 30
        schedules = [count for (name, _), count in seen.items() if name == "rota_schedules_total"]
        assert sum(schedules) == 20
        assert value(seen, "rota_schedules_total", tenant="other", state="active") == 15

    play(scenario, STORES["memory"], tmp_path)


async def test_the_text_is_what_prometheus_reads() -> None:
    metrics = Metrics()
    text = (await metrics.render(MemoryStore(LoopClock(testing.START)))).decode()
    assert CONTENT_TYPE.startswith("text/plain")
    assert "# TYPE rota_schedules_total gauge" in text
    assert "# TYPE rota_schedule_runs_total counter" in text
    assert "_created" not in text
    assert not re.search(r"_total_total", text)


def test_the_engine_does_not_need_prometheus() -> None:
    code = """
import sys
sys.modules["prometheus_client"] = None
import rota, rota.engine.node, rota.surfaces.cli.process.running, rota.surfaces.python.client
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_rota_imports_no_metrics_and_no_traces() -> None:
    optional = ("prometheus_client", "opentelemetry")
    code = f"import sys, rota; rota.Worker; print([n for n in {optional!r} if n in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
