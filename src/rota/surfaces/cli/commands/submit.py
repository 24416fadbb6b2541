"""`rota submit`: one task, or one for each line of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ....domain.options import SubmitOptions
from ..command import command
from ..options import shape_options
from ..parse import DURATION, JSON_TEXT, TIME, json_lines
from ..render import seconds
from ..session import Session, with_session

if TYPE_CHECKING:
    from ....domain.model import Task
    from ...python.client import Queue

__all__ = ["submit"]

AT_ONCE = 500


@command(
    examples=[
        'rota submit -t send_reminder -i \'{"user_id":"123"}\' --in 1h',
        "rota submit -t send_reminder -i '{}' --at 2026-01-28T09:00:00Z --expires-at 2026-01-28T17:00:00Z",
        "rota submit -t process_event -i @event.json --ttl 5m --queue events --priority 200",
        "cat users.jsonl | rota submit -t send_reminder -i -      # a task for each line",
    ]
)
@click.option(
    "-t", "--type", "--task-type", "task_type", required=True, metavar="TYPE", help="The kind of task."
)
@click.option(
    "-i",
    "--input",
    "text",
    type=JSON_TEXT,
    metavar="JSON",
    help="Its input: JSON, @file, or - for stdin; JSON lines: a task each.",
)
@click.option("--lines", is_flag=True, help="Take every line of the input as a task of its own.")
@click.option("--in", "--delay", "delay", type=DURATION, help="Run it after this long: 30s 5m 1h 7d 2w.")
@shape_options(SubmitOptions, times=TIME)
@with_session
def submit(session: Session, task_type: str, text: str | None, lines: bool, **given: Any) -> None:
    """Submit a task, to run now or later.

    It is stored when this returns. Its id is printed.

    An input of several JSON lines gives a task for each, in batches of 500; if a line is wrong, nothing is
    submitted."""
    inputs = [None] if text is None else json_lines(text, by_line=lines)
    options = _options(given)
    if len(inputs) == 1 and not lines:
        _submitted(
            session, session.run(lambda queue: _one(queue, task_type, inputs[0], options), creates=True)
        )
    else:
        count = session.run(lambda queue: _many(session, queue, task_type, inputs, options), creates=True)
        if not session.as_json:
            session.screen.say(f"submitted {count:,} tasks of type {task_type}")


def _options(given: dict[str, Any]) -> dict[str, Any]:
    if given["schedule_at"] is not None and given["delay"] is not None:
        raise click.UsageError("--at and --in were both given; give one of them")
    if given["ttl"] is not None and given["expires_at"] is not None:
        raise click.UsageError("--ttl and --expires-at were both given; give one of them")
    return {name: None if value == () else value for name, value in given.items()}


async def _at(queue: Queue, options: dict[str, Any]) -> dict[str, Any]:
    """`--in` counts on the clock of the store."""
    options = dict(options)
    delay = options.pop("delay")
    if delay is not None:
        try:
            options["schedule_at"] = await queue.now() + delay
        except OverflowError:
            raise click.UsageError("--in: that is too far away") from None
    return options


async def _one(queue: Queue, task_type: str, input: Any, options: dict[str, Any]) -> Task:
    return await queue.submit(task_type, input, **await _at(queue, options))


async def _many(
    session: Session, queue: Queue, task_type: str, inputs: list[Any], options: dict[str, Any]
) -> int:
    from ...shapes import task as shape

    options = await _at(queue, options)
    done = 0
    with session.screen.progress("submitting", len(inputs)) as bar:
        for start in range(0, len(inputs), AT_ONCE):
            batch = [(task_type, each) for each in inputs[start : start + AT_ONCE]]
            tasks = await queue.submit_many(batch, **options)
            done += len(tasks)
            bar.advance(len(tasks))
            if session.as_json:
                for task in tasks:
                    session.screen.json_line(shape(task))
    return done


def _submitted(session: Session, task: Task) -> None:
    from ...durations import relative
    from ...shapes import task as shape

    screen = session.screen
    if session.as_json:
        return screen.json(shape(task))
    screen.say(task.id)
    if screen.is_terminal:
        due = (
            ""
            if task.available_at <= task.created_at
            else f", due {relative(task.available_at, task.created_at)}"
        )
        until = f", expires {seconds(task.expires_at)}" if task.expires_at else ""
        screen.remark(
            click.style(f"{task.kind} is {task.status} in queue {task.queue}{due}{until}", dim=True)
        )
    return None
