"""RRULE: from text, DTSTART and zone to a `Ticks` of instants.

Here is decided what a rule needs:

* YEARLY, MONTHLY, WEEKLY, DAILY name readings of the wall clock: a `Pattern`, or `Chosen` with BYSETPOS,
  followed nominally, so that the local time of day stays the same across daylight saving;
* HOURLY, MINUTELY, SECONDLY advance in elapsed time: a `StepRule`;
* the rule's own bounds (UNTIL, COUNT, EXDATE and RDATE) are put around these.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import MAXYEAR, UTC, datetime
from typing import Final, NamedTuple

import msgspec

from ...errors import Invalid
from ..days import ALL_MONTHS, Blocks, Comb, DaySet, month_of
from ..pattern import Pattern, TimeGrid, TimeList
from ..ticks import DAY, LATEST, YEAR, Never, NeverFires, Ticks
from ..timing import DstFold, DstGap
from ..walk import ByChoice, Elapsed, following
from ..zones import Zone, zone
from .days import Chosen, bits_of, month_mask, places_in
from .steps import StepRule, countable_years
from .text import DateText, RuleText, parse_rule_text

_SOON: Final = 1500 * DAY
_PERIODS: Final = {
    # frequency: (seconds that a period has at least, days that it has at most)
    "YEARLY": (365 * DAY, 366),
    "MONTHLY": (28 * DAY, 31),
    "WEEKLY": (7 * DAY, 7),
    "DAILY": (DAY, 1),
    "HOURLY": (3600, 1),
    "MINUTELY": (60, 1),
    "SECONDLY": (1, 1),
}


class Rule(NamedTuple):
    """A parsed rule. `readings` are the wall-clock times it names, None when it advances in elapsed time."""

    text: RuleText
    readings: Ticks | None
    instants: Ticks


def parse_rrule(
    rule: str, dtstart: int, timezone: str, gap: DstGap | None = None, fold: DstFold | None = None
) -> Rule:
    """Read a rule whose DTSTART is the instant `dtstart`; `Invalid` says what is wrong with it."""
    text, place = parse_rule_text(rule), zone(timezone)
    readings, instants = _endless(text, dtstart, place, gap, fold)
    return Rule(text, readings, _bounded(instants, text, dtstart, place))


def first_counted(
    rule: str,
    dtstart: int,
    timezone: str,
    after: int,
    gap: DstGap | None = None,
    fold: DstFold | None = None,
) -> int:
    """The DTSTART with which a COUNT counts only times later than `after`: the rule's first time from there on.

    That may be unfit to begin at: a reading that a gap has moved would move all those that follow, and RDATEs
    before it would be lost. The rule then begins in the next second."""
    text, place = parse_rule_text(rule), zone(timezone)
    if text.limit is None:
        return dtstart
    readings, instants = _endless(text, dtstart, place, gap, fold)
    if instants.first(dtstart, after) is None:
        return dtstart
    first = instants.first(after + 1, LATEST)
    if first is None or text.added:
        return after + 1
    reading = first + place.offset(first)
    moved = readings is not None and readings.first(reading, reading) is None
    return after + 1 if moved else first


def _endless(
    text: RuleText, dtstart: int, place: Zone, gap: DstGap | None, fold: DstFold | None
) -> tuple[Ticks | None, Ticks]:
    """The readings and the instants of the rule itself, without COUNT, UNTIL and date lines."""
    offset = place.offset(dtstart)
    if text.frequency in ("HOURLY", "MINUTELY", "SECONDLY"):
        if gap is not None or fold is not None:
            field = "dst_fold" if gap is None else "dst_gap"
            raise Invalid(
                field,
                f"a rule that is {text.frequency} advances in elapsed time; accepted is DAILY or longer",
            )
        steps = StepRule(text, _day_set(text, dtstart + offset), dtstart, offset)
        return None, _checked(Elapsed(steps, place, dtstart, countable_years(text)), text, dtstart)
    readings, possible = _calendar(_completed(text, dtstart + offset), dtstart + offset)
    return readings, _checked(following(readings, place, gap, fold, dtstart), text, dtstart, possible)


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


def _calendar(text: RuleText, local: int) -> tuple[Ticks, Callable[[], bool]]:
    """The readings of a rule that names wall-clock times, and what tells whether there are any."""
    days = _day_set(text, local)
    second = local % DAY
    grid = TimeGrid(
        bits_of(text.by_hour or {second // 3600}),
        bits_of(text.by_minute or {second // 60 % 60}),
        bits_of(text.by_second or {second % 60}),
    )
    if not text.by_set_pos:
        return Pattern(days, grid), days.possible
    if text.frequency == "DAILY":
        times = tuple(grid.nth(place) for place in places_in(grid.size, text.by_set_pos))
        return Pattern(days, TimeList(times)) if times else Never(), days.possible
    chosen = Chosen(days, grid, text.by_set_pos, text.frequency, text.week_start)
    return chosen, chosen.possible


def _checked(
    instants: Ticks, text: RuleText, dtstart: int, possible: Callable[[], bool] | None = None
) -> Ticks:
    """Refuse a rule that never fires, unless RDATE lines give it something to do. If a calendar rule does not
    fire soon, it is searched further only when that is `possible`; a step rule decides that by itself, for
    each offset."""
    soon = possible is not None and instants.first(dtstart, dtstart + _SOON) is not None
    if soon or ((possible is None or possible()) and instants.first(dtstart, LATEST) is not None):
        return instants
    if text.added:
        return Until(instants, dtstart - 1)
    raise NeverFires(
        "rrule",
        "the rule never fires, since its BY parts and INTERVAL name no date that ever comes; "
        "accepted are rules that fire at least once",
    )


def _bounded(instants: Ticks, text: RuleText, dtstart: int, place: Zone) -> Ticks:
    """Apply UNTIL or COUNT, then RDATE and EXDATE."""
    if text.until is not None:
        instants = Until(instants, _stretch(text.until._replace(zone=None), place)[1] - 1)
    if text.limit is not None:
        instants = _counted(instants, text, dtstart, text.limit)
    if not text.added and not text.excluded:
        return instants
    added = [start for start, _ in (_stretch(date, place) for date in text.added) if start >= dtstart]
    excluded = [(date.whole_day, _stretch(date, place)) for date in text.excluded]
    moments = {stretch[0] for whole_day, stretch in excluded if not whole_day}
    return Edited(instants, added, moments, [stretch for whole_day, stretch in excluded if whole_day])


def _counted(instants: Ticks, text: RuleText, dtstart: int, limit: int) -> Counted:
    """Apply COUNT. Where counting is slow the last time is found now, so that no later question counts through
    thousands of years; a rule whose last time is too far away for that is refused."""
    sure = dtstart + _least_span(text, limit)
    counted = Counted(instants, dtstart, limit, sure, _years_at_once(instants, text))
    years = countable_years(text)
    if years is not None and sure < LATEST and not counted.ends_by(dtstart + years * YEAR):
        raise Invalid(
            "rrule",
            f"COUNT {limit} is not reached within {years:,} years; accepted is UNTIL, or a smaller COUNT",
        )
    return counted


def _years_at_once(instants: Ticks, text: RuleText) -> int:
    """Over how many years a COUNT is counted in less than a tenth of a second. Of step rules that is known before."""
    if text.frequency in ("HOURLY", "MINUTELY", "SECONDLY"):
        return MAXYEAR
    return 400 if text.by_set_pos or isinstance(instants, ByChoice) else 2000


def _least_span(text: RuleText, limit: int) -> int:
    """Seconds that pass for certain before the rule has fired `limit` times. A period counts twice, since
    clocks that go back may show it twice, and two more are left out, since the first may have begun before."""
    seconds, days = _PERIODS[text.frequency]
    most = days * (len(text.by_hour) or 1) * (len(text.by_minute) or 1) * (len(text.by_second) or 1)
    if text.by_set_pos:
        most = min(most, len(text.by_set_pos))
    return max(limit // (2 * most) - 2, 0) * text.interval * seconds - 2 * DAY


def _stretch(date: DateText, place: Zone) -> tuple[int, int]:
    """The instant of a date, or the whole local day, as `[start, end)`."""
    if date.utc:
        return date.seconds, date.seconds + 1
    where = zone(date.zone) if date.zone is not None else place
    start = where.resolve(date.seconds)
    return start, where.resolve(date.seconds + DAY) if date.whole_day else start + 1


_WALKED: Final = 16
_LEAST: Final = 366 * DAY


class Until(msgspec.Struct, frozen=True):
    """The members of `inner` up to `end`."""

    _inner: Ticks
    _end: int

    def first(self, low: int, high: int) -> int | None:
        return self._inner.first(low, min(high, self._end))

    def count(self, low: int, high: int) -> int:
        return self._inner.count(low, min(high, self._end))


class Counted:
    """The first `limit` members of `inner`, which begins at `start`.

    A count bounds the rule: there is a last member. It is looked for when a question first reaches beyond the members
    that were counted so far. The first few members are walked through, which is enough for small counts and sparse
    rules. From there on the stretches that are counted become longer and longer, so that little beyond the last member
    is counted in vain. Nothing is counted before `sure`: by then there cannot have been so many. A question
    for which more than so many `years` would have to be counted is refused.
    """

    __slots__ = ("_end", "_inner", "_limit", "_mark", "_start", "_sure", "_years")

    def __init__(self, inner: Ticks, start: int, limit: int, sure: int, years: int) -> None:
        self._inner = inner
        self._start = start
        self._limit = limit
        self._sure = sure
        self._years = years
        self._mark = (start - 1, 0)
        self._end: int | None = None

    def first(self, low: int, high: int) -> int | None:
        hit = self._inner.first(low, high)
        return hit if hit is None or hit <= self._reach(hit) else None

    def count(self, low: int, high: int) -> int:
        return self._inner.count(low, self._reach(high))

    def ends_by(self, at: int) -> bool:
        """Whether its last member is at or before `at`, which is found out now."""
        self._reach(at)
        return self._end is not None

    def _reach(self, at: int) -> int:
        """`at`, or the last member that counts if that is earlier."""
        if at < self._sure:
            return at
        farthest = self._start + self._years * YEAR
        while self._end is None:
            place, counted = self._mark
            if at <= place:
                return at
            if counted < _WALKED:
                self._walk(place, counted, at)
            elif place >= farthest:
                raise Invalid(
                    "rrule",
                    f"its COUNT would have to be counted over more than {self._years:,} years",
                    "accepted are times before that, UNTIL, or a smaller COUNT",
                )
            else:
                stop = min(at, farthest, place + max(place - self._start, _LEAST))
                found = self._inner.count(place + 1, stop)
                if counted + found < self._limit:
                    self._mark = (stop, counted + found)
                else:
                    self._end = self._nth(self._limit - counted, place + 1, stop, found)
        return min(at, self._end)

    def _walk(self, place: int, counted: int, at: int) -> None:
        """Move the mark on by single members, up to `at`."""
        while counted < min(_WALKED, self._limit):
            member = self._inner.first(place + 1, at)
            if member is None:
                self._mark = (at, counted)
                return
            place, counted = member, counted + 1
        if counted == self._limit:
            self._end = place
        else:
            self._mark = (place, counted)

    def _nth(self, nth: int, low: int, high: int, found: int) -> int:
        """The n-th member of `[low, high]`, which has `found`: halve while there are many, then walk."""
        while found > 16:
            middle = (low + high) // 2
            below = self._inner.count(low, middle)
            if below >= nth:
                high, found = middle, below
            else:
                low, nth, found = middle + 1, nth - below, found - below
        for _ in range(nth):
            member = self._inner.first(low, high)
            if member is None:
                break
            low = member + 1
        return low - 1


class Edited:
    """`inner` with some instants added (RDATE) and some removed (EXDATE); a removal wins over an addition.

    `removed_days` are stretches `[start, end)` in which everything is removed (an EXDATE that is a date).
    """

    __slots__ = ("_added", "_inner", "_removed", "_removed_days")

    def __init__(
        self, inner: Ticks, added: list[int], removed: set[int], removed_days: list[tuple[int, int]]
    ) -> None:
        self._inner = inner
        self._removed = removed
        self._removed_days = removed_days
        self._added = sorted({at for at in added if not self._is_removed(at)})

    def first(self, low: int, high: int) -> int | None:
        hit = self._inner.first(low, high)
        while hit is not None and (beyond := self._is_removed(hit)):
            hit = self._inner.first(beyond, high)
        place = bisect_left(self._added, low)
        if place < len(self._added) and self._added[place] <= (high if hit is None else hit):
            return self._added[place]
        return hit

    def count(self, low: int, high: int) -> int:
        total = self._inner.count(low, high)
        stretches = _merged([*self._removed_days, *((at, at + 1) for at in self._removed)])
        for start, end in stretches:
            total -= self._inner.count(max(start, low), min(end - 1, high))
        added = self._added[bisect_left(self._added, low) : bisect_right(self._added, high)]
        return total + sum(self._inner.first(at, at) is None for at in added)

    def _is_removed(self, at: int) -> int:
        """0 if it stays; otherwise the first second that may not be removed for the same reason."""
        if at in self._removed:
            return at + 1
        return next((end for start, end in self._removed_days if start <= at < end), 0)


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same seconds as stretches that do not overlap."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
