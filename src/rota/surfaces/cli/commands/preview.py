"""`rota preview`: when an expression would fire. It needs no store."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ..command import command
from ..parse import TIME
from ..session import Session, with_session

if TYPE_CHECKING:
    from ....domain.recurrence import Timing
    from ....engine.queries import Occurrence

__all__ = ["preview"]

MOST = 10_000


@command(
    examples=[
        'rota preview "0 9 * * 1-5" --timezone Europe/London -n 10',
        'rota preview "*/10 * * * * *"          # six fields: seconds first',
        'rota preview "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17;BYMINUTE=0;BYSECOND=0"',
        "rota preview 90m --start-at 2026-03-01T00:00:00Z",
        'rota preview "30 2 * * *" --timezone America/New_York --from 2026-03-07',
    ]
)
@click.argument("expression")
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="The clock it is read on.")
@click.option(
    "-n", "count", type=click.IntRange(1, MOST), default=5, show_default=True, help="How many times."
)
@click.option(
    "--from", "after", type=TIME, help="Look from this time on instead of now (without a zone: local)."
)
@click.option("--start-at", type=TIME, help="No time before this one counts.")
@click.option("--end-at", type=TIME, help="No time after this one counts.")
@with_session
def preview(
    session: Session,
    expression: str,
    timezone: str,
    count: int,
    after: datetime | None,
    start_at: datetime | None,
    end_at: datetime | None,
) -> None:
    """When would this fire? Times, words, and warnings: if it never fires, if both day fields are given,
    if daylight saving skips or doubles a time, if it fires more than 1,000 times a day.

    EXPRESSION is a cron line, an RFC 5545 rule (FREQ=…) or a duration (5m)."""
    from ....domain import recurrence
    from ....engine.clock import SystemClock
    from ....engine.queries import occurrences
    from ..words import timing_words

    now = after or SystemClock().now()
    timing = _timing(expression, timezone, start_at or now)
    never = _never(timing)
    if never is not None:
        return _answer(session, timezone, "", [], (f"It never fires: {never}",), now)
    just_before = now - timedelta(microseconds=1)
    if isinstance(timing, recurrence.RRule) and start_at is None:
        timing = recurrence.begun_after(timing, just_before)
    found = occurrences(timing, just_before, count, start_at, end_at)
    warnings = recurrence.warnings(timing, now)
    if not found:
        warnings = (*warnings, "It does not fire within these bounds.")
    return _answer(session, timezone, timing_words(timing), found, warnings, now)


def _timing(expression: str, zone: str, start: datetime) -> Timing:
    from ....domain.recurrence import Cron, Interval, RRule
    from ...durations import parsed

    text = expression.strip()
    if re.match(r"(?i)(RRULE:|FREQ=|DTSTART|RDATE|EXDATE)", text):
        return RRule(text, start.replace(microsecond=0), zone)
    if re.fullmatch(r"([0-9]+(ms|[smhdw])\s*)+", text):
        return Interval(parsed("expression", text), start.replace(microsecond=0))
    return Cron(text, zone)


def _never(timing: Timing) -> str | None:
    """Why it can never fire; None if it can. What is not even an expression is refused."""
    from ....domain import recurrence

    try:
        recurrence.check(timing)
    except ValueError as problem:
        sentence = str(problem)
        if "never" in sentence:
            return sentence.partition(": ")[2] or sentence
        raise click.UsageError(sentence) from None
    return None


def _answer(
    session: Session, zone: str, words: str, found: list[Occurrence], warnings: tuple[str, ...], now: datetime
) -> None:
    from ... import shapes
    from .schedule_views import occurrence_table

    screen = session.screen
    if session.as_json:
        times: list[dict[str, Any]] = [shapes.occurrence(each) for each in found]
        return screen.json({"words": words, "timezone": zone, "times": times, "warnings": list(warnings)})
    if words:
        screen.say(click.style(words, bold=True))
    if found:
        occurrence_table(session, zone, found, now)
    for warning in warnings:
        screen.say(f"{click.style('warning:', fg='yellow', bold=True)} {warning}")
    return None
