"""The answers about timings: when a schedule runs, and the times that come of it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from ....domain import recurrence
from ....domain.model import Schedule
from ....domain.recurrence import (
    After,
    AfterOn,
    Cron,
    DayMatch,
    DstFold,
    DstGap,
    Interval,
    Once,
    RRule,
    Several,
    Simple,
    Timing,
)
from ....engine.queries import Occurrence
from ...shapes import Answer, Time, shaped


class OnceAnswer(Answer, frozen=True, kw_only=True, tag_field="type", tag="once"):
    """At one time."""

    run_at: Time
    description: str


class RecurringAnswer(Answer, frozen=True, kw_only=True, tag_field="type", tag="recurring"):
    """By a cron line."""

    cron: str
    timezone: str
    day_match: DayMatch | UnsetType = UNSET
    dst_gap: DstGap | UnsetType = UNSET
    dst_fold: DstFold | UnsetType = UNSET
    description: str
    end_at: Time | UnsetType = UNSET


class IntervalAnswer(Answer, frozen=True, kw_only=True, tag_field="type", tag="interval"):
    """At a fixed distance, in absolute time."""

    every_seconds: float
    description: str
    end_at: Time | UnsetType = UNSET


class RuleAnswer(Answer, frozen=True, kw_only=True, tag_field="type", tag="rrule"):
    """By an RFC 5545 rule."""

    rule: str
    timezone: str
    dst_gap: DstGap | UnsetType = UNSET
    dst_fold: DstFold | UnsetType = UNSET
    description: str
    end_at: Time | UnsetType = UNSET


class SeveralAnswer(Answer, frozen=True, kw_only=True, tag_field="type", tag="several"):
    """By any of these timings."""

    timings: list[OnceAnswer | RecurringAnswer | IntervalAnswer | RuleAnswer]
    description: str
    end_at: Time | UnsetType = UNSET


class AfterAnswer(Answer, frozen=True, kw_only=True, tag_field="type", tag="after"):
    """When a run of each of these schedules, by name, has ended."""

    schedules: list[str]
    on: AfterOn
    delay_seconds: float
    description: str
    end_at: Time | UnsetType = UNSET


SimpleAnswer = OnceAnswer | RecurringAnswer | IntervalAnswer | RuleAnswer
ScheduleTypeAnswer = OnceAnswer | RecurringAnswer | IntervalAnswer | RuleAnswer | SeveralAnswer | AfterAnswer


class OccurrenceAnswer(Answer, frozen=True, kw_only=True):
    """A time at which a schedule will fire, in UTC and on the clock of its zone."""

    at: Time
    local: str
    dst: str | None


class ClockChangeAnswer(Answer, frozen=True, kw_only=True):
    """A coming change of the clocks that touches a timing: the first local time of it that is left out or comes twice,
    and when it runs for it."""

    at: Time
    direction: str
    reading: str
    runs: list[Time]
    text: str


class PreviewAnswer(Answer, frozen=True, kw_only=True):
    """The next times of a timing."""

    description: str
    timezone: str
    times: list[OccurrenceAnswer]
    warnings: list[str]
    clock_changes: list[ClockChangeAnswer]


def schedule_type(record: Schedule) -> ScheduleTypeAnswer:
    timing, end_at = record.timing, record.end_at or UNSET
    if isinstance(timing, Several):
        parts = [_simple_type(part, UNSET) for part in timing.timings]
        return SeveralAnswer(timings=parts, description=recurrence.describe(timing), end_at=end_at)
    if isinstance(timing, After):
        return AfterAnswer(
            schedules=list(timing.schedules),
            on=timing.on,
            delay_seconds=timing.delay.total_seconds(),
            description=recurrence.describe(timing),
            end_at=end_at,
        )
    return _simple_type(timing, end_at)


def _simple_type(timing: Simple, end_at: Time | UnsetType) -> SimpleAnswer:
    words = recurrence.describe(timing)
    match timing:
        case Once(run_at):
            return OnceAnswer(run_at=run_at, description=words)
        case Cron(expression, zone, matched, gap, fold):
            return RecurringAnswer(
                cron=expression,
                timezone=zone,
                day_match=UNSET if matched is DayMatch.OR else matched,
                dst_gap=gap or UNSET,
                dst_fold=fold or UNSET,
                description=words,
                end_at=end_at,
            )
        case Interval(every):
            return IntervalAnswer(every_seconds=every.total_seconds(), description=words, end_at=end_at)
        case RRule(rule, _, zone, gap, fold):
            return RuleAnswer(
                rule=rule,
                timezone=zone,
                dst_gap=gap or UNSET,
                dst_fold=fold or UNSET,
                description=words,
                end_at=end_at,
            )


def occurrences(
    of: Timing,
    found: Iterable[Occurrence],
    warnings: Iterable[str],
    changes: Iterable[recurrence.ClockChange],
) -> PreviewAnswer:
    times = [
        OccurrenceAnswer(at=each.at, local=each.local.replace(tzinfo=None).isoformat(), dst=each.dst)
        for each in found
    ]
    zone = getattr(of, "timezone", "UTC")
    return PreviewAnswer(
        description=recurrence.describe(of),
        timezone=zone,
        times=times,
        warnings=list(warnings),
        clock_changes=[
            shaped(ClockChangeAnswer, each, reading=each.reading.isoformat(), runs=list(each.runs))
            for each in changes
        ],
    )
