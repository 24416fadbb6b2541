"""`fire_times`: the engine behind strings, as the shared test vectors call it.

The vectors carry a `count` ("at most this many in total, counted from start"), which in the product is a
schedule's `max_runs`; here it is settled by counting what had fired before.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import islice

from rota.domain.recurrence import occurrences
from rota.domain.recurrence.timing import Cron, Interval, RRule, Timing
from rota.domain.recurrence.zones import zone

__all__ = ["fire_times", "parse_duration"]

_END = datetime.max.replace(tzinfo=UTC)


def fire_times(
    kind: str,
    expr: str,
    tz: str,
    after_iso: str,
    start_iso: str | None,
    n: int,
    end_iso: str | None = None,
    count: int | None = None,
) -> list[str]:
    """The next `n` times after `after_iso`, as `2026-01-15T00:00:00Z`; `ValueError` for a bad expression."""
    after, start, end = _instant(after_iso), _optional(start_iso), _optional(end_iso)
    timing = _timing(kind, expr, tz, start if start is not None else after)
    if kind == "interval" and start is None:
        timing = Interval(parse_duration(expr))
    occurrences.check(timing)
    if count is not None and start is not None:
        before = min(after, _END) if after >= start else start - timedelta(seconds=1)
        count -= occurrences.count(timing, start - timedelta(seconds=1), before, start_at=start, end_at=end)
    wanted = n if count is None else min(n, count)
    times = occurrences.between(timing, after, _END, start_at=start, end_at=end)
    return [_shown(time) for time in islice(times, max(wanted, 0))]


def _timing(kind: str, expr: str, tz: str, start: datetime) -> Timing:
    if kind == "cron":
        return Cron(expr, tz)
    if kind == "rrule":
        return RRule(expr, start, tz)
    if kind == "interval":
        zone(tz)  # an interval has no use for it, but a wrong name is a mistake
        return Interval(parse_duration(expr), start)
    raise ValueError(f"kind: {kind!r} is not known; accepted are cron, interval and rrule")


def _optional(text: str | None) -> datetime | None:
    return None if text is None else _instant(text)


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _shown(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


_DURATION = re.compile(
    r"P(?:(?P<weeks>[0-9]{1,9})W)?(?:(?P<days>[0-9]{1,9})D)?"
    r"(?P<time>T(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?"
    r"(?:(?P<seconds>[0-9]{1,12})(?:[.,](?P<fraction>[0-9]{1,6}))?S)?)?"
)


def parse_duration(text: str) -> timedelta:
    """`PT1H30M` and the like: elapsed time, so no years and months. `ValueError` for anything else, and for zero."""
    match = _DURATION.fullmatch(text.strip().upper()) if isinstance(text, str) else None
    if match is None or text.strip()[-1] in "PpTt":
        shown = repr(text[:40]) if isinstance(text, str) else type(text).__name__
        raise ValueError(
            f"interval: {shown} is not a duration; accepted are weeks to seconds, such as PT5M or P1DT12H"
        )
    units = {unit: int(match[unit] or 0) for unit in ("weeks", "days", "hours", "minutes", "seconds")}
    fraction = int((match["fraction"] or "").ljust(6, "0"))
    try:
        every = timedelta(**units, microseconds=fraction)
    except OverflowError:
        raise ValueError(f"interval: {text[:40]!r} is too long; accepted are up to 999999999 days") from None
    if not every:
        raise ValueError(f"interval: {text[:40]!r} is zero; accepted are durations of one second or more")
    return every
