"""Traces: submit, claim and run are one trace, the handler's own spans are in it, and without OpenTelemetry nothing
breaks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import rota
from rota.engine.observe import tracing
from worlds import MINUTE, SECOND, START, STORES, World, play


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A program that traces, for the length of a test: OpenTelemetry lets a provider be set once and for all."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def is_below(span: ReadableSpan, above: ReadableSpan) -> bool:
    assert above.context is not None
    return (
        span.parent is not None
        and span.parent.span_id == above.context.span_id
        and trace_id(span) == trace_id(above)
    )


def own_span(name: str) -> Any:
    return trace.get_tracer_provider().get_tracer("shop").start_as_current_span(name)


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("timeout", [None, MINUTE])
def test_submit_claim_and_run_are_one_trace(
    tmp_path: Path, spans: InMemorySpanExporter, in_thread: bool, timeout: Any
) -> None:
    async def scenario(world: World) -> None:
        def parent(context: Any) -> None:
            with own_span("own"):
                context.call(context.queue.submit("child"))

        async def parent_async(context: Any) -> None:
            with own_span("own"):
                await context.queue.submit("child")

        world.app.task("parent", timeout=timeout)(parent if in_thread else parent_async)

        @world.app.task("child")
        async def child() -> None: ...

        with own_span("request"):
            task = await world.queue.submit("parent", queue="fast")
        assert task.trace is not None
        async with world.running(worker_id="w1"):
            await world.at(SECOND)

        request, submit = named(spans, "request"), named(spans, "submit parent")
        claim, run = named(spans, "claim parent"), named(spans, "run parent")
        own, below = named(spans, "own"), named(spans, "submit child")
        assert is_below(submit, request)
        assert is_below(claim, submit)
        assert is_below(run, claim)
        assert is_below(own, run)
        assert is_below(below, own)
        assert len({trace_id(span) for span in spans.get_finished_spans()}) == 1
        assert named(spans, "run child")
        assert (submit.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        assert run.attributes == {
            "rota.task.id": task.id,
            "rota.task.type": "parent",
            "rota.task.attempt": 1,
            "rota.queue": "fast",
            "rota.tenant": "default",
            "rota.worker.id": "w1",
        }
        assert run.status.status_code is StatusCode.UNSET

    play(scenario, STORES["memory"], tmp_path)


def test_a_failure_is_an_error_with_its_exception(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    async def scenario(world: World) -> None:
        @world.app.task("bad", max_retries=1, retry_policy=rota.RetryPolicy(initial=SECOND, jitter=0))
        async def bad(context: Any) -> None:
            if context.attempt == 1:
                raise ValueError("not yet")

        @world.app.task("slow", max_retries=0, timeout=1)
        async def slow() -> None:
            await asyncio.sleep(60)

        await world.queue.submit("bad")
        await world.queue.submit("slow")
        async with world.running():
            await world.at(MINUTE)
        first, second = [span for span in spans.get_finished_spans() if span.name == "run bad"]
        assert first.status.status_code is StatusCode.ERROR
        assert first.status.description == "ValueError: not yet"
        (event,) = first.events
        assert event.name == "exception"
        assert event.attributes is not None
        assert event.attributes["exception.type"] == "ValueError"
        assert "raise ValueError" in str(event.attributes["exception.stacktrace"])
        assert second.status.status_code is StatusCode.UNSET
        assert trace_id(first) == trace_id(second)
        assert (
            named(spans, "run slow").status.description == "TimeoutError: ran longer than its timeout of 1 s"
        )

    play(scenario, STORES["memory"], tmp_path)


def test_what_a_schedule_starts_is_a_trace_of_its_own(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    async def scenario(world: World) -> None:
        @world.app.task("work")
        async def work() -> None: ...

        schedule = await world.schedule("s", interval=MINUTE)
        with own_span("program"):  # whoever starts the worker is not who asked for the task
            async with world.running():
                await world.at(MINUTE + SECOND)
        claim, run = named(spans, "claim work"), named(spans, "run work")
        assert claim.parent is None
        assert is_below(run, claim)
        assert run.attributes is not None
        (ran,) = await world.ledger("s")
        assert run.attributes["rota.schedule.id"] == schedule.id
        assert run.attributes["rota.run.id"] == ran.id

    play(scenario, STORES["memory"], tmp_path)


def test_many_tasks_submitted_at_once_have_one_submit_span(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    async def scenario(world: World) -> None:
        tasks = await world.queue.submit_many([("a", 1), ("a", 2), ("b", 3)])
        (span,) = spans.get_finished_spans()
        assert span.attributes is not None
        assert span.attributes["rota.task.count"] == 3
        assert {task.trace for task in tasks} == {tasks[0].trace}
        assert tasks[0].trace is not None

    play(scenario, STORES["memory"], tmp_path)


def test_a_handler_that_is_stopped_before_its_first_step_leaves_nothing(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    async def scenario(world: World) -> None:
        @world.app.task("work")
        async def work() -> None: ...

        await world.queue.submit("work")
        worker = world.worker()
        await worker.tasks.claim()
        worker.tasks.abandon_handlers()
        await asyncio.sleep(0)
        worker.tasks.close()

    play(scenario, STORES["memory"], tmp_path)


TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_traceparent_from_outside_is_continued(spans: InMemorySpanExporter) -> None:
    with tracing.submitting("work", parent=TRACEPARENT) as given:
        pass
    assert given is not None
    assert given.split("-")[1] == TRACEPARENT.split("-")[1]
    assert given != TRACEPARENT
    assert format(trace_id(named(spans, "submit work")), "032x") == TRACEPARENT.split("-")[1]


def test_without_a_provider_nothing_is_traced(tmp_path: Path) -> None:
    assert not tracing.is_on()
    with tracing.submitting("work", parent=TRACEPARENT) as given:
        assert given == TRACEPARENT
    with tracing.submitting("work") as nothing:
        assert nothing is None


def test_without_opentelemetry_nothing_breaks() -> None:
    code = """
import asyncio, sys
sys.modules["opentelemetry"] = sys.modules["opentelemetry.trace"] = None
import rota

async def main():
    async with rota.connect("memory:") as queue:
        worker = rota.Worker(queue)

        @worker.task("work")
        def work(context):
            context.call(queue.submit("other"))

        task = await queue.submit("work")
        await worker.run_once()
        worker.tasks.close()
        print((await queue.get(task.id)).status, task.trace)

asyncio.run(main())
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "completed None"


@pytest.mark.parametrize("is_submitted", [True, False])
def test_a_workflow_is_one_trace_over_all_its_attempts(
    spans: InMemorySpanExporter, is_submitted: bool, tmp_path: Path
) -> None:
    async def scenario(world: World) -> None:
        @world.app.task("kid")
        async def kid() -> None: ...

        @world.app.workflow("flow")
        async def flow(ctx: rota.Workflow) -> None:
            await ctx.step(lambda: own_span("inner").__enter__().end(), name="charge")
            await ctx.sleep(MINUTE)
            await ctx.child("kid")

        async with world.running():
            if is_submitted:
                run = await world.queue.start_workflow("flow")
            else:
                target = rota.WorkflowTarget(kind="flow")
                await world.queue.create_schedule("s", target=target, run_at=START + SECOND)
                await world.at(2 * SECOND)
                [run] = await world.tasks(kind="flow")
            await world.queue.wait(run.id)

    play(scenario, STORES["memory"], tmp_path)
    found = spans.get_finished_spans()
    assert len({trace_id(span) for span in found}) == 1
    assert sum(span.name == "run flow" for span in found) == 3
    assert is_below(named(spans, "inner"), named(spans, "step charge"))
    first = next(span for span in found if span.name == "run flow")
    assert is_below(named(spans, "step charge"), first)
