"""A schedule in words: when it runs, what happens to missed and overlapping times, when it ends."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from ..domain import recurrence
from ..domain.model import (
    ExcludedPolicy,
    MissedRunPolicy,
    OverlapPolicy,
    Schedule,
    ScheduleStatus,
    TaskTarget,
    TemplateTarget,
)
from ..domain.recurrence import Cron, RRule
from ..domain.schedule import MOST_BUFFERED, grace_at
from .durations import long_text, relative


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 schedule`, `12 schedules`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def sentence(schedule: Schedule) -> str:
    """`At 09:00, Monday through Friday, in Europe/London`."""
    return timing_words(schedule.timing)


def timing_words(timing: recurrence.Timing) -> str:
    if isinstance(timing, recurrence.Several):
        timing = recurrence.Several(tuple(_unanchored(part) for part in timing.timings))
        zones = {part.timezone for part in timing.timings if isinstance(part, Cron | RRule)}
    elif isinstance(timing, recurrence.After):
        zones = set()
    else:
        timing = _unanchored(timing)
        zones = {timing.timezone} if isinstance(timing, Cron | RRule) else set()
    where = "" if len(zones) != 1 or zones == {"UTC"} else f", in {zones.pop()}"
    return f"{recurrence.describe(timing)}{where}"


def _unanchored(timing: recurrence.Simple) -> recurrence.Simple:
    """Where an interval counts from is rarely the question."""
    return replace(timing, anchor=None) if isinstance(timing, recurrence.Interval) else timing


def runs_what(schedule: Schedule, template: str | None = None) -> str:
    """`template` is the name of the one that it runs, if that is known."""
    target = schedule.target
    if isinstance(target, TemplateTarget):
        return f"template {template or target.template_id}"
    what = "task" if isinstance(target, TaskTarget) else "workflow"
    return f"{what} {target.kind}, queue {target.queue}"


def state(schedule: Schedule, now: datetime, deleted_because: str = "") -> str:
    """The state of a schedule, and why it is in it."""
    if schedule.deleted_at is not None:
        way_back = f"; `rota schedule restore {schedule.id}` brings it back"
        because = f": {deleted_because}" if deleted_because else way_back
        return f"deleted {_since(schedule.deleted_at, now)}{because}"
    match schedule.status:
        case ScheduleStatus.ACTIVE if schedule.next_run_at is not None:
            word = "next" if schedule.next_run_at > now else "due"
            return f"active, {word} {relative(schedule.next_run_at, now)}"
        case ScheduleStatus.ACTIVE if isinstance(schedule.timing, recurrence.After):
            told = {cause.key for cause in schedule.causes}
            missing = [key for key in schedule.timing.schedules if key not in told]
            return f"active, waits for {', '.join(missing)}"
        case ScheduleStatus.PAUSED:
            note = f": {schedule.pause_note}" if schedule.pause_note else ""
            who = schedule.paused_by or schedule.updated_by
            by = f" by {who}" if who else ""
            until = schedule.pause_until
            ends = f", until {_second(until)} ({relative(until, now)})" if until is not None else ""
            return f"paused {_since(schedule.paused_at or schedule.updated_at, now)}{by}{ends}{note}"
        case ScheduleStatus.COMPLETED:
            return f"completed: {schedule.completed_reason}"
        case ScheduleStatus.DRAFT:
            return f"draft; `rota schedule resume {schedule.key}` starts it"
    return str(schedule.status)


def _since(at: datetime, now: datetime) -> str:
    return "just now" if (words := relative(at, now)) == "now" else words


def policies(schedule: Schedule) -> list[str]:
    lines = [_missed(schedule), _overlap(schedule)]
    if schedule.offset:
        lines.append(f"Each time is put off by {long_text(schedule.offset)}.")
    if schedule.jitter:
        lines.append(
            f"Each time is put off by up to {long_text(schedule.jitter)}, always the same for the same time."
        )
    lines += _calendars(schedule)
    if schedule.pause_on_failure:
        most = int(schedule.pause_on_failure)
        when = "when a run fails" if most == 1 else f"when {most} runs in a row have failed"
        lines.append(f"It pauses itself {when}.")
    if schedule.start_at is not None:
        lines.append(f"It starts at {_second(schedule.start_at)}.")
    if schedule.end_at is not None:
        lines.append(f"It ends after {_second(schedule.end_at)}.")
    if schedule.max_runs is not None:
        lines.append(f"It ends after {schedule.max_runs} runs; there have been {schedule.run_count}.")
    return lines


def _calendars(schedule: Schedule) -> list[str]:
    lines = []
    if schedule.exclude:
        lines.append(f"No time in {_listed(schedule.exclude, 'or')} counts.")
    if schedule.only:
        lines.append(f"Only times in {_listed(schedule.only, 'and')} count.")
    if lines and schedule.excluded_policy is not ExcludedPolicy.SKIP:
        lines.append(f"A time that is excluded moves to the {schedule.excluded_policy} day that is not.")
    return lines


def _listed(names: tuple[str, ...], last: str) -> str:
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _second(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _missed(schedule: Schedule) -> str:
    grace = grace_at(schedule, schedule.next_run_at or schedule.created_at)
    late = f"A time missed by more than {long_text(grace)}"
    match schedule.missed_run_policy:
        case MissedRunPolicy.SKIP:
            return f"{late} is skipped, and recorded as such."
        case MissedRunPolicy.EXECUTE_ONCE:
            return f"{late} is made up for once: the latest runs, earlier ones are skipped."
        case MissedRunPolicy.CATCH_UP:
            window = long_text(schedule.catch_up_window)
            return f"{late} is made up for: each of the last {window} runs, oldest first."


def _overlap(schedule: Schedule) -> str:
    is_buffering = schedule.overlap_policy in (OverlapPolicy.BUFFER_ONE, OverlapPolicy.BUFFER_ALL)
    if schedule.missed_run_policy is MissedRunPolicy.CATCH_UP:
        if is_buffering:
            return "Each of its times runs, one after the other."
        return "Each of its times runs, also beside a run that is still going."
    match schedule.overlap_policy:
        case OverlapPolicy.SKIP:
            return "While a run is still going, further times are skipped."
        case OverlapPolicy.ALLOW:
            return "Runs may overlap."
        case OverlapPolicy.BUFFER_ONE:
            return "While a run is still going, one further time waits; others are skipped."
        case OverlapPolicy.BUFFER_ALL:
            return f"While a run is still going, up to {MOST_BUFFERED} further times wait their turn."
        case OverlapPolicy.TERMINATE_PREVIOUS:
            return "A run that is still going is ended at once when the next one is due."
        case OverlapPolicy.CANCEL_PREVIOUS:
            return "A run that is still going is cancelled when the next one is due."
