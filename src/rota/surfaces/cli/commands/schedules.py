"""Commands that change schedules: create, update, pause, resume, trigger, delete, restore."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ....domain import recurrence
from ....domain.model import Backfill, Schedule, TemplateTarget
from ....domain.options import ScheduleOptions
from ... import words
from .. import completing
from ..options import JSON, SCHEDULE, TEMPLATE, TIME, WALL_TIME, clearable, given, shape_options
from ..render import Bar
from ..session import Session, command
from .plans import check_can_ask

if TYPE_CHECKING:
    from ...python.client import Queue

_ELSEWHERE = ("status", "pause_note")
"""Options that `--paused` and `--draft`, and `rota schedule pause`, stand for."""
CLEARABLE = clearable(ScheduleOptions, leave_out=_ELSEWHERE)


schedule_argument = click.argument("schedule_id", type=SCHEDULE, shell_complete=completing.schedules)
_definition = shape_options(ScheduleOptions, times=WALL_TIME, leave_out=_ELSEWHERE)
_input = click.option(
    "-i", "--input", type=JSON, metavar="JSON", help="The task's input: JSON, @file, or - for stdin."
)


_template = click.option(
    "--template",
    type=TEMPLATE,
    metavar="NAME",
    help="Run this template, by its name or id.",
    shell_complete=completing.templates,
)


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    fields = given(options)
    template = fields.pop("template", None)
    if template is not None and "task_type" in fields:
        raise click.UsageError("--template was given together with --task-type; give one of them")
    return fields if template is None else {**fields, "target": TemplateTarget(template_id=template)}


@command(
    examples=[
        "rota schedule create daily-report --task-type generate_report --cron '0 9 * * *'",
        "rota schedule create standup -t remind --cron '30 9 * * 1-5' --timezone Europe/London",
        "rota schedule create sync -t sync_orders --interval 5m --overlap-policy allow --jitter 30s",
        "rota schedule create payday -t pay --rrule 'FREQ=MONTHLY;BYDAY=-1FR'",
        "rota schedule create open -t notify --timing 'TZ=Europe/London 0 9 * * *' --timing 'TZ=Asia/Tokyo 0 9 * * *'",
        "rota schedule create launch -t launch --run-at 2027-06-01T12:00:00Z",
        "rota schedule create load -t load --after extract --after-delay 5m",
        "rota schedule create nightly --template backup --cron '0 3 * * *'",
    ]
)
@click.argument("schedule_id")
@_template
@_input
@_definition
@click.option("--paused", "status", flag_value="paused", help="Create it, but do not fire yet.")
@click.option("--draft", "status", flag_value="draft", help="Create it as a draft.")
def create(session: Session, schedule_id: str, **options: Any) -> None:
    """Create a schedule: what to run, and when (one of --cron, --interval, --run-at, --rrule, --after, or several
    --timing).

    It first fires at its first time after now. Times without a zone are on the clock of --timezone, or else the
    local time of this process."""
    _changed(
        session,
        "created",
        lambda queue: queue.create_schedule(schedule_id, **_fields(options)),
        creates=True,
        warn=True,
    )


@command(
    examples=[
        "rota schedule update daily-report --cron '0 8 * * *'",
        'rota schedule update daily-report --input \'{"report_type":"weekly"}\' --priority 200',
        "rota schedule update daily-report --clear end-at",
    ]
)
@schedule_argument
@_template
@_input
@_definition
@click.option("--clear", multiple=True, type=click.Choice(CLEARABLE), help="Take this away; may be repeated.")
@click.option("--if-version", "version", type=int, help="Only if it is still at this version.")
def update(
    session: Session, schedule_id: str, clear: tuple[str, ...], version: int | None, **options: Any
) -> None:
    """Change what is named, nothing else. A new timing counts from now; an edit never runs anything by
    itself."""
    changes = _fields(options) | {name.replace("-", "_"): None for name in clear}
    if not changes:
        raise click.UsageError("nothing to change was given")
    _changed(
        session,
        "updated",
        lambda queue: queue.update_schedule(schedule_id, version=version, **changes),
        warn=bool(changes.keys() & {"cron", "rrule", "interval", "timezone", "timings", "dst_gap"}),
    )


@command(
    examples=[
        "rota schedule pause daily-report --note 'until the move is done'",
        "rota schedule pause daily-report --until 2030-01-07T09:00",
    ]
)
@schedule_argument
@click.option("--note", metavar="TEXT", help="Why; shown by `rota schedule show`.")
@click.option("--until", type=TIME, help="Resume it by itself at this time.")
def pause(session: Session, schedule_id: str, note: str | None, until: datetime | None) -> None:
    """Stop firing until it is resumed, or until a time."""
    _changed(session, "paused", lambda queue: queue.pause_schedule(schedule_id, note, until=until))


@command(examples=["rota schedule resume daily-report"])
@schedule_argument
def resume(session: Session, schedule_id: str) -> None:
    """Fire again, from the first time after now. What was due meanwhile is not made up for."""
    _changed(session, "resumed", lambda queue: queue.resume_schedule(schedule_id))


@command(
    examples=[
        "rota schedule trigger daily-report",
        'rota schedule trigger daily-report --input \'{"report_type":"test"}\'',
    ]
)
@schedule_argument
@click.option("-i", "--input", type=JSON, metavar="JSON", help="Another input, this once.")
def trigger(session: Session, schedule_id: str, input: Any) -> None:
    """Run it now, beside its times: neither its next time nor its count moves. The task's id is printed."""
    changes = {} if input is None else {"input": input}
    task = session.run(lambda queue: queue.trigger_schedule(schedule_id, **changes))
    session.tell(task, task.id)


@command(
    examples=[
        "rota schedule backfill daily-report --from 2026-01-01 --to 2026-01-31 --dry-run",
        "rota schedule backfill daily-report --from 2026-01-01 --to 2026-01-31 --yes",
        "rota schedule backfill daily-report --cancel",
    ]
)
@schedule_argument
@click.option("--from", "start", type=TIME, help="The first time that counts.")
@click.option("--to", "end", type=TIME, help="The last time that counts. [default: now]")
@click.option(
    "--overlap-policy",
    type=click.Choice(["buffer_all", "allow"]),
    default="buffer_all",
    help="One after the other, or as many as there is room for. [default: buffer_all]",
)
@click.option("--at-most", type=int, default=1000, help="More times than this are refused. [default: 1000]")
@click.option("--dry-run", is_flag=True, help="Only say what would run.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the last has been started.")
@click.option("--cancel", is_flag=True, help="Start no more of the one that is under way.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def backfill(session: Session, schedule_id: str, cancel: bool, **asked: Any) -> None:
    """Run the times of the past that have not run. What has run, whenever and however, is passed over."""
    if cancel:
        _say_backfill(session, session.run(lambda queue: queue.cancel_backfill(schedule_id)))
        return
    dry_run, no_wait, yes = (asked.pop(name) for name in ("dry_run", "no_wait", "yes"))
    if asked["start"] is None:
        raise click.UsageError("--from is missing: the first time that counts")
    check_can_ask(yes or dry_run)
    asked["end"] = asked["end"] or session.run(lambda queue: queue.now())
    plan = session.run(lambda queue: queue.backfill(schedule_id, **asked, dry_run=True))
    if dry_run:
        _say_backfill(session, plan, dry_run=True)
        return
    if not yes:
        click.confirm(f"Start {plan.started:,} of {plan.total:,} times?", abort=True, err=True)
    begun = session.run(lambda queue: queue.backfill(schedule_id, **asked))
    _say_backfill(session, begun if no_wait else _watched(session, schedule_id, begun))


def _watched(session: Session, schedule_id: str, begun: Backfill) -> Backfill:
    """A bar until the last time has been looked at. The backfill goes on if nobody watches."""
    try:
        with session.screen.progress("backfilling", begun.total) as bar:
            return session.run(lambda queue: _watch(queue, schedule_id, begun, bar))
    except KeyboardInterrupt:
        session.screen.remark(f"it goes on; `rota schedule backfill {schedule_id} --cancel` ends it")
        raise


async def _watch(queue: Queue, schedule_id: str, begun: Backfill, bar: Bar) -> Backfill:
    from ....engine.clock import sleep

    found = begun
    while found.is_open and found.id == begun.id:
        await sleep(timedelta(seconds=0.3))
        seen, found = found, (await queue.get_schedule(schedule_id)).backfill or found
        bar.advance(seen.left - found.left)
    return found


def _say_backfill(session: Session, found: Backfill, *, dry_run: bool = False) -> None:
    note = f" ({found.note})" if found.note else ""
    passed = f"; {found.passed:,} had run already" if found.passed else ""
    what = "dry run: would start" if dry_run else f"{found.status}{note}: started"
    session.tell(found, f"{what} {found.started:,} of {found.total:,} times{passed}")


@command(examples=["rota schedule delete daily-report", "rota schedule delete daily-report --hard --yes"])
@schedule_argument
@click.option("--hard", is_flag=True, help="Remove it for good, with its history.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(session: Session, schedule_id: str, hard: bool, yes: bool) -> None:
    """Delete it: it stops, and is hidden; its history is kept, and `rota schedule restore` brings it back."""
    if hard and not yes:
        check_can_ask(yes)
        click.confirm(f"Remove {schedule_id} and its history for good?", abort=True, err=True)

    async def work(queue: Queue) -> None:
        if not hard:
            return await queue.delete_schedule(schedule_id)
        total = await queue.count_runs(schedule_id) if session.screen.is_watched else None
        with session.screen.progress("removing runs", total) as bar:
            return await queue.delete_schedule(schedule_id, hard=True, report=bar.advance)

    session.run(work)
    again = "" if hard else f"; `rota schedule restore {schedule_id}` brings it back"
    session.tell({"id": schedule_id, "deleted": True, "hard": hard}, f"deleted {schedule_id}{again}")


@command(examples=["rota schedule restore daily-report"])
@schedule_argument
def restore(session: Session, schedule_id: str) -> None:
    """Bring a deleted schedule back. It fires again from the first time after now."""
    _changed(session, "restored", lambda queue: queue.restore_schedule(schedule_id))


def _changed(
    session: Session,
    verb: str,
    change: Callable[[Queue], Coroutine[Any, Any, Schedule]],
    *,
    creates: bool = False,
    warn: bool = False,
) -> None:
    """Do it, and say how the schedule is now."""
    schedule, now = session.run_timed(change, creates=creates)
    name = click.style(schedule.key, bold=True)
    session.tell(schedule, f"{verb} {name}: {words.sentence(schedule)}; {words.state(schedule, now)}")
    for warning in recurrence.warnings(schedule.timing, now, schedule.clock_changes(now)) if warn else ():
        session.screen.warn(warning)
