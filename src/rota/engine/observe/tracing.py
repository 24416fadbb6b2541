"""Traces: submit, claim and run are one trace, if the program traces with OpenTelemetry.

Rota brings no tracing of its own and imports none. If the program has set a tracer provider (the SDK's, or whatever
`opentelemetry-instrument` sets) there are spans; if not, all of this is a look into `sys.modules`.

A submitted task keeps the W3C `traceparent` of its *submit* span. The worker that claims it, in any process, makes a
*claim* span below that, and a *run* span below the claim, which is current while the handler runs: spans that the
handler makes, and tasks that it submits, belong to the same trace. A task that a schedule started has no submitter: its
trace begins with the claim, and names schedule and run. A workflow is run again and again, and all of it is one trace
(its id is derived if nobody submitted it); each try at a step has a span below the *run*.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from ...domain.model import Failure, Task
from ...domain.task import Failed, Outcome, Released, Rescheduled
from ...domain.workflow import trace_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_on() -> bool:
    """Whether this program traces."""
    return _tracer() is not None


def submitting(kind: str, count: int = 1, parent: str | None = None) -> AbstractContextManager[str | None]:
    """Round a submission: gives what to store as the task's `trace`. `parent` is the traceparent that came with the
    request, where one did and nothing else has picked it up."""
    tracer = _tracer()
    return nullcontext(parent) if tracer is None else _submitting(tracer, kind, count, parent)


async def traced(task: Task, claimed_since: datetime, run: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """Run a handler in its spans; `claimed_since` is when the claim began. Only if `is_on`."""
    tracer = _tracer()
    trace = sys.modules["opentelemetry.trace"]
    attributes = _attributes(task)
    claim = tracer.start_span(
        f"claim {task.kind}",
        context=_following(trace_of(task) if task.is_workflow else task.trace),
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
        start_time=(claimed_since - _EPOCH) // timedelta(microseconds=1) * 1000,
    )
    claim.end()
    span = tracer.start_span(
        f"run {task.kind}",
        context=trace.set_span_in_context(claim),
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
    )
    with trace.use_span(span, end_on_exit=True):
        outcome = await run()
        _conclude(trace, span, outcome)
        return outcome


def stepping(task: Task, key: str) -> AbstractContextManager[Any]:
    """Round a try at a step of a workflow."""
    tracer = _tracer()
    if tracer is None:
        return nullcontext()
    attributes = {**_attributes(task), "rota.step": key}
    return tracer.start_as_current_span(f"step {key}", attributes=attributes)  # type: ignore[no-any-return]  # untyped


@contextmanager
def _submitting(tracer: Any, kind: str, count: int, parent: str | None) -> Iterator[str | None]:
    trace = sys.modules["opentelemetry.trace"]
    is_inside = trace.get_current_span().get_span_context().is_valid
    with tracer.start_as_current_span(
        f"submit {kind}",
        context=None if is_inside else _following(parent),
        kind=trace.SpanKind.PRODUCER,
        attributes={"rota.task.type": kind, "rota.task.count": count},
    ):
        carrier: dict[str, str] = {}
        _propagator().inject(carrier)
        yield carrier.get("traceparent", parent)


def _tracer() -> Any:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    is_stand_in = isinstance(provider, trace.ProxyTracerProvider)  # until the program sets its own
    return None if is_stand_in else _tracer_of(provider)


@lru_cache(maxsize=1)
def _tracer_of(provider: Any) -> Any:
    return provider.get_tracer("rota")


def _following(traceparent: str | None) -> Any:
    """The context that continues this trace, or begins a new one: not that of the code that started the worker."""
    from opentelemetry.context import Context

    return _propagator().extract({"traceparent": traceparent} if traceparent else {}, Context())


def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def _attributes(task: Task) -> dict[str, str | int]:
    attributes: dict[str, str | int | None] = {
        "rota.task.id": task.id,
        "rota.task.type": task.kind,
        "rota.task.attempt": task.attempt,
        "rota.queue": task.queue,
        "rota.tenant": task.tenant,
        "rota.worker.id": task.worker_id,
        "rota.schedule.id": task.schedule_id,
        "rota.run.id": task.run_id,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _conclude(trace: Any, span: Any, outcome: Outcome) -> None:
    match outcome:
        case Failed(failure=failure):
            span.add_event("exception", _exception(failure))
            span.set_status(trace.Status(trace.StatusCode.ERROR, str(failure)))
        case Rescheduled():
            span.set_attribute("rota.outcome", "rescheduled")
        case Released():
            span.set_attribute("rota.outcome", "handed back")


def _exception(failure: Failure) -> dict[str, str]:
    return {
        "exception.type": failure.type,
        "exception.message": failure.message,
        "exception.stacktrace": failure.traceback or "",
    }
