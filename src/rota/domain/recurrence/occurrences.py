"""When a timing fires: the next time, the latest, all of them in a range, how many.

Every range is `(after, until]`, cut by `start_at` and `end_at`, which are both inclusive. Times are aware;
answers are UTC. Calendar timings fire on whole seconds, `once` and `interval` may carry a fraction. The year
9999 is the horizon. A timing is validated and made ready for questions once (`compiled`), and cached.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from ..errors import Invalid, naming_one
from .cron import CronLine, parse_cron, split_zone
from .rrule.parse import first_counted, parse_rrule
from .ticks import LATEST, MILLION, Never, Point, Progression, Ticks, Union, WholeSeconds, last
from .timing import (
    MICROSECOND,
    MOST_TIMINGS,
    After,
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
from .walk import Elapsed, following
from .zones import UnknownZone, Zone, zone

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHORTEST: Final = timedelta(seconds=1)


class Compiled(NamedTuple):
    """`whole` tells whether a tick is a second or a microsecond. `readings` are the wall-clock times that the timing
    names, where it names any: None for elapsed time and for cron lines that keep their rhythm. `gap` says what becomes
    of a reading that does not exist."""

    ticks: Ticks
    whole: bool
    zone: Zone
    readings: Ticks | None
    gap: DstGap = DstGap.SKIP


@lru_cache(maxsize=16_384)
def compiled(timing: Timing) -> Compiled:
    """Validate and prepare; `Invalid` with one sentence when the timing is not acceptable. In a zone that this
    machine does not know it has no times: what another release has stored must not stop this one."""
    try:
        return _prepared(timing)
    except UnknownZone:
        return _NOWHERE


def _prepared(timing: Timing) -> Compiled:
    match timing:
        case Cron():
            return _cron(timing)
        case RRule(rule, dtstart, timezone, gap, fold):
            parsed = parse_rrule(rule, seconds(_aware("rrule", "dtstart", dtstart)), timezone, gap, fold)
            return Compiled(parsed.instants, True, zone(timezone), parsed.readings, gap or DstGap.AFTER)
        case Interval(every, anchor):
            start = microseconds(_aware("interval", "anchor", anchor)) if anchor is not None else 0
            return Compiled(Progression(start, _step(every)), False, zone("UTC"), None)
        case Once(run_at):
            return Compiled(Point(microseconds(_aware("once", "run_at", run_at))), False, zone("UTC"), None)
        case Several(timings):
            return _several(timings)
        case After():
            return Compiled(Never(), False, zone("UTC"), None)
    raise Invalid(
        "timing",
        f"{type(timing).__name__} is no timing; accepted are Once, Interval, Cron, RRule, Several and After",
    )


_NOWHERE: Final = Compiled(Never(), True, zone("UTC"), None)


def seconds(at: datetime) -> int:
    """Whole seconds since the epoch, rounded down."""
    since = at - EPOCH
    return since.days * 86_400 + since.seconds


def microseconds(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def on_clock(reading: datetime, timezone: str) -> datetime:
    """When the clock of the zone shows this naive `reading`: the first time of two; for a reading that does not
    exist, the first instant after the gap."""
    then = zone(timezone).resolve(seconds(reading.replace(tzinfo=UTC)))
    return EPOCH + timedelta(seconds=then, microseconds=reading.microsecond)


def cron_line(timing: Cron) -> CronLine:
    """The line, parsed."""
    return parse_cron(split_zone(timing.expression)[1], both=timing.day_match == DayMatch.AND)


def with_zone(timing: Cron) -> Cron:
    """A line that begins with its zone, with that as its timezone; refused if the timezone says otherwise."""
    written, line = split_zone(timing.expression)
    if written is None:
        return timing
    if timing.timezone not in ("UTC", written):
        raise Invalid(
            "timezone",
            f"{timing.timezone[:64]!r} is not the zone that the cron line begins with, {written[:64]!r}; "
            "accepted is one of them",
        )
    return replace(timing, expression=line, timezone=written)


def _cron(timing: Cron) -> Compiled:
    line = cron_line(timing)
    where = zone(with_zone(timing).timezone)
    gap, fold = timing.dst_gap, timing.dst_fold
    if not line.repeats:
        return Compiled(
            following(line.pattern, where, gap, fold), True, where, line.pattern, gap or DstGap.AFTER
        )
    if gap in (None, DstGap.SKIP) and fold in (None, DstFold.BOTH):
        return Compiled(Elapsed(line.pattern, where), True, where, None)
    chosen = following(line.pattern, where, gap or DstGap.SKIP, fold or DstFold.BOTH)
    return Compiled(chosen, True, where, line.pattern, gap or DstGap.SKIP)


def _several(timings: tuple[Simple, ...]) -> Compiled:
    if not 1 <= len(timings) <= MOST_TIMINGS:
        raise Invalid("timings", f"there are {len(timings)}; accepted are 1 to {MOST_TIMINGS}")
    ready = [compiled(timing) for timing in timings]
    parts = tuple(WholeSeconds(each.ticks) if each.whole else each.ticks for each in ready)
    return Compiled(Union(parts), False, ready[0].zone, None)


def parts_of(timing: Timing) -> tuple[Simple, ...]:
    """The timing, or those that it is made of: none, if it has no times of its own."""
    match timing:
        case Several(timings):
            return timings
        case After():
            return ()
    return (timing,)


def part_at(timing: Timing, at: datetime) -> Simple | After:
    """The part of the timing that fires at `at`; the first, if none does."""
    if not isinstance(timing, Several):
        return timing
    parts = timing.timings
    return next((part for part in parts if len(parts) > 1 and _fires(part, at)), parts[0])


def _fires(timing: Simple, at: datetime) -> bool:
    return next_after(timing, at - MICROSECOND, end_at=at) == at


def _step(every: timedelta) -> int:
    if not isinstance(every, timedelta) or every < _SHORTEST:
        raise Invalid("interval", f"every is {every!s:.40}; accepted are durations of one second or more")
    return every // MICROSECOND


def _aware(field: str, part: str, at: datetime) -> datetime:
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise Invalid(field, f"{part} is {at!s:.40}, a time without a zone; accepted are aware datetimes")
    return at


def check(timing: Timing) -> None:
    """Refuse a timing that is malformed or can never fire, with a sentence that names the field."""
    for number, part in enumerate(parts_of(timing)):
        with naming_part(timing, number):
            if compiled(part) is _NOWHERE:
                _prepared(part)
    compiled(timing)


def naming_part(timing: Timing, number: int) -> AbstractContextManager[None]:
    """What is refused inside is said of this part, if the timing has several."""
    return naming_one("timings", number) if isinstance(timing, Several) else nullcontext()


def unknown_zone(timing: Timing) -> str | None:
    """A zone of the timing that this machine does not know."""
    unknown = (part for part in parts_of(timing) if compiled(part) is _NOWHERE)
    return next((str(getattr(part, "timezone", "")) for part in unknown), None)


def begun_after(timing: RRule, after: datetime) -> RRule:
    """The rule, so that its COUNT does not count times up to `after`."""
    start = seconds(timing.dtstart)
    begin = first_counted(
        timing.rule, start, timing.timezone, seconds(after), timing.dst_gap, timing.dst_fold
    )
    return timing if begin == start else replace(timing, dtstart=EPOCH + timedelta(seconds=begin))


def next_after(
    timing: Timing, after: datetime, *, start_at: datetime | None = None, end_at: datetime | None = None
) -> datetime | None:
    """The first time strictly later than `after`."""
    ticks, whole, *_ = compiled(timing)
    if whole and start_at is None and end_at is None:  # what the scheduler asks, in a fifth less time
        since = after - EPOCH
        hit = ticks.first(since.days * 86_400 + since.seconds + 1, LATEST)
        return None if hit is None else EPOCH + timedelta(0, hit)
    hit = ticks.first(*_window(whole, after, None, start_at, end_at))
    return None if hit is None else _datetime(hit, whole)


def between(
    timing: Timing,
    after: datetime,
    until: datetime,
    *,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> Iterator[datetime]:
    """Each time in `(after, until]`, in order, computed as it is asked for."""
    ticks, whole, *_ = compiled(timing)
    low, high = _window(whole, after, until, start_at, end_at)
    while (hit := ticks.first(low, high)) is not None:
        yield _datetime(hit, whole)
        low = hit + 1


def latest(
    timing: Timing,
    after: datetime,
    until: datetime,
    *,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> datetime | None:
    """The last time in `(after, until]`."""
    ticks, whole, *_ = compiled(timing)
    hit = last(ticks, *_window(whole, after, until, start_at, end_at))
    return None if hit is None else _datetime(hit, whole)


def count(
    timing: Timing,
    after: datetime,
    until: datetime,
    *,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> int:
    """How many times are in `(after, until]`, without going through them. `Invalid` if the
    range is longer than a hundred years and the timing an RRULE that would take long to count."""
    ticks, whole, *_ = compiled(timing)
    return ticks.count(*_window(whole, after, until, start_at, end_at))


def _window(
    whole: bool, after: datetime, until: datetime | None, start_at: datetime | None, end_at: datetime | None
) -> tuple[int, int]:
    """The closed range of ticks that the four bounds leave."""
    scale = MILLION if whole else 1
    low, high = microseconds(after) // scale + 1, ((LATEST + 1) * MILLION - 1) // scale
    if start_at is not None:
        low = max(low, -(-microseconds(start_at) // scale))
    for bound in (until, end_at):
        if bound is not None:
            high = min(high, microseconds(bound) // scale)
    return low, high


def _datetime(tick: int, whole: bool) -> datetime:
    return EPOCH + (timedelta(0, tick) if whole else timedelta(0, 0, tick))
