"""A forecast as an answer, for programs; and in lines of 80 columns, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from textwrap import wrap

from ..domain.schedule.forecast import BusyMinute, Forecast
from ..domain.schedule.spread import Spread
from .durations import short
from .shapes import Answer, Time, shaped
from .words import counted

_WIDTH = 80
_BAR = 39
_NAMED = 5
Clock = Callable[[datetime], datetime]
"""Turns a time into the same time on the reader's clock."""


class SpanAnswer(Answer, frozen=True, kw_only=True):
    """What begins within a minute, an hour or a day: how many runs, and how many seconds of work."""

    at: Time
    runs: int
    work_seconds: float


class MoveAnswer(Answer, frozen=True, kw_only=True):
    """When a schedule would fire, and when it will with its offset."""

    id: str
    before: Time
    after: Time


class SpreadAnswer(Answer, frozen=True, kw_only=True):
    """The schedules of a minute, spread over a while: the runs of the busiest minute before and after. `moving` is how
    many get an offset, `moves` are the first hundred of them, `token` stands for all: given back, it makes sure that
    just this happens."""

    at: Time
    over_seconds: int
    schedules: int
    moving: int
    before: int
    after: int
    sentence: str
    moves: list[MoveAnswer]
    token: str | None


class BusyMinuteAnswer(Answer, frozen=True, kw_only=True):
    """A minute with many runs, the first twenty who are in it, and what spreading them would do; null: no good."""

    at: Time
    runs: int
    work_seconds: float
    schedules: int
    ids: list[str]
    spread: SpreadAnswer | None


class ParticipantAnswer(Answer, frozen=True, kw_only=True):
    """A schedule and how often it fires; `workSeconds` is null if none of its runs has ended so far."""

    id: str
    runs: int
    work_seconds: float | None


class ForecastAnswer(Answer, frozen=True, kw_only=True):
    """What is expected from `start` to before `end`. Of `unknown` schedules no run has ended, so that their work is
    missing; `following` ones come after others, and have no times of their own. `participants` are the
    hundred that fire most."""

    start: Time
    end: Time
    by: str
    schedules: int
    runs: int
    work_seconds: float
    unknown: int
    following: int
    spans: list[SpanAnswer]
    busiest: list[BusyMinuteAnswer]
    participants: list[ParticipantAnswer]


def answer(made: Forecast) -> ForecastAnswer:
    return shaped(
        ForecastAnswer,
        made,
        spans=[shaped(SpanAnswer, each, at=each.at.astimezone(UTC)) for each in made.spans],
        busiest=[_busy(each) for each in made.busiest],
        participants=[shaped(ParticipantAnswer, each, id=each.key) for each in made.participants],
    )


def _busy(each: BusyMinute) -> BusyMinuteAnswer:
    spread = None if each.spread is None else spread_answer(each.spread)
    return shaped(BusyMinuteAnswer, each, at=each.at.astimezone(UTC), ids=list(each.keys), spread=spread)


def spread_answer(spread: Spread) -> SpreadAnswer:
    at = spread.at.astimezone(UTC)
    return shaped(
        SpreadAnswer,
        spread,
        at=at,
        over_seconds=spread.over // timedelta(seconds=1),
        sentence=spread.sentence(f"{at:%H:%M} UTC"),
        moves=[shaped(MoveAnswer, each, id=each.key) for each in spread.moves],
    )


def lines(made: Forecast, clock: Clock) -> Iterator[str]:
    """Every span with a bar, the busiest minutes, and what to do about the first."""
    yield from remarks(made, clock)
    most = max((each.runs for each in made.spans), default=0)
    if not most:
        return
    yield ""
    reading = {"minute": "%a %d %b %H:%M", "hour": "%a %d %b %H:%M", "day": "%a %d %b"}[made.by]
    width = max(len(f"{most:,}"), 4)
    yield f"{made.by.upper():17}{'RUNS':>{width}}  {'WORK':8}"
    for span in made.spans:
        bar = "█" * -(-span.runs * (_BAR - width) // most)
        work = short(timedelta(seconds=span.work)) if span.work else "-"
        yield f"{clock(span.at).strftime(reading):17}{span.runs:>{width},}  {work:8}  {bar}".rstrip()
    yield ""
    yield "Busiest minutes:"
    for minute in made.busiest:
        yield from _minute(minute, clock)
    first = next((each.spread for each in made.busiest if each.spread is not None), None)
    if first is not None:
        yield ""
        yield from wrap(f"{_sentence(first, clock)}:", _WIDTH)
        yield f"  rota spread {clock(first.at):%Y-%m-%dT%H:%M%z} --over {first.over // timedelta(minutes=1)}m"


def remarks(made: Forecast, clock: Clock) -> Iterator[str]:
    """All of it in a sentence, and what is not in it."""
    number = f"{counted(made.runs, 'run')} of {counted(made.schedules, 'schedule')}"
    work = f", {short(timedelta(seconds=made.work))} of work" if made.work else ""
    begin, end = clock(made.start), clock(made.end)
    yield from wrap(
        f"{begin:%a %d %b %H:%M} to {end:%a %d %b %H:%M} {begin.tzname()}: {number}{work}.", _WIDTH
    )
    if made.unknown:
        have, its = ("schedule has", "its") if made.unknown == 1 else ("schedules have", "their")
        yield from wrap(f"{made.unknown:,} {have} no ended run yet: {its} work is missing.", _WIDTH)
    if made.following:
        come = "schedule comes" if made.following == 1 else "schedules come"
        yield from wrap(f"{made.following:,} {come} after others, without times to forecast.", _WIDTH)


def spread_lines(spread: Spread, clock: Clock, shown: int = 20) -> Iterator[str]:
    """The schedules that would move, and how far."""
    yield from wrap(f"{_sentence(spread, clock)}.", _WIDTH)
    for each in spread.moves[:shown]:
        before, after = clock(each.before), clock(each.after)
        yield f"  {before:%H:%M:%S} → {after:%H:%M:%S}  {each.key}"[:_WIDTH]
    if spread.moving > shown:
        yield f"  … and {spread.moving - shown:,} more"
    stay = spread.schedules - spread.moving
    if stay > 0:
        them = "1 stays" if stay == 1 else f"{stay:,} stay"
        why = "first of the minute, or with an offset or a jitter, or firing again too soon"
        yield from wrap(f"{them}: {why}.", _WIDTH)
    yield from wrap("Each gets this offset at its other times, too; --offset 0 takes it away again.", _WIDTH)


def _minute(minute: BusyMinute, clock: Clock) -> Iterable[str]:
    named = minute.keys[:_NAMED]
    others = minute.schedules - len(named)
    who = ", ".join(named) + (f" and {others:,} more" if others > 0 else "")
    start = f"  {clock(minute.at):%a %d %b %H:%M}  {counted(minute.runs, 'run')}: "
    return wrap(start + who, _WIDTH, subsequent_indent="    ")


def _sentence(spread: Spread, clock: Clock) -> str:
    return spread.sentence(f"{clock(spread.at):%H:%M}")
