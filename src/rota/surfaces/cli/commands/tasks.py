"""Commands about tasks: submit, status, list, history, cancel, replay, archive, wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ....domain.errors import NotFound, Refused
from ....domain.model import FOREVER, Change, Task
from ....domain.options import SubmitOptions, TaskFilters
from ....domain.serving import Waiting, waited_for
from ...durations import coarse, relative, short
from ...words import counted
from .. import completing
from ..options import DURATION, JSON_TEXT, TASK, json_lines, page_options, shape_options, together
from ..render import Cell, Screen, seconds, styled, written
from ..session import Session, command

if TYPE_CHECKING:
    from ...python.client import Page, Queue

BATCH = 500

task_filters = shape_options(TaskFilters, leave_out=("workflow",))
"""The filters of commands about tasks; `rota workflow list` is for workflows alone."""

submit_options = together(
    click.option("--in", "--delay", "delay", type=DURATION, help="Run it after this long: 30s 5m 1h 7d 2w."),
    shape_options(SubmitOptions),
)
"""The options of a submission. `check_times` and `chosen_options` take what was given."""


@command(
    examples=[
        'rota submit -t send_reminder -i \'{"user_id":"123"}\' --in 1h',
        "rota submit -t send_reminder -i '{}' --at 2026-01-28T09:00:00Z --expires-at 2026-01-28T17:00:00Z",
        "rota submit -t process_event -i @event.json --ttl 5m --queue events --priority 200",
        "cat users.jsonl | rota submit -t send_reminder -i -      # a task for each line",
    ]
)
@click.option(
    "-t",
    "--type",
    "--task-type",
    "--kind",
    "task_type",
    required=True,
    metavar="TYPE",
    shell_complete=completing.kinds,
    help="The kind of task.",
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
@submit_options
def submit(session: Session, task_type: str, text: str | None, lines: bool, **given: Any) -> None:
    """Submit a task, to run now or later.

    It is stored when this returns. Its id is printed.

    An input of several JSON lines gives a task for each, in batches of 500; if a line is wrong, nothing is
    submitted.

    No code is loaded: what a decorator says of submissions (queue, priority, unique_for, …) counts for
    function.submit in Python. Say it here with options."""
    inputs = [None] if text is None else json_lines(text, by_line=lines)
    check_times(given)

    async def submit(queue: Queue) -> None:
        options = await chosen_options(queue, given)
        if len(inputs) == 1 and not lines:
            _show_submitted(session, await queue.submit(task_type, inputs[0], **options))
        else:
            await _submit_each(session, queue, task_type, inputs, options)

    session.run(submit, creates=True)


def check_times(given: Mapping[str, Any]) -> None:
    """Refuse a time that is given in two ways, before a store is opened."""
    if given["schedule_at"] is not None and given["delay"] is not None:
        raise click.UsageError("--at and --in were both given; give one of them")
    if given["ttl"] is not None and given["expires_at"] is not None:
        raise click.UsageError("--ttl and --expires-at were both given; give one of them")


async def chosen_options(queue: Queue, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `Queue.submit` and `Queue.start_workflow`. `--in` counts on the clock of the store."""
    options = {name: None if value == () else value for name, value in given.items()}
    delay = options.pop("delay")
    if delay is not None:
        try:
            options["schedule_at"] = await queue.now() + delay
        except OverflowError:
            raise click.UsageError("--in: that is too far away") from None
    return options


async def _submit_each(
    session: Session, queue: Queue, task_type: str, inputs: list[Any], options: dict[str, Any]
) -> None:
    with session.screen.progress("submitting", len(inputs)) as bar:
        for start in range(0, len(inputs), BATCH):
            batch = [(task_type, each) for each in inputs[start : start + BATCH]]
            tasks = await queue.submit_many(batch, **options)
            bar.advance(len(tasks))
            if session.as_json:
                for task in tasks:
                    session.screen.json_line(task)
    if not session.as_json:
        session.screen.say(f"submitted {counted(len(inputs), 'task')} of type {task_type}")


def _show_submitted(session: Session, task: Task) -> None:
    screen = session.screen
    if session.as_json:
        return screen.json(task)
    screen.say(task.id)
    if not screen.is_terminal:
        return None
    is_later = task.available_at > task.created_at
    due = f", due {relative(task.available_at, task.created_at)}" if is_later else ""
    until = f", expires {screen.clock(task.expires_at)}" if task.expires_at else ""
    about = f"{task.kind} is {task.status} in queue {task.queue}{due}{until}"
    return screen.remark(click.style(about, dim=True))


@command(examples=["rota status 01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e", "rota status $ID --json | jq .output"])
@click.argument("task_id", type=TASK, shell_complete=completing.task_ids)
def status(session: Session, task_id: str) -> None:
    """Everything about one task."""

    async def ask(queue: Queue) -> tuple[Task, Waiting | None, str | None, datetime]:
        task = await queue.get(task_id)
        return task, await queue.waiting(task.id), await _schedule_name(queue, task), await queue.now()

    task, waiting, schedule, now = session.run(ask)
    if session.as_json:
        about = None if waiting is None else {"reason": waiting.reason, "explanation": waiting}
        from ...shapes import plain

        session.screen.json({**plain(task), "waiting": about, "schedule": schedule})
    else:
        session.screen.fields(_fields(session, task, waiting, schedule, now))
        if task.error is not None and task.error.traceback:
            session.screen.say()
            session.screen.say(click.style(task.error.traceback.rstrip(), dim=True))


async def _schedule_name(queue: Queue, task: Task) -> str | None:
    try:
        return (await queue.get_schedule(task.schedule_id)).key if task.schedule_id else None
    except NotFound:  # it is deleted
        return task.schedule_id


def _fields(
    session: Session, task: Task, waiting: Waiting | None, schedule: str | None, now: datetime
) -> Iterator[tuple[str, str]]:
    yield "id", task.id
    yield "task_type", click.style(task.kind, bold=True)
    yield "status", styled(session.screen.status(task.status)) + about_status(task)
    if waiting is not None:
        yield "waiting", waiting
    yield "queue", f"{task.queue}, priority {task.priority}"
    yield from _times(session.screen, task, now)
    if task.attempt:
        most = "" if task.max_retries is None else f", {task.retries} of {task.max_retries} retries used"
        yield "attempt", f"{task.attempt}{most}"
    if task.worker_id:
        yield "worker_id", task.worker_id
    if schedule:
        yield "schedule", schedule
    if task.idempotency_key:
        yield "idempotency_key", task.idempotency_key
    if task.tags:
        yield "tags", ", ".join(task.tags)
    yield from contents_of(session.screen, task)


def about_status(task: Task) -> str:
    if task.is_live and task.cancel_requested:
        return f" (cancel requested by {task.cancelled_by})"
    if task.status == "cancelled" and task.cancelled_by:
        reason = f": {task.cancel_reason}" if task.cancel_reason else ""
        return f" (by {task.cancelled_by}{reason})"
    return ""


def _times(screen: Screen, task: Task, now: datetime) -> Iterator[tuple[str, str]]:
    for name in ("created_at", "available_at", "started_at", "completed_at", "expires_at", "expired_at"):
        at = getattr(task, name)
        if at is None or (name == "available_at" and at in (task.created_at, FOREVER)):
            continue
        yield name, screen.when(at, now)
    if task.started_at and task.completed_at and task.completed_at >= task.started_at:
        yield "took", short(task.completed_at - task.started_at)


def contents_of(screen: Screen, task: Task) -> Iterator[tuple[str, str]]:
    for name in ("input", "output", "progress", "metadata"):
        value = getattr(task, name)
        if value is not None and value != {}:
            yield name, written(value)
    if task.error is not None:
        yield "error", click.style(str(task.error), fg="red")
    for line in task.logs[-10:]:
        yield "log", f"{screen.clock(line.at)} {line.message}"


@command(
    name="list",
    examples=[
        "rota list --status failed",
        "rota list --status expired",
        "rota list --schedule daily-report --limit 5",
        "rota list --type send_reminder --count",
    ],
)
@task_filters
@page_options(20)
@click.option("--count", is_flag=True, help="Only how many there are.")
def list_tasks(session: Session, limit: int, cursor: str | None, count: bool, **filters: Any) -> None:
    """The newest tasks that match all filters. A terminal shows the queues only if one is not `default`, or with
    --wide."""
    if count:
        number = session.run(lambda queue: queue.count(**filters))
        return session.tell({"count": number}, str(number))
    page, now = session.run_timed(lambda queue: queue.list(limit=limit, cursor=cursor, **filters))
    return show_page(session, page, now, "tasks", filters)


def show_page(
    session: Session, page: Page[Task], now: datetime, what: str, filters: Mapping[str, Any]
) -> None:
    screen = session.screen
    if session.as_json:
        return screen.json({"tasks": page, "next_cursor": page.next_cursor})
    if not page:
        return session.say_none(what, filters)
    headings = ["ID", "TYPE", "STATUS", "QUEUE", "CREATED", "DETAIL"]
    ids = screen.ids(task.id for task in page)
    rows = [_row(session, ids[task.id], task, now) for task in page]
    if screen.is_terminal and not screen.wide and all(task.queue == "default" for task in page):
        headings, rows = headings[:3] + headings[4:], [row[:3] + row[4:] for row in rows]
    screen.table(headings, rows, yields=("QUEUE", "DETAIL"))
    return session.say_more(page)


def _row(session: Session, id: str, task: Task, now: datetime) -> list[Cell | str]:
    created = coarse(task.created_at, now) if session.screen.is_terminal else seconds(task.created_at)
    status = session.screen.status(task.status)
    detail = Cell(_detail(session, task, now), "bright_black")
    return [id, Cell(task.kind, "bold"), status, task.queue, created, detail]


def _detail(session: Session, task: Task, now: datetime) -> str:
    """The one thing to know about it: when it is due, why it failed, how long it took."""
    away = session.screen.away
    match task.status:
        case "pending" if task.waits_for:
            return f"waits for {waited_for(task, now)}"
        case "pending" if task.available_at > now:
            return f"due {away(task.available_at, now)}" + (
                f" (retry {task.retries})" if task.retries else ""
            )
        case "pending" if task.expires_at:
            return f"expires {away(task.expires_at, now)}"
        case "running":
            return f"attempt {task.attempt}" + (", cancel requested" if task.cancel_requested else "")
        case "failed":
            return str(task.error).replace("\n", " ")[:60]
        case "cancelled":
            return task.cancel_reason or ""
        case "expired":
            return f"expired {away(task.expires_at, now)}" if task.expires_at else ""
        case "completed" if task.started_at and task.completed_at:
            return f"took {short(max(task.completed_at - task.started_at, timedelta(0)))}"
    return ""


@command(examples=["rota history 01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e"])
@click.argument("task_id", type=TASK, shell_complete=completing.task_ids)
def history(session: Session, task_id: str) -> None:
    """What happened to a task, oldest first, one line per version."""
    lines, now = session.run_timed(lambda queue: queue.history(task_id))
    if session.as_json:
        return session.screen.json(lines)
    for line in lines:
        session.screen.prose(_history_line(session, line, now), hang=4)
    return None


def _history_line(session: Session, line: Change, now: datetime) -> str:
    detail = f" ({line.detail})" if line.detail else ""
    status = click.style(line.status, fg=session.screen.status(line.status).style or None)
    text = f"Version {line.number}: {status}{detail}"
    if session.screen.is_terminal:
        text += click.style(f"   {relative(line.at, now)}, {line.actor}", dim=True)
    return text


def _each(
    session: Session, ids: Sequence[str], act: Callable[[Queue, str], Awaitable[Task]], verb: str
) -> None:
    """Do it to every task named; those that refuse are named, and the exit code is 1."""

    async def work(queue: Queue) -> int:
        refused = 0
        for task_id in ids:
            try:
                task = await act(queue, await queue.task_id(task_id))
            except Refused as problem:
                refused += 1
                session.screen.remark(f"{click.style('error:', fg='red', bold=True)} {problem}")
            else:
                session.screen.json_line(task) if session.as_json else session.screen.say(
                    f"{task.id} {verb}: {styled(session.screen.status(task.status))}{about_status(task)}"
                )
        return refused

    if session.run(work):
        raise click.exceptions.Exit(1)


async def _number_of(
    session: Session, queue: Queue, filters: Mapping[str, Any], statuses: Sequence[str]
) -> int | None:
    """How many tasks match in any of these states, for who is watching."""
    if not session.screen.is_watched:
        return None
    return sum([await queue.count(**{**filters, "status": status}) for status in statuses])


@command(
    examples=[
        "rota cancel 01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e --reason 'no longer needed'",
        "rota cancel --all --type send_reminder --status pending",
    ]
)
@click.argument("task_ids", nargs=-1, shell_complete=completing.task_ids)
@click.option("--all", "all_matching", is_flag=True, help="All live tasks that match the filters.")
@click.option("--reason", default="", metavar="TEXT", help="Why; it is kept with the task.")
@task_filters
def cancel(
    session: Session, task_ids: tuple[str, ...], all_matching: bool, reason: str, **filters: Any
) -> None:
    """Cancel tasks: at once if they are pending; if they run, their handlers are asked to stop."""
    if bool(task_ids) == all_matching:
        raise click.UsageError("name the tasks, or give --all with filters")
    if any(filters.values()) and not all_matching:
        raise click.UsageError("filters work together with --all")
    if task_ids:
        return _each(session, task_ids, lambda queue, task_id: queue.cancel(task_id, reason), "cancel")

    async def cancel(queue: Queue) -> int:
        statuses = [filters["status"]] if filters["status"] else ["pending", "running"]
        total = await _number_of(session, queue, filters, statuses)
        with session.screen.progress("cancelling", total) as bar:
            return await queue.cancel_many(reason=reason, report=bar.advance, **filters)

    number = session.run(cancel)
    said = f"cancelled {counted(number, 'task')} (those that run were asked to stop)"
    return session.tell({"cancelled": number}, said)


@command(
    examples=[
        "rota replay 01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e",
        "rota replay --status failed --type send_reminder --since 1h --dry-run",
    ]
)
@click.argument("task_ids", nargs=-1, shell_complete=completing.task_ids)
@task_filters
@click.option("--since", type=DURATION, help="Only tasks that ended at most this long ago: 30s 5m 1h 7d 2w.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
def replay(
    session: Session, task_ids: tuple[str, ...], since: timedelta | None, dry_run: bool, **filters: Any
) -> None:
    """Run failed or cancelled tasks again, with fresh retries: those named, or all that match the filters, in commits
    of 500."""
    has_filters = since is not None or any(value is not None for value in filters.values())
    if bool(task_ids) == has_filters:
        raise click.UsageError("name tasks, or give --status, --type, --queue, --schedule, --tag or --since")
    if task_ids:
        if dry_run:
            raise click.UsageError("--dry-run is for filters; `rota status` says how a task ended")
        return _each(session, task_ids, lambda queue, task_id: queue.replay(task_id), "replay")

    async def replay(queue: Queue) -> int:
        total = await _number_of(session, queue, filters, [filters["status"] or "failed"])
        with session.screen.progress("counting" if dry_run else "replaying", total) as bar:
            return await queue.replay_many(since=since, dry_run=dry_run, report=bar.advance, **filters)

    number = session.run(replay)
    tasks = counted(number, "task")
    said = f"{tasks} would be replayed" if dry_run else f"replayed {tasks}"
    return session.tell({"replayed": 0 if dry_run else number, "matching": number}, said)


@command(examples=["rota archive 01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e"])
@click.argument("task_ids", nargs=-1, required=True, shell_complete=completing.task_ids)
def archive(session: Session, task_ids: tuple[str, ...]) -> None:
    """Put ended tasks away: they leave the lists of completed and failed ones."""
    _each(session, task_ids, lambda queue, task_id: queue.archive(task_id), "archive")


@command(
    examples=[
        "rota wait 01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e --timeout 5m",
        "rota wait $(rota submit -t build -i '{}') && echo built",
    ]
)
@click.argument("task_ids", nargs=-1, required=True, shell_complete=completing.task_ids)
@click.option("--timeout", type=DURATION, help="Give up after this long.")
def wait(session: Session, task_ids: tuple[str, ...], timeout: timedelta | None) -> None:
    """Wait until tasks have ended. Exit code 1 if one of them did not complete, or not in time."""

    async def until_ended(queue: Queue) -> bool:
        fine = True
        for task_id in task_ids:
            task = await queue.wait(await queue.task_id(task_id), timeout)
            fine = fine and task.status == "completed"
            session.screen.json_line(task) if session.as_json else _ended(session, task)
        return fine

    if not session.run(until_ended):
        raise click.exceptions.Exit(1)


def _ended(session: Session, task: Task) -> None:
    detail = f": {task.error}" if task.error and task.status == "failed" else ""
    session.screen.say(f"{task.id} {task.kind} {styled(session.screen.status(task.status))}{detail}")
    if task.output is not None:
        session.screen.say(written(task.output))
