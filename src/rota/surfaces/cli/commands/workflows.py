"""Commands about workflows: start, show, list, signal, cancel, replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ....domain.model import Task
from ...durations import relative, short
from .. import completing
from ..options import JSON_TEXT, TASK, one_value, page_options
from ..render import Cell, Screen, styled, written
from ..session import Session, command
from .tasks import (
    about_status,
    check_times,
    chosen_options,
    contents_of,
    show_page,
    submit_options,
    task_filters,
)

if TYPE_CHECKING:
    from ....domain.workflow import Signal, Step
    from ...python.client import Queue

_STEPS = ["#", "STEP", "STATUS", "TRIES", "BEGAN", "TOOK", "RESULT"]
_LONGEST = 200


@command(
    examples=[
        'rota workflow start order -i \'{"sku":"lamp"}\'',
        "rota workflow start order -i @order.json --idempotency-key order-4711",
        "rota workflow start order -i @order.json --in 1h --timeout 30d --tag lamps",
    ]
)
@click.argument("kind", shell_complete=completing.kinds)
@click.option("-i", "--input", "text", type=JSON_TEXT, metavar="JSON", help="Its input: JSON, @file, or -.")
@submit_options
def start(session: Session, kind: str, text: str | None, **given: Any) -> None:
    """Start a workflow, now or later. Its id is printed.

    Its --timeout is for the whole run, waits included."""
    input = _value(text, "the input")
    check_times(given)

    async def start(queue: Queue) -> Task:
        return await queue.start_workflow(kind, input, **await chosen_options(queue, given))

    task = session.run(start, creates=True)
    session.tell(task, task.id)


@command(
    examples=["rota workflow show 01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e", "rota workflow show $ID --json"]
)
@click.argument("id", type=TASK, shell_complete=completing.workflow_ids)
def show(session: Session, id: str) -> None:
    """What a workflow did, what it waits for and until when, and what can be done."""

    async def ask(queue: Queue) -> tuple[Task, list[Step], list[Signal], datetime]:
        task = await queue.get(id)
        unread = await queue.unread_signals(task.id) if task.unread_signals else []
        return task, await queue.steps(task.id), unread, await queue.now()

    task, steps, unread, now = session.run(ask)
    screen = session.screen
    if session.as_json:
        from ...shapes import plain

        return screen.json({**plain(task), "steps": steps, "signals": unread})
    screen.fields(_fields(session, task, unread, now))
    if steps:
        screen.say()
        rows = [_row(screen, task, step, now) for step in steps]
        screen.table(_STEPS, rows, yields=("TRIES", "BEGAN", "TOOK", "RESULT"))
    if screen.is_terminal and (advice := _advice(task)):
        screen.remark(click.style(advice, dim=True))
    return None


def _fields(
    session: Session, task: Task, unread: Sequence[Signal], now: datetime
) -> Iterator[tuple[str, str]]:
    from ....domain.workflow import deadline

    screen = session.screen
    yield "id", task.id
    yield "workflow", click.style(task.kind, bold=True)
    yield "status", styled(session.screen.status(task.status)) + about_status(task)
    if task.workflow_version is not None:
        yield "code version", str(task.workflow_version)
    if task.waits_for and task.status == "pending":
        until = "" if task.available_at.year == 9999 else f", until {screen.clock(task.available_at)}"
        yield "waits for", ", ".join(map(str, task.waits_for)) + until
    for signal in unread:
        yield "unread signal", f"{signal.name}, sent by {signal.actor} {screen.when(signal.at, now)}"
    for name in ("created_at", "started_at", "completed_at"):
        at = getattr(task, name)
        if at is not None:
            yield name, screen.when(at, now)
    ends = deadline(task)
    if ends is not None:
        yield "deadline", screen.when(ends, now)
    yield from contents_of(screen, task)


def _row(screen: Screen, task: Task, step: Step, now: datetime) -> Sequence[Cell | str]:
    took, is_left = "", not (step.is_over or task.is_live)
    if step.started_at and step.completed_at and step.completed_at >= step.started_at:
        took = short(step.completed_at - step.started_at)
    elif step.due_at is not None and not step.is_over and not is_left:
        took = f"due {relative(step.due_at, now)}"
    began = "" if step.started_at is None else relative(step.started_at, now)
    number = "" if step.number is None else str(step.number)
    tries = str(step.attempts) if step.attempts else ""
    status = "left" if is_left else str(step.status)  # nobody waits for it any more
    return [number, Cell(step.key, "bold"), status, tries, began, took, _result(screen, step)]


def _result(screen: Screen, step: Step) -> str:
    """The result or the error of a step; of a child the beginning of its id, too, by which it is found."""
    result = "" if step.output is None else written(step.output)
    if step.error is not None:
        result = str(step.error)
    if step.child_id is not None:
        child = f"task {step.child_id[:8] if screen.is_terminal else step.child_id}"
        result = f"{child}: {result}" if result else child
    return result if len(result) <= _LONGEST else result[: _LONGEST - 1] + "…"


def _advice(task: Task) -> str:
    """The next sensible command."""
    waited = [wait.name for wait in task.waits_for if wait.kind == "receive"]
    if task.status == "pending" and waited:
        return f"rota workflow signal {task.id} {waited[0]} '{{}}'"
    if task.status in ("failed", "cancelled"):
        return f"rota workflow replay {task.id}"
    return f"rota workflow cancel {task.id}" if task.is_live else ""


@command(name="list", examples=["rota workflow list", "rota workflow list --status pending --kind order"])
@task_filters
@page_options(20)
def list_workflows(session: Session, **filters: Any) -> None:
    """The newest runs that match."""
    page, now = session.run_timed(lambda queue: queue.list(workflow=True, **filters))
    show_page(session, page, now, "workflows", filters)


@command(examples=["rota workflow signal $ID paid '{\"amount\": 40}'", "rota workflow signal $ID approved"])
@click.argument("id", type=TASK, shell_complete=completing.workflow_ids)
@click.argument("name")
@click.argument("payload", required=False, type=JSON_TEXT)
@click.option("--idempotency-key", metavar="KEY", help="The same key is the same signal.")
def signal(session: Session, id: str, name: str, payload: str | None, idempotency_key: str | None) -> None:
    """Send a signal to a workflow. It is kept until it is received, once."""
    value = _value(payload, "the payload")
    task = session.run(lambda queue: queue.signal(id, name, value, idempotency_key=idempotency_key))
    session.tell(task, f"sent {name} to {task.kind} {task.id}")


@command(examples=["rota workflow cancel $ID --reason 'out of stock'"])
@click.argument("id", type=TASK, shell_complete=completing.workflow_ids)
@click.option("--reason", default="", help="Why, for the history.")
def cancel(session: Session, id: str, reason: str) -> None:
    """Cancel a workflow: steps in flight end, then what was done is undone."""
    task = session.run(lambda queue: queue.cancel(id, reason))
    done = "cancelled" if task.status == "cancelled" else "asked to end"
    session.tell(task, f"{task.kind} {task.id} is {done}")


@command(examples=["rota workflow replay $ID", "rota workflow replay $ID --from-step charge"])
@click.argument("id", type=TASK, shell_complete=completing.workflow_ids)
@click.option("--from-step", metavar="KEY", help="The key of the step to begin with.")
def replay(session: Session, id: str, from_step: str | None) -> None:
    """Run a failed or cancelled workflow again, from where it failed or from a step on."""
    task = session.run(lambda queue: queue.replay(id, from_step=from_step))
    session.tell(task, f"{task.kind} {task.id} runs again")


def _value(text: str | None, name: str) -> Any:
    if text is None:
        return None
    try:
        return one_value(text)
    except ValueError as error:
        raise click.UsageError(f"{name} is not JSON: {error}") from None
