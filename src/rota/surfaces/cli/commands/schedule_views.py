"""Commands that look at schedules: list, show, runs, preview, why, history. And `rota preview`, for one that does not
exist yet: it needs no store."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from ....domain import recurrence
from ....domain.errors import NotFound
from ....domain.model import Alarm, Event, Run, RunStatus, Schedule, ScheduleStatus, TemplateTarget
from ....domain.options import ScheduleFilters
from ....domain.recurrence import After, Interval, RRule, Several, Simple, Timing
from ... import words
from ...durations import coarse, relative, short
from ...versions import deleted_because, differences
from .. import completing
from ..options import TIME, WALL_TIME, page_options, shape_options
from ..render import Cell, Screen, seconds, styled, written
from ..session import Session, command
from .schedules import schedule_argument

if TYPE_CHECKING:
    from ....domain.schedule.why import Why
    from ....engine.queries import Occurrence
    from ...python.client import Page, Queue

STRIP = 30
SHORT_STRIP = 10
NEXT = 5
NOTE = 30
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
"""As records have times."""
OVERDUE = timedelta(seconds=2)
MOST_TIMES = 10_000


@command(
    name="list",
    examples=[
        "rota schedule list",
        "rota schedule list --status paused",
        "rota schedule list --timezone Europe/Paris --template backup",
        "rota schedule list --json",
    ],
)
@shape_options(ScheduleFilters)
@page_options(50)
def list_schedules(session: Session, **filters: Any) -> None:
    """Schedules by name (with --deleted, of many the newest): when each is next due, and how its last runs went."""
    order = "newest" if filters["deleted"] else "name"

    async def ask(queue: Queue) -> tuple[Page[Schedule], list[Page[Run]], datetime]:
        page = await queue.list_schedules(order=order, **filters)
        drawn = [] if session.as_json else page
        last = [await queue.runs(each.id, limit=SHORT_STRIP) for each in drawn]
        return page, last, await queue.now()

    page, last, now = session.run(ask)
    if session.as_json:
        return session.screen.json({"schedules": page, "next_cursor": page.next_cursor})
    if not page:
        return session.say_none("schedules", filters, "`rota schedule create --help` shows how to make one")
    by_name = sorted(zip(page, last, strict=True), key=lambda each: (each[0].key, each[0].id))
    rows = [_row(session, schedule, runs, now) for schedule, runs in by_name]
    headings = ["ID", "STATUS", "WHEN", "NEXT", "RUNS", "LAST"]
    if filters["deleted"]:  # several may have had one name: their ledgers are found by this
        uids = session.screen.ids(schedule.id for schedule, _ in by_name)
        rows = [[row[0], uids[each.id], *row[1:]] for row, (each, _) in zip(rows, by_name, strict=True)]
        headings.insert(1, "UID")
    session.screen.table(headings, rows, yields=("RUNS", "LAST", "WHEN"))
    return session.say_more(page)


def _row(session: Session, schedule: Schedule, last: Sequence[Run], now: datetime) -> list[Cell | str]:
    return [
        Cell(schedule.key, "bold"),
        session.screen.status(_status(schedule)),
        words.sentence(schedule),
        _paused(session, schedule, now) or _when(session, schedule.next_run_at, now),
        str(schedule.run_count),
        session.screen.strip_cell([run.status for run in reversed(last)]),
    ]


def _status(schedule: Schedule) -> str:
    return "deleted" if schedule.deleted_at is not None else str(schedule.status)


def _paused(session: Session, schedule: Schedule, now: datetime) -> Cell | None:
    """When it resumes by itself, and why it rests."""
    until, note = schedule.pause_until, schedule.pause_note or ""
    if schedule.status is not ScheduleStatus.PAUSED or not (until or note):
        return None
    if until is None:
        return Cell(_cut(note))
    resumes = f"resumes {session.screen.away(until, now)}"
    return Cell(f"{resumes}: {_cut(note)}" if note else resumes)


def _cut(note: str) -> str:
    return note if len(note) <= NOTE else f"{note[: NOTE - 1]}…"


def _when(session: Session, at: datetime | None, now: datetime) -> Cell:
    if at is None:
        return Cell("-")
    if not session.screen.is_terminal:
        return Cell(seconds(at))
    late = now - at
    return Cell(f"overdue {short(late)}", "yellow") if late > OVERDUE else Cell(relative(at, now), "cyan")


@command(examples=["rota schedule show daily-report", "rota schedule show daily-report --json | jq .next"])
@schedule_argument
def show(session: Session, schedule_id: str) -> None:
    """One schedule in words: when it fires, its policies, its next five times in its zone and in yours,
    and its last runs. By its id, also one that is deleted."""

    async def ask(
        queue: Queue,
    ) -> tuple[Schedule, str, str, list[Occurrence], Page[Run], list[Alarm], datetime]:
        schedule = await queue.get_schedule(schedule_id, deleted=True)
        is_deleted = schedule.deleted_at is not None
        now = await queue.now()
        because = deleted_because(await queue.schedule_history(schedule.id)) if is_deleted else ""
        state = words.state(schedule, now, because)
        runs_what = await _runs_what(queue, schedule)
        upcoming = [] if is_deleted else await queue.preview(schedule.id, NEXT)
        alarms = await queue.alarms(schedule=schedule.id)
        last = await queue.runs(schedule.id, limit=STRIP)
        return schedule, state, runs_what, upcoming, last, alarms, now

    schedule, state, runs_what, upcoming, last, alarms, now = session.run(ask)
    if session.as_json:
        return session.screen.json({**_document(schedule, upcoming, last, now), "alarms": alarms})
    _head(session, schedule, state, runs_what, now)
    _open_alarms(session, alarms)
    if schedule.deleted_at is None:
        _next_times(session, schedule, upcoming, now)
        _clock_changes(session, schedule, now)
    return _last_runs(session, last, now)


async def _runs_what(queue: Queue, schedule: Schedule) -> str:
    template = None
    if isinstance(schedule.target, TemplateTarget):
        with suppress(NotFound):
            template = (await queue.get_template(schedule.target.template_id)).alias
    return words.runs_what(schedule, template)


def _open_alarms(session: Session, alarms: Sequence[Alarm]) -> None:
    for alarm in alarms:
        began = session.screen.clock(alarm.began_at)
        session.screen.prose(click.style(f"alarm since {began}: {alarm.detail}", fg="red"))


def _document(
    schedule: Schedule, upcoming: Sequence[Occurrence], last: Sequence[Run], now: datetime
) -> dict[str, Any]:
    from ...shapes import plain

    return {
        **plain(schedule),
        "words": words.sentence(schedule),
        "policies": words.policies(schedule),
        "next": upcoming,
        "clock_changes": schedule.clock_changes(now),
        "runs": last,
    }


def _head(session: Session, schedule: Schedule, state: str, runs_what: str, now: datetime) -> None:
    screen = session.screen
    status = screen.status(_status(schedule))
    screen.prose(f"{click.style(schedule.key, bold=True)}  {styled(status)}  {words.sentence(schedule)}")
    if schedule.description:
        screen.prose(schedule.description)
    screen.say()
    rows = [("state", state), ("runs", runs_what)]
    if schedule.target.input is not None:
        rows.append(("input", written(schedule.target.input)))
    if schedule.last_run_at is not None:
        rows.append(("last_run_at", screen.when(schedule.last_run_at, now)))
    if schedule.next_run_at is not None:
        rows.append(("next_run_at", screen.when(schedule.next_run_at, now)))
    rows.append(("run_count", str(schedule.run_count)))
    screen.fields(rows)
    screen.say()
    for line in words.policies(schedule):
        screen.prose(line)


def _next_times(session: Session, schedule: Schedule, upcoming: Sequence[Occurrence], now: datetime) -> None:
    screen = session.screen
    screen.say()
    if not upcoming:
        has_times = not isinstance(schedule.timing, After)
        screen.say("There is no further time." if has_times else "It has no times of its own.")
        return
    if not schedule.enabled:
        screen.say("If it were resumed now, it would fire at:")
    _occurrence_table(session, schedule.timezone, upcoming, now)


def _clock_changes(session: Session, schedule: Schedule, now: datetime) -> None:
    for change in schedule.clock_changes(now):
        session.screen.prose(change.text)


def _occurrence_table(session: Session, zone: str, upcoming: Sequence[Occurrence], now: datetime) -> None:
    """Times in the schedule's zone and in the viewer's, if the clocks there have another name."""
    here = [each.at.astimezone() for each in upcoming]
    differs = any(there.local.tzname() != at.tzname() for there, at in zip(upcoming, here, strict=True))
    notes = any(each.dst for each in upcoming)
    headings = ["#", zone, *(["YOUR TIME"] if differs else []), "IN", *(["NOTE"] if notes else [])]
    rows = []
    for number, (each, at) in enumerate(zip(upcoming, here, strict=True), 1):
        row: list[Cell | str] = [Cell(str(number), "bright_black"), Cell(_wall(each.local), "bold")]
        row += [_wall(at)] if differs else []
        row += [Cell(relative(each.at, now).removeprefix("in "), "cyan")]
        row += [Cell(each.dst or "", "yellow")] if notes else []
        rows.append(row)
    session.screen.table(headings, rows)


def _wall(at: datetime) -> str:
    return at.strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _last_runs(session: Session, last: Sequence[Run], now: datetime) -> None:
    screen = session.screen
    screen.say()
    if not last:
        screen.say("It has not run yet.")
        return
    oldest = relative(last[-1].scheduled_at, now)
    screen.say(
        f"Last {len(last)} expected times, the oldest {oldest}:" if len(last) > 1 else "Its one run so far:"
    )
    screen.say(f"  {screen.strip([run.status for run in reversed(last)])}")
    screen.say(f"  {screen.legend()}")
    trouble = next((run for run in last if run.status == "failed"), None)
    if trouble is not None:
        screen.say(
            f"Last failure: {screen.clock(trouble.scheduled_at)}: {trouble.error or trouble.reason or 'failed'}"
        )


@command(
    examples=[
        "rota schedule runs daily-report",
        "rota schedule runs daily-report --status skipped --since 2026-03-01",
    ]
)
@schedule_argument
@click.option(
    "--status", type=click.Choice([str(each) for each in RunStatus]), help="Only runs in this state."
)
@click.option("--since", type=TIME, help="From this time on (without a zone: local time).")
@click.option("--until", type=TIME, help="Up to this time.")
@page_options(20)
def runs(session: Session, schedule_id: str, **filters: Any) -> None:
    """The ledger, latest first: every time the schedule was expected to run, and what became of it."""
    page, now = session.run_timed(lambda queue: queue.runs(schedule_id, **filters))
    if session.as_json:
        return session.screen.json({"runs": page, "next_cursor": page.next_cursor})
    if not page:
        return session.say_none("runs", {"schedule_id": schedule_id, **filters})
    ids = session.screen.ids(run.target_id for run in page)
    rows = [_run_row(session, ids.get(run.target_id or "", "-"), run, now) for run in page]
    headings = ("SCHEDULED", "AGO", "STATUS", "TRIGGER", "TASK", "DETAIL")
    session.screen.table(headings, rows, yields=("TRIGGER", "AGO", "DETAIL"))
    return session.say_more(page)


def _run_row(session: Session, task: str, run: Run, now: datetime) -> list[Cell | str]:
    ago = coarse(run.scheduled_at, now).removesuffix(" ago")
    status = session.screen.status(run.status)
    detail = Cell(_run_detail(session.screen, run), "bright_black")
    return [session.screen.clock(run.scheduled_at), ago, status, str(run.trigger), task, detail]


def _run_detail(screen: Screen, run: Run) -> str:
    if run.count > 1:
        return f"{run.reason}, {run.count:,} times until {screen.clock(run.until)}"
    if run.error or run.reason:
        return str(run.error or run.reason).replace("\n", " ")
    if run.completed_at and run.started_at:
        return f"took {short(max(run.completed_at - run.started_at, timedelta(0)))}"
    return ""


@command(examples=["rota schedule preview daily-report -n 10"])
@schedule_argument
@click.option("-n", "count", default=NEXT, show_default=True, help="How many times.")
def preview(session: Session, schedule_id: str, count: int) -> None:
    """The next times of a schedule, in its zone and in yours, with what daylight saving does to them."""

    async def ask(queue: Queue) -> tuple[Schedule, list[Occurrence], datetime]:
        schedule = await queue.get_schedule(schedule_id)
        return schedule, await queue.preview(schedule_id, count), await queue.now()

    schedule, upcoming, now = session.run(ask)
    if session.as_json:
        return session.screen.json(upcoming)
    if not upcoming:
        return session.screen.say("There is no further time.")
    _occurrence_table(session, schedule.timezone, upcoming, now)
    return _clock_changes(session, schedule, now)


@command(
    examples=[
        "rota schedule why daily-report 2026-03-08T02:00",
        "rota schedule why daily-report 2026-03-08T07:00:00Z",
    ]
)
@schedule_argument
@click.argument("at", type=WALL_TIME)
def why(session: Session, schedule_id: str, at: datetime) -> None:
    """Why did it run, or not, at that time? From the ledger, in words.

    A time without a zone is on the clock of the schedule's own zone."""

    async def ask(queue: Queue) -> tuple[Why, list[Alarm]]:
        return await queue.why(schedule_id, at), await queue.alarms(schedule=schedule_id)

    answer, alarms = session.run(ask)
    if session.as_json:
        at_text = at.isoformat() if at.tzinfo is None else at.astimezone(UTC).isoformat()
        document = {
            "id": schedule_id,
            "at": at_text,
            "status": answer.status,
            "words": str(answer),
            "run": answer.run,
        }
        return session.screen.json(document)
    session.screen.prose(str(answer))
    return _open_alarms(session, alarms)


@command(examples=["rota schedule history daily-report"])
@schedule_argument
def history(session: Session, schedule_id: str) -> None:
    """Who changed what, and when, oldest first. Also of a schedule that is deleted."""
    events, now = session.run_timed(lambda queue: queue.schedule_history(schedule_id))
    if session.as_json:
        return session.screen.json(events)
    rows = [_event_row(session, event, now) for event in events]
    return session.screen.table(("AT", "WHO", "WHAT", "CHANGE"), rows, yields=("WHO", "CHANGE"))


def _event_row(session: Session, event: Event, now: datetime) -> list[Cell | str]:
    at = session.screen.away(event.at, now)
    return [at, event.actor, Cell(event.action, "bold"), _difference(session.screen, event)]


def _difference(screen: Screen, event: Event) -> str:
    parts = [
        f"{name}: {_brief(screen, old)} → {_brief(screen, new)}"
        for name, old, new in differences(event)
        if not event.detail or new != event.detail
    ]
    return "; ".join([*([event.detail] if event.detail else []), *parts])


def _brief(screen: Screen, value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else written(value)
    if _TIME.fullmatch(text):
        return screen.clock(datetime.fromisoformat(text))
    return text if len(text) <= 80 else f"{text[:79]}…"


@command(
    name="preview",
    examples=[
        'rota preview "0 9 * * 1-5" --timezone Europe/London -n 10',
        'rota preview "*/10 * * * * *"          # six fields: seconds first',
        'rota preview "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17;BYMINUTE=0;BYSECOND=0"',
        "rota preview 90m --start-at 2026-03-01T00:00:00Z",
        'rota preview "30 2 * * *" --timezone America/New_York --from 2026-03-07',
    ],
)
@click.argument("expressions", metavar="EXPRESSION…", nargs=-1, required=True)
@click.option(
    "--timezone",
    metavar="ZONE",
    shell_complete=completing.zones,
    help="The clock it is read on.  [default: UTC]",
)
@click.option(
    "--day-match", type=click.Choice(["or", "and"]), help="Whether a day matches either day field, or both."
)
@click.option(
    "--dst-gap", type=click.Choice(["after", "before", "skip"]), help="For a time that does not exist."
)
@click.option(
    "--dst-fold", type=click.Choice(["first", "second", "both"]), help="For a time that comes twice."
)
@click.option(
    "-n", "count", type=click.IntRange(1, MOST_TIMES), default=5, show_default=True, help="How many times."
)
@click.option(
    "--from", "after", type=TIME, help="Look from this time on instead of now (without a zone: local)."
)
@click.option("--start-at", type=TIME, help="No time before this one counts.")
@click.option("--end-at", type=TIME, help="No time after this one counts.")
def preview_expression(
    session: Session,
    expressions: tuple[str, ...],
    timezone: str | None,
    count: int,
    after: datetime | None,
    start_at: datetime | None,
    end_at: datetime | None,
    **choices: str | None,
) -> None:
    """When would this fire? Times, words, and warnings: if it never fires, if both day fields are given,
    if daylight saving skips or doubles a time, if it fires more than 1,000 times a day.

    EXPRESSION is a cron line, an RFC 5545 rule (FREQ=…) or a duration (5m), after its zone if it has one
    (TZ=Europe/Paris 0 9 * * *). Several are shown as one schedule that has them all."""
    from ....engine.clock import SystemClock
    from ....engine.queries import occurrences

    now = after or SystemClock().now()
    timing = _timing(expressions, timezone, start_at or now, choices)
    timezone = getattr(timing, "timezone", "UTC")
    never = _never(timing)
    if never is not None:
        return _say_times(session, timezone, "", [], (f"It never fires: {never}",), now)
    just_before = now - timedelta(microseconds=1)
    if start_at is None:
        timing = _begun(timing, just_before)
    found = occurrences(timing, just_before, count, start_at, end_at)
    warnings = recurrence.warnings(timing, now)
    if not found:
        warnings = (*warnings, "It does not fire within these bounds.")
    return _say_times(session, timezone, words.timing_words(timing), found, warnings, now)


def _timing(
    texts: tuple[str, ...], zone: str | None, start: datetime, choices: dict[str, str | None]
) -> Timing:
    from ...python.timings import new_timing, timing_of_text

    begin = start.replace(microsecond=0)
    given = {name: value for name, value in choices.items() if value is not None}
    if given or len(texts) > 1:
        timing, _ = new_timing({"timings": texts, "timezone": zone, "start_at": begin, **given}, begin)
    else:
        timing = timing_of_text(texts[0], zone, begin)
    return _in_each_part(
        timing, lambda part: replace(part, anchor=begin) if isinstance(part, Interval) else part
    )


def _begun(timing: Timing, after: datetime) -> Timing:
    """The rules in it begin to count after this time."""
    return _in_each_part(
        timing, lambda part: recurrence.begun_after(part, after) if isinstance(part, RRule) else part
    )


def _in_each_part(timing: Timing, change: Callable[[Simple], Simple]) -> Timing:
    parts = [change(part) for part in recurrence.parts_of(timing)]
    return parts[0] if len(parts) == 1 else Several(tuple(parts))


def _never(timing: Timing) -> str | None:
    """Why it can never fire; None if it can. What is not even an expression is refused."""
    try:
        recurrence.check(timing)
    except recurrence.NeverFires as problem:
        return problem.problem
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    return None


def _say_times(
    session: Session,
    zone: str,
    sentence: str,
    found: list[Occurrence],
    warnings: tuple[str, ...],
    now: datetime,
) -> None:
    screen = session.screen
    if session.as_json:
        return screen.json({"words": sentence, "timezone": zone, "times": found, "warnings": warnings})
    if sentence:
        screen.prose(click.style(sentence, bold=True))
    if found:
        _occurrence_table(session, zone, found, now)
    for warning in warnings:
        screen.prose(f"{click.style('warning:', fg='yellow', bold=True)} {warning}")
    return None
