"""What can be given: to a submission, a target, a template, a schedule, and to the lists of them. Each option is
declared here, once, with its type, its check and its help.

The Python calls take these shapes as they stand (`**options: Unpack[SubmitOptions]`), so that type checkers know them.
The checks of the domain, the bodies of the HTTP API, the options of the command line and the tables of the reference
are made from them. A field without an `Option` has a form of its own on each surface.

None takes the stored value away if the `Option` is `clearable`. Elsewhere None means that nothing is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints
from zoneinfo import ZoneInfo

import msgspec

from .checks import (
    LONGEST,
    NAME_PATTERN,
    check_choice,
    check_duration,
    check_flag,
    check_idempotency_key,
    check_metadata,
    check_number,
    check_queue,
    check_ratio,
    check_retry_policy,
    check_schedule_ids,
    check_tags,
    check_text,
    check_time,
    check_unique_by,
    shown,
)
from .errors import Invalid
from .model import Duration as Duration
from .model import (
    ExcludedPolicy,
    Limit,
    MissedRunPolicy,
    OverlapPolicy,
    RetryPolicy,
    ScheduleStatus,
    Target,
    TaskStatus,
)
from .recurrence import AfterOn, DayMatch, DstFold, DstGap, RecurrenceRule, Timing
from .runtimes import Command, check_url
from .schedule.calendars import check_calendars

MOST_RETRIES = 1_000_000
_SECOND = timedelta(seconds=1)


TimingPart = str | Mapping[str, Any] | Timing
"""One of several timings: a text (`TZ=Europe/Paris 0 9 * * 1-5`), the options of one (`{"cron": …, "timezone": …}`), or
a timing."""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about an option beside its type. `check(field, value)` gives the stored form or raises `Invalid`; the
    bounds are those that the check has, for schemas and help pages."""

    help: str
    check: Callable[[str, object], Any]
    least: float | None = None
    most: float | None = None
    pattern: str | None = None
    clearable: bool = False
    cleared: Any = None
    """The value that is there once it is taken away."""
    alone: int | None = None
    """Of a number: what true means, or the name without a value."""


def _number(help: str, least: int, most: int, *, clearable: bool = False) -> Option:
    check = partial(check_number, least=least, most=most)
    return Option(help=help, check=check, least=least, most=most, clearable=clearable)


def _ratio(help: str, least: float, most: float) -> Option:
    return Option(help=help, check=partial(check_ratio, least=least, most=most), least=least, most=most)


def _duration(help: str, *, least: timedelta = timedelta(0), clearable: bool = False) -> Option:
    check = partial(check_duration, least=least)
    shortest, longest = least.total_seconds(), LONGEST.total_seconds()
    return Option(help=help, check=check, least=shortest, most=longest, clearable=clearable)


def _time(help: str, *, clearable: bool = False) -> Option:
    return Option(help=help, check=check_time, clearable=clearable)


def _text(help: str, *, most: int = 10_000, clearable: bool = False) -> Option:
    return Option(help=help, check=partial(check_text, most=most), most=most, clearable=clearable)


def _choice(help: str, choices: type[StrEnum], *, clearable: bool = False) -> Option:
    return Option(help=help, check=partial(check_choice, enum=choices), clearable=clearable)


def _flag(help: str) -> Option:
    return Option(help=help, check=check_flag)


def _timings(field: str, value: object) -> Sequence[TimingPart]:
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise Invalid(field, f"{shown(value)} is not a list", "give a list of timings")
    return value


def _max_runs(field: str, value: object) -> int | None:
    return check_number(field, value, 0, 2**53) or None


def _url(field: str, value: object) -> str:
    text = check_text(field, value, most=2000)
    check_url(text, field)
    return text


def _failures(field: str, value: object) -> int:
    return int(value) if isinstance(value, bool) else check_number(field, value, 0, 100)


class TaskOptions(TypedDict, total=False):
    """How a task is run: for submissions, for the targets of schedules, for templates."""

    queue: Annotated[
        str | None,
        Option(
            help="The queue it waits in. [default: default]",
            check=lambda field, value: check_queue(value, field),
            pattern=NAME_PATTERN,
        ),
    ]
    priority: Annotated[int | None, _number("0 to 255, higher first. [default: 128]", 0, 255)]
    max_retries: Annotated[
        int | None,
        _number(
            "How often it is tried again. [default: as its handler says]", 0, MOST_RETRIES, clearable=True
        ),
    ]
    max_reschedules: Annotated[
        int | None,
        _number("How often it may put itself off. [default: no limit]", 0, MOST_RETRIES, clearable=True),
    ]
    retry_policy: Annotated[
        RetryPolicy | None,
        Option(
            help="How long it waits before it is tried again. [default: as its handler says]",
            check=lambda field, value: check_retry_policy(value, field),
            clearable=True,
        ),
    ]
    timeout: Annotated[
        Duration | None,
        _duration(
            "How long an attempt may take. [default: as its handler says]",
            least=timedelta(milliseconds=1),
            clearable=True,
        ),
    ]
    ttl: Annotated[
        Duration | None, _duration("It expires if it has not started after this long.", clearable=True)
    ]
    tags: Annotated[
        Iterable[str] | None,
        Option(help="Tags to find it by.", check=lambda field, value: check_tags(value)),
    ]
    metadata: Annotated[
        Mapping[str, Any] | None,
        Option(
            help="Whatever you want to keep with it.",
            check=lambda field, value: check_metadata(value, field),
        ),
    ]
    limit_key: Annotated[
        str | None,
        _text("Whose share of the limit of its kind it takes: a customer, say.", most=255, clearable=True),
    ]


class RetryPolicyOptions(TypedDict, total=False):
    """The parts of a retry policy, for surfaces that have no `RetryPolicy` to give."""

    initial: Annotated[Duration, _duration("The first wait. [default: 1s]")]
    multiplier: Annotated[float, _ratio("How much longer each wait is. [default: 2]", 1, 1000)]
    maximum: Annotated[Duration, _duration("The longest wait. [default: 60s]")]
    jitter: Annotated[float, _ratio("The share by which a wait is spread. [default: 0.25]", 0, 1)]


class UniqueOptions(TypedDict, total=False):
    """Which submissions are the same task."""

    unique_for: Annotated[
        Duration | None,
        _duration("The same task back while one lives, and for this long after its submission."),
    ]
    unique_by: Annotated[
        Iterable[str] | None,
        Option(
            help="What makes two submissions the same: kind, queue, input, or a part of the input such as"
            " input.customer. The same task back while one lives. [default: kind and input, if unique_for is given]",
            check=check_unique_by,
        ),
    ]


class SubmitManyOptions(TaskOptions, UniqueOptions, total=False):
    """The options of many submissions at once."""

    schedule_at: Annotated[datetime | None, _time("Run it at this time, not before.")]
    expires_at: Annotated[datetime | None, _time("It expires if it has not started by then.")]
    ttl_seconds: float | None


class SubmitOptions(SubmitManyOptions, total=False):
    """The options of a submission, beside its kind and its input."""

    idempotency_key: Annotated[
        str | None,
        Option(
            help="The same key and input give the same task back.",
            check=check_idempotency_key,
            least=1,
            most=255,
        ),
    ]


class TimingOptions(TypedDict, total=False):
    """When: one of cron, interval, run_at, rrule, rule, timings and after, and its bounds."""

    cron: Annotated[str | None, _text("A cron line, 5 fields or 6 with seconds first: '0 9 * * 1-5'.")]
    interval: Annotated[Duration | None, _duration("Every so often.", least=timedelta(seconds=1))]
    run_at: Annotated[datetime | None, _time("Once, at this time.")]
    rrule: Annotated[
        str | None, _text("An RFC 5545 rule: 'FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17'.", most=100_000)
    ]
    rule: RecurrenceRule | None
    timings: Annotated[
        Sequence[TimingPart] | None,
        Option(
            help="Several timings: any of them counts. Each is a cron line, a duration, a rule or a time, after"
            " its zone if it has one: 'TZ=Europe/Paris 0 9 * * 1-5'.",
            check=_timings,
        ),
    ]
    after: Annotated[
        Iterable[str] | None,
        Option(help="When a run of this schedule ends; of several: of each.", check=check_schedule_ids),
    ]
    after_on: Annotated[
        AfterOn | str | None, _choice("How a run must have ended. [default: success]", AfterOn)
    ]
    after_delay: Annotated[Duration | None, _duration("How long after that it runs.")]
    timezone: Annotated[
        str | ZoneInfo | None,
        _text(
            "The clock that cron, rrule and times without a zone are read on. [default: UTC for cron and rrule,"
            " local time for times]"
        ),
    ]
    day_match: Annotated[
        DayMatch | str | None,
        _choice("Where a cron line restricts both day fields: a day matches either, or both.", DayMatch),
    ]
    dst_gap: Annotated[
        DstGap | str | None,
        _choice(
            "When a local time that does not exist fires: after the gap, before it, or not at all (skip)."
            " [default: after; skip for lines that repeat within the day]",
            DstGap,
            clearable=True,
        ),
    ]
    dst_fold: Annotated[
        DstFold | str | None,
        _choice(
            "When a local time that comes twice fires: the first, the second, or both. [default: first; both for"
            " lines that repeat within the day]",
            DstFold,
            clearable=True,
        ),
    ]
    start_at: Annotated[datetime | None, _time("No time before this one counts.", clearable=True)]
    end_at: Annotated[datetime | None, _time("No time after this one counts.", clearable=True)]
    max_runs: Annotated[
        int | None,
        Option(
            help="Complete after this many runs (0: no limit).",
            check=_max_runs,
            least=0,
            most=2**53,
            clearable=True,
        ),
    ]


class AlarmOptions(TypedDict, total=False):
    """When to be alarmed about a schedule, or about all whose target has a tag."""

    alarm_late: Annotated[
        Duration | None,
        _duration(
            "Alarm when it starts, or its task begins, later than this.", least=_SECOND, clearable=True
        ),
    ]
    alarm_no_success: Annotated[
        Duration | None,
        _duration(
            "Alarm when it has not succeeded for this long (0: never)."
            " [default: three of its times in a row, and at least 10m]",
            clearable=True,
        ),
    ]
    alarm_failures: Annotated[
        int | None, _number("Alarm when so many runs in a row have failed.", 1, 100, clearable=True)
    ]
    alarm_duration: Annotated[
        Duration | None,
        _duration(
            "Alarm when a run takes longer than this, its wait included.", least=_SECOND, clearable=True
        ),
    ]
    alarm_ending: Annotated[
        Duration | None,
        _duration("Alarm when no time is left after this long.", least=_SECOND, clearable=True),
    ]


class PolicyOptions(TimingOptions, TaskOptions, AlarmOptions, total=False):
    """The options of the schedule of a known task: when, with which input, how it is run, and its policies."""

    input: Any
    missed_run_policy: Annotated[
        MissedRunPolicy | str | None,
        _choice("What to do about times missed while nothing ran. [default: skip]", MissedRunPolicy),
    ]
    overlap_policy: Annotated[
        OverlapPolicy | str | None,
        _choice("What to do if the last run is still going. [default: skip]", OverlapPolicy),
    ]
    misfire_grace: Annotated[
        Duration | None,
        _duration(
            "How late is not yet missed. [default: 1m, or the distance to the next time if that is shorter]",
            clearable=True,
        ),
    ]
    catch_up_window: Annotated[Duration | None, _duration("How far back catch_up goes. [default: 365d]")]
    offset: Annotated[Duration | None, _duration("Put off every time by this long, at most to the next one.")]
    jitter: Annotated[Duration | None, _duration("Spread the times by up to this long.")]
    exclude: Annotated[
        Iterable[str] | None,
        Option(
            help="Calendars, or windows such as 22:00-06:00: no time in one of them counts.",
            check=check_calendars,
            clearable=True,
            cleared=(),
        ),
    ]
    only: Annotated[
        Iterable[str] | None,
        Option(
            help="Calendars, or windows such as 09:00-17:00: only times that are in all of them count.",
            check=check_calendars,
            clearable=True,
            cleared=(),
        ),
    ]
    excluded_policy: Annotated[
        ExcludedPolicy | str | None,
        _choice(
            "Where a time moves that calendars take away: next or previous day. [default: skip]",
            ExcludedPolicy,
        ),
    ]
    heartbeat_url: Annotated[
        str | None,
        Option(
            help="A monitor outside that is told of its runs: URL/start, URL on success, URL/fail.",
            check=_url,
            most=2000,
            clearable=True,
        ),
    ]
    pause_on_failure: Annotated[
        int | bool | None,
        Option(
            help="Pause after this many failures in a row: 1, or True, is the first. [default: 0, never]",
            check=_failures,
            least=0,
            most=100,
            alone=1,
        ),
    ]
    description: Annotated[str | None, _text("For people.")]
    status: Annotated[
        ScheduleStatus | str | None, _choice("draft, active or paused. [default: active]", ScheduleStatus)
    ]
    pause_note: Annotated[str | None, _text("Why it is paused.", clearable=True)]


class ScheduleOptions(PolicyOptions, total=False):
    """The options of a schedule: the same, and what it runs (`task_type` or `target`)."""

    task_type: Annotated[str | None, _text("The kind of task it submits.")]
    target: Target | None


class HandlerOptions(PolicyOptions, UniqueOptions, total=False):
    """The options of a handler where it is registered: how its tasks are run, which are the same, and when. Its `limit`
    holds for all workers together. With `run_in="process"` it runs in a process that is kept for it, and killed if it
    must end; there it gets at most `memory_limit` bytes."""

    limit: Limit | None
    run_in: Literal["process"] | None
    memory_limit: int | None


class WorkflowOptions(PolicyOptions, UniqueOptions, total=False):
    """The options of a workflow where it is registered: as of a handler, and which runs its code goes on with.
    `timeout` is for the whole run, waits included."""

    version: Annotated[int, _number("The version of the code; runs keep that of their begin.", 1, 1_000_000)]
    accepts: Annotated[int, _number("The oldest version whose runs this code goes on with.", 1, 1_000_000)]


class ScheduleChanges(ScheduleOptions, total=False):
    """The options that can be changed in a schedule: all of them, and its name."""

    key: str


class TemplateOptions(TaskOptions, total=False):
    """The options of a template, beside its alias and its kind."""

    parameters: dict[str, Any]
    parameters_schema: dict[str, Any] | None
    command: Command | str | Sequence[str] | Mapping[str, Any]
    enabled: Annotated[bool, _flag("Whether it may run.")]
    runtime: str


class TemplateChanges(TemplateOptions, total=False):
    """The options that can be changed in a template: all of them, and its names."""

    alias: str
    kind: str


class TaskFilters(TypedDict, total=False):
    """Which tasks: those that match everything given."""

    status: Annotated[TaskStatus | str | None, _choice("Only those in this state.", TaskStatus)]
    kind: Annotated[str | None, _text("Only those of this kind.")]
    queue: Annotated[str | None, _text("Only those in this queue.")]
    schedule: Annotated[str | None, _text("Only those that this schedule started, by its id or name.")]
    tag: Annotated[str | None, _text("Only those with this tag.")]
    workflow: Annotated[bool | None, _flag("Only workflows, or none of them.")]


class ScheduleFilters(TypedDict, total=False):
    """Which schedules: those that match everything given."""

    status: Annotated[ScheduleStatus | str | None, _choice("Only those in this state.", ScheduleStatus)]
    kind: Annotated[str | None, _text("Only those that run this kind.")]
    template_id: Annotated[str | None, _text("Only those that run this template, by its id or alias.")]
    tag: Annotated[str | None, _text("Only those whose target has this tag.")]
    timezone: Annotated[str | None, _text("Only those whose times are on the clock of this zone.")]
    text: Annotated[str | None, _text("Only those with this in their name, description, kind or a tag.")]
    deleted: Annotated[bool | None, _flag("Deleted ones, too.")]


class LimitOptions(TypedDict, total=False):
    """The limits of a tenant; `pending_tasks` may be None: no limit."""

    schedules: Annotated[int, _number("Schedules that are not completed.", 0, 10_000_000)]
    pending_tasks: Annotated[int | None, _number("Pending tasks.", 0, 1_000_000_000, clearable=True)]
    minimum_interval: Annotated[Duration, _duration("Between two runs.", least=timedelta(seconds=1))]
    input_bytes: Annotated[int, _number("The size of an input.", 1, 64 * 1024 * 1024)]


@cache
def options_of(shape: type) -> dict[str, Option]:
    """The options of a shape by name, without those that have a form of their own on each surface."""
    hints = get_type_hints(shape, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


@cache
def names_of(shape: type) -> frozenset[str]:
    """All that can be given."""
    return frozenset(get_type_hints(shape))


@cache
def value_type(shape: type, name: str) -> Any:
    """The type of this option's values, None aside: `Duration`, or a single type. Of a choice, the enum."""
    hint = get_type_hints(shape)[name]
    either = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    parts = [part for part in either if part is not type(None)]
    if timedelta in parts:
        return Duration
    return next((part for part in parts if isinstance(part, type) and issubclass(part, StrEnum)), parts[0])


SLIP = 0.8
"""How like a name must be to be taken for a slip of the pen: crn for cron, not task for tags."""


def check_names(
    shape: type, given: Iterable[str], what: str = "option", *, beside: Iterable[str] = ()
) -> None:
    """Refuse names that are no options of the shape, and none of those that are taken `beside` them."""
    accepted = names_of(shape) | set(beside)
    unknown = set(given) - accepted
    if unknown:
        name = min(unknown)
        raise Invalid(name, f"there is no such {what}", instead_of(name, accepted))


def instead_of(name: str, accepted: Iterable[str]) -> str:
    """The advice for a name that is not accepted."""
    known = sorted(accepted)
    meant = get_close_matches(name, known, n=1, cutoff=SLIP)
    return f"did you mean {meant[0]}?" if meant else f"accepted are {', '.join(known)}"


def check_option(name: str, option: Option, value: object) -> Any:
    """The stored form."""
    return option.cleared if value is None and option.clearable else option.check(name, value)
