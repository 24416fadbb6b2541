"""When a schedule runs, as it is answered: a shape for each kind of timing."""

from __future__ import annotations

from functools import lru_cache

from msgspec import UNSET, UnsetType

from ....domain import recurrence
from ....domain.model import Schedule
from ....domain.recurrence import After, AfterOn, Cron, Interval, Once, RRule
from ...shapes import Answer, Time

__all__ = ["ScheduleTypeAnswer", "in_words", "schedule_type"]


class OnceAnswer(Answer, frozen=True, kw_only=True, tag_field="type", tag="once"):
    """At one time."""

    run_at: Time
    description: str


class RecurringAnswer(Answer, frozen=True, kw_only=True, tag_field="type", tag="recurring"):
    """By a cron line."""

    cron: str
    timezone: str
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
    description: str
    end_at: Time | UnsetType = UNSET


class AfterAnswer(Answer, frozen=True, kw_only=True, tag_field="type", tag="after"):
    """When a run of each of these schedules, by name, has ended."""

    schedules: list[str]
    on: AfterOn
    delay_seconds: float
    description: str
    end_at: Time | UnsetType = UNSET


ScheduleTypeAnswer = OnceAnswer | RecurringAnswer | IntervalAnswer | RuleAnswer | AfterAnswer

in_words = lru_cache(maxsize=10_000)(recurrence.describe)
"""To find the words takes longer than all the rest of an answer, and timings are asked for again and again."""


def schedule_type(record: Schedule) -> ScheduleTypeAnswer:
    words, end_at = in_words(record.timing), record.end_at or UNSET
    match record.timing:
        case Once(run_at):
            return OnceAnswer(run_at=run_at, description=words)
        case Cron(expression, zone):
            return RecurringAnswer(cron=expression, timezone=zone, description=words, end_at=end_at)
        case Interval(every):
            return IntervalAnswer(every_seconds=every.total_seconds(), description=words, end_at=end_at)
        case RRule(rule, _, zone):
            return RuleAnswer(rule=rule, timezone=zone, description=words, end_at=end_at)
        case After(schedules, on, delay):
            seconds = delay.total_seconds()
            return AfterAnswer(
                schedules=list(schedules), on=on, delay_seconds=seconds, description=words, end_at=end_at
            )
