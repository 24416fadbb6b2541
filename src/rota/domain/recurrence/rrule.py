"""RRULE: from text, DTSTART and zone to a `Ticks` of instants.

The parent that decides which of the leaves a rule needs:

* YEARLY, MONTHLY, WEEKLY, DAILY name readings of the wall clock: a `Pattern`, or `Chosen` with BYSETPOS,
  followed nominally, so that the local time of day stays the same across daylight saving;
* HOURLY, MINUTELY, SECONDLY advance in elapsed time: a `StepRule`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from rota.domain.recurrence.bounded import Counted, Edited, Until
from rota.domain.recurrence.days import ALL_MONTHS, Blocks, Comb, DaySet
from rota.domain.recurrence.months import month_of
from rota.domain.recurrence.pattern import Pattern
from rota.domain.recurrence.rrule_days import month_mask
from rota.domain.recurrence.rrule_periods import Chosen
from rota.domain.recurrence.rrule_steps import StepRule
from rota.domain.recurrence.rrule_text import DateText, RuleText, parse_rule_text
from rota.domain.recurrence.ticks import DAY, LATEST, Ticks
from rota.domain.recurrence.times import TimeGrid, TimeList
from rota.domain.recurrence.walk import Elapsed, Nominal
from rota.domain.recurrence.zones import Zone, zone

__all__ = ["Rule", "parse_rrule"]


class Rule(NamedTuple):
    """A parsed rule. `readings` are the wall-clock times it names, None when it advances in elapsed time."""

    text: RuleText
    readings: Ticks | None
    instants: Ticks


def parse_rrule(rule: str, dtstart: int, timezone: str) -> Rule:
    """Read a rule whose DTSTART is the instant `dtstart`; `ValueError` says what is wrong with it."""
    text, place = parse_rule_text(rule), zone(timezone)
    offset = place.offset(dtstart)
    if text.frequency in ("HOURLY", "MINUTELY", "SECONDLY"):
        steps = StepRule(text, _day_set(text, dtstart + offset), dtstart, offset)
        readings, instants = None, _checked(Elapsed(steps, place, dtstart), text, dtstart)
    else:
        readings, possible = _calendar(_completed(text, dtstart + offset), dtstart + offset)
        instants = _checked(Nominal(readings, place, dtstart), text, dtstart, possible=possible)
    return Rule(text, readings, _bounded(instants, text, dtstart, place))


def _completed(text: RuleText, local: int) -> RuleText:
    """The rule with what it leaves open taken from DTSTART's date."""
    if text.by_week_no or text.by_year_day or text.by_month_day or text.by_day:
        return text
    start = datetime.fromtimestamp(local, UTC)
    if text.frequency == "YEARLY":
        return text._replace(
            by_month=text.by_month or frozenset({start.month}), by_month_day=frozenset({start.day})
        )
    if text.frequency == "MONTHLY":
        return text._replace(by_month_day=frozenset({start.day}))
    if text.frequency == "WEEKLY":
        return text._replace(by_day=frozenset({(0, start.weekday())}))
    return text


def _day_set(text: RuleText, local: int) -> DaySet:
    day = local // DAY
    blocks, comb = None, None
    if text.frequency == "YEARLY":
        blocks = Blocks(12, month_of(day) // 12, text.interval)
    elif text.frequency == "MONTHLY":
        blocks = Blocks(1, month_of(day), text.interval)
    elif text.frequency == "WEEKLY":
        into_week = (day + 3 - text.week_start) % 7  # 1970-01-01 was a Thursday
        comb = Comb(day - into_week, 7 * text.interval, 7)
    elif text.frequency == "DAILY":
        comb = Comb(day, text.interval, 1)
    months = sum(1 << month - 1 for month in text.by_month) or ALL_MONTHS
    narrowed = text.by_month or text.by_month_day or text.by_year_day or text.by_week_no or text.by_day
    skipping = text.interval > 1 and (blocks or comb)
    return DaySet(month_mask(text), months, blocks, comb, every=not narrowed and not skipping)


def _calendar(text: RuleText, local: int) -> tuple[Ticks, bool]:
    """The readings of a rule that names wall-clock times, and whether there are any."""
    days = _day_set(text, local)
    second = local % DAY
    grid = TimeGrid(
        _mask(text.by_hour or {second // 3600}),
        _mask(text.by_minute or {second // 60 % 60}),
        _mask(text.by_second or {second % 60}),
    )
    if not text.by_set_pos:
        return Pattern(days, grid), days.possible()
    if text.frequency == "DAILY":
        places = {place - 1 if place > 0 else grid.size + place for place in text.by_set_pos}
        times = tuple(grid.nth(place) for place in sorted(places) if 0 <= place < grid.size)
        pattern = Pattern(days, TimeList(times) if times else grid)
        return pattern, bool(times) and days.possible()
    chosen = Chosen(days, grid, text.by_set_pos, text.frequency, text.week_start)
    enough = min(abs(place) for place in text.by_set_pos) <= _most_days(text) * grid.size
    return chosen, enough and chosen.possible()


def _most_days(text: RuleText) -> int:
    """At least as many days as a period of the rule ever has."""
    if text.frequency == "WEEKLY":
        return len({weekday for _, weekday in text.by_day}) or 7
    return 366 if text.frequency == "YEARLY" else 31


def _checked(instants: Ticks, text: RuleText, dtstart: int, *, possible: bool = True) -> Ticks:
    """Refuse a rule that never fires, unless RDATE lines give it something to do. A calendar rule is only
    searched when it is `possible`; a step rule decides that by itself, for each offset."""
    if possible and instants.first(dtstart, LATEST) is not None:
        return instants
    if text.added:
        return Until(instants, dtstart - 1)
    raise ValueError(
        "rrule: the rule never fires, since its BY parts and INTERVAL name no date that ever comes; "
        "accepted are rules that fire at least once"
    )


def _bounded(instants: Ticks, text: RuleText, dtstart: int, place: Zone) -> Ticks:
    """Apply UNTIL or COUNT, then RDATE and EXDATE."""
    if text.until is not None:
        instants = Until(instants, _stretch(text.until._replace(zone=None), place)[1] - 1)
    if text.limit is not None:
        instants = Counted(instants, dtstart, text.limit)
    if not text.added and not text.excluded:
        return instants
    added = [start for start, _ in (_stretch(date, place) for date in text.added) if start >= dtstart]
    excluded = [(date.whole_day, _stretch(date, place)) for date in text.excluded]
    moments = {stretch[0] for whole_day, stretch in excluded if not whole_day}
    return Edited(instants, added, moments, [stretch for whole_day, stretch in excluded if whole_day])


def _stretch(date: DateText, place: Zone) -> tuple[int, int]:
    """The instant of a date, or the whole local day, as `[start, end)`."""
    if date.utc:
        return date.seconds, date.seconds + 1
    where = zone(date.zone) if date.zone is not None else place
    start = where.resolve(date.seconds)
    return start, where.resolve(date.seconds + DAY) if date.whole_day else start + 1


def _mask(values: frozenset[int] | set[int]) -> int:
    return sum(1 << value for value in values)
