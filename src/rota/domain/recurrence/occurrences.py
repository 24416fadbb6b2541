"""When a timing fires: the next time, the latest, all of them in a range, how many.

Every range is `(after, until]`, cut by `start_at` and `end_at`, which are both inclusive. Times are aware;
answers are UTC. Calendar timings fire on whole seconds, `once` and `interval` may carry a fraction. The year
9999 is the horizon.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from .compiled import EPOCH, compiled, microseconds, seconds
from .rrule.parse import first_counted
from .ticks import LATEST
from .timing import RRule, Timing

__all__ = ["begun_after", "between", "check", "count", "latest", "next_after"]

_MILLION: Final = 1_000_000


def check(timing: Timing) -> None:
    """Refuse a timing that is malformed or can never fire, with a sentence that names the field."""
    compiled(timing)


def begun_after(timing: RRule, after: datetime) -> RRule:
    """The rule, so that its COUNT does not count times up to `after`."""
    start = seconds(timing.dtstart)
    begin = first_counted(timing.rule, start, timing.timezone, seconds(after))
    return timing if begin == start else replace(timing, dtstart=EPOCH + timedelta(seconds=begin))


def next_after(
    timing: Timing, after: datetime, *, start_at: datetime | None = None, end_at: datetime | None = None
) -> datetime | None:
    """The first time strictly later than `after`."""
    ticks, whole, _, _ = compiled(timing)
    if whole and start_at is None and end_at is None:  # the scheduler's question, ten thousand times a second
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
    ticks, whole, _, _ = compiled(timing)
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
    """The last time in `(after, until]`, found from the end."""
    ticks, whole, _, _ = compiled(timing)
    hit = ticks.last(*_window(whole, after, until, start_at, end_at))
    return None if hit is None else _datetime(hit, whole)


def count(
    timing: Timing,
    after: datetime,
    until: datetime,
    *,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> int:
    """How many times are in `(after, until]`, without going through them. `ValueError` if the
    range is longer than a hundred years and the timing an RRULE that would take long to count."""
    ticks, whole, _, _ = compiled(timing)
    return ticks.count(*_window(whole, after, until, start_at, end_at))


def _window(
    whole: bool, after: datetime, until: datetime | None, start_at: datetime | None, end_at: datetime | None
) -> tuple[int, int]:
    """The closed range of ticks that the four bounds leave."""
    scale = _MILLION if whole else 1
    low, high = microseconds(after) // scale + 1, ((LATEST + 1) * _MILLION - 1) // scale
    if start_at is not None:
        low = max(low, -(-microseconds(start_at) // scale))
    for bound in (until, end_at):
        if bound is not None:
            high = min(high, microseconds(bound) // scale)
    return low, high


def _datetime(tick: int, whole: bool) -> datetime:
    return EPOCH + (timedelta(0, tick) if whole else timedelta(0, 0, tick))
