"""A timing made ready for questions: validated once, cached, as a `Ticks` with its scale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from .cron.parse import parse_cron
from .rrule.parse import parse_rrule
from .ticks import Point, Progression, Ticks
from .timing import Cron, Interval, Once, RRule, Timing
from .walk import Elapsed, Nominal
from .zones.zone import Zone, zone

__all__ = ["EPOCH", "Compiled", "compiled", "microseconds", "on_clock", "seconds"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SHORTEST: Final = timedelta(seconds=1)


class Compiled(NamedTuple):
    """`whole` tells whether a tick is a second or a microsecond. `readings` are the wall-clock times that the
    timing names, where it names any: None for elapsed time and for cron lines that keep their rhythm."""

    ticks: Ticks
    whole: bool
    zone: Zone
    readings: Ticks | None


@lru_cache(maxsize=16_384)
def compiled(timing: Timing) -> Compiled:
    """Validate and prepare; `ValueError` with one sentence when the timing is not acceptable."""
    match timing:
        case Cron(expression, timezone):
            return _cron(expression, zone(timezone))
        case RRule(rule, dtstart, timezone):
            parsed = parse_rrule(rule, seconds(_aware("rrule: dtstart", dtstart)), timezone)
            return Compiled(parsed.instants, True, zone(timezone), parsed.readings)
        case Interval(every, anchor):
            start = microseconds(_aware("interval: anchor", anchor)) if anchor is not None else 0
            return Compiled(Progression(start, _step(every)), False, zone("UTC"), None)
        case Once(run_at):
            return Compiled(Point(microseconds(_aware("once: run_at", run_at))), False, zone("UTC"), None)
    raise ValueError(
        f"timing: {type(timing).__name__} is no timing; accepted are Once, Interval, Cron and RRule"
    )


def seconds(at: datetime) -> int:
    """Whole seconds since the epoch, rounded down."""
    since = at - EPOCH
    return since.days * 86_400 + since.seconds


def microseconds(at: datetime) -> int:
    return (at - EPOCH) // _MICROSECOND


def on_clock(reading: datetime, timezone: str) -> datetime:
    """When the clock of the zone shows this naive `reading`: the first time of two; for a reading that does not
    exist, the first instant after the gap."""
    then = zone(timezone).resolve(seconds(reading.replace(tzinfo=UTC)))
    return EPOCH + timedelta(seconds=then, microseconds=reading.microsecond)


def _cron(expression: str, where: Zone) -> Compiled:
    line = parse_cron(expression)
    if line.repeats:
        return Compiled(Elapsed(line.pattern, where), True, where, None)
    return Compiled(Nominal(line.pattern, where), True, where, line.pattern)


def _step(every: timedelta) -> int:
    if not isinstance(every, timedelta) or every < _SHORTEST:
        raise ValueError(f"interval: every is {every!s:.40}; accepted are durations of one second or more")
    return every // _MICROSECOND


def _aware(field: str, at: datetime) -> datetime:
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise ValueError(f"{field} is {at!s:.40}, a time without a zone; accepted are aware datetimes")
    return at
