"""A plan as an answer, for programs; and in lines of 80 columns, for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from textwrap import wrap
from typing import Any

from ..domain import recurrence
from ..domain.model import Calendar, Schedule, Template
from ..domain.plan import Action, Item, Plan
from ..domain.schedule.expected import AHEAD, TimeChanges
from . import redaction
from .shapes import Answer, Time, shaped
from .words import counted

IN_DETAIL = 100
"""The times of so many changes are computed."""
LISTED = 50
WARNING = "warning:"
"""How a line begins that warns. The command line shows it in colour."""
_WIDTH = 80
_SHOWN = 3
_MARKS = {Action.CREATED: "+", Action.CHANGED: "~", Action.REMOVED: "-", Action.UNCHANGED: "="}


class DifferenceAnswer(Answer, frozen=True, kw_only=True):
    """An option as it is and as it will be; null: its default."""

    name: str
    before: Any
    after: Any


class TimesAnswer(Answer, frozen=True, kw_only=True):
    """How many times appear, vanish and move up to a time, and the first of them."""

    until: Time
    appearing: int
    vanishing: int
    moving: int
    appear: list[Time]
    vanish: list[Time]
    move: list[tuple[Time, Time]]


class PlanItemAnswer(Answer, frozen=True, kw_only=True):
    """What happens to one schedule, template or calendar. `kept` are edits by hand that stay, though the file says
    otherwise. `times` is null from the hundred and first change on. `skips` are times that were due today and have no
    run any more; `immediate` says whether something runs as soon as this is applied."""

    what: str
    name: str
    action: Action
    differences: list[DifferenceAnswer]
    kept: list[DifferenceAnswer]
    times: TimesAnswer | None
    skips: list[Time]
    immediate: bool
    note: str


class PlanAnswer(Answer, frozen=True, kw_only=True):
    """What would change, or has. `at` and `token` are for applying exactly this plan."""

    at: Time
    token: str
    created: int
    changed: int
    removed: int
    unchanged: int
    items: list[PlanItemAnswer]


def answer(plan: Plan) -> PlanAnswer:
    told = [each for each in plan.items if _is_told(each)]
    return PlanAnswer(
        at=plan.at,
        token=plan.token,
        created=plan.count(Action.CREATED),
        changed=plan.count(Action.CHANGED),
        removed=plan.count(Action.REMOVED),
        unchanged=plan.count(Action.UNCHANGED),
        items=[_item(plan, each, detailed=at < IN_DETAIL) for at, each in enumerate(told)],
    )


def _is_told(item: Item[Any]) -> bool:
    return item.action is not Action.UNCHANGED or bool(item.kept or item.note)


def _item(plan: Plan, item: Item[Any], *, detailed: bool) -> PlanItemAnswer:
    is_schedule = _is_schedule(item)
    times = plan.times(item) if is_schedule and detailed and item.differences else None
    return shaped(
        PlanItemAnswer,
        item,
        what=_what(item),
        times=None if times is None else _times(times),
        skips=list(plan.skipped_today(item)) if times is not None else [],
        immediate=is_schedule and plan.runs_now(item),
    )


def _is_schedule(item: Item[Any]) -> bool:
    return _what(item) == "schedule"


def _what(item: Item[Any]) -> str:
    match item.new or item.old:
        case Template():
            return "template"
        case Calendar():
            return "calendar"
        case _:
            return "schedule"


def _times(times: TimeChanges) -> TimesAnswer:
    return TimesAnswer(
        until=times.until,
        appearing=len(times.appear),
        vanishing=len(times.vanish),
        moving=len(times.move),
        appear=list(times.appear[:LISTED]),
        vanish=list(times.vanish[:LISTED]),
        move=list(times.move[:LISTED]),
    )


def lines(plan: Plan, *, prune: bool, most: int | None = 40) -> Iterator[str]:
    """The changes, at most so many schedules and templates in full."""
    told = [each for each in plan.items if _is_told(each)]
    for item in islice(told, most):
        yield from _of_item(plan, item, prune)
    if most is not None and len(told) > most:
        yield f"… and {len(told) - most:,} more (--all shows them)"


def summary(plan: Plan) -> str:
    return "\n".join(wrap(_summary(plan), _WIDTH))


def _summary(plan: Plan) -> str:
    counts = [f"{plan.count(each):,} {each}" for each in Action if plan.count(each)]
    kept = f"; {len(plan.kept):,} with edits by hand, which are kept" if plan.kept else ""
    changes = plan.changes
    if not changes:
        return f"No change: {plan.count(Action.UNCHANGED):,} are as declared{kept}."
    runs = [each.name for each in islice(changes, IN_DETAIL) if _is_schedule(each) and plan.runs_now(each)]
    now = f"Runs now: {', '.join(runs)}." if runs else "Nothing runs now."
    return f"{', '.join(counts)}{kept}. {now}"


def _of_item(plan: Plan, item: Item[Any], prune: bool) -> Iterator[str]:
    what = "" if _is_schedule(item) else f"{_what(item)} "
    yield f"{_MARKS[item.action]} {what}{item.name}: {_told_action(item, prune)}"
    if item.action is Action.CREATED:
        said = ", ".join(f"{each.name}: {_shown(each.after)}" for each in item.differences)
        yield from _wrapped(said)
    elif item.action is Action.CHANGED:
        for each in item.differences:
            yield from _wrapped(f"{each.name}: {_shown_change(each.before, each.after)}")
    if _is_schedule(item) and item.differences:
        yield from _of_times(plan, item)
    for each in item.kept:
        yield from _wrapped(
            f"kept: {each.name} is {_shown(each.before)} by hand, the file says {_shown(each.after)}"
            " (--force overwrites it)"
        )


def _told_action(item: Item[Any], prune: bool) -> str:
    if item.note:
        return f"not created, {item.note}"
    if item.action is not Action.REMOVED:
        return item.action
    if item.differences:
        return "no longer in the file: it is paused"
    is_at_rest = prune or not _is_schedule(item)
    return "no longer in the file: it stays as it is" + ("" if is_at_rest else " (--prune pauses it)")


def _of_times(plan: Plan, item: Item[Schedule]) -> Iterator[str]:
    times, schedule = plan.times(item), item.new or item.old
    assert schedule is not None
    clock = _Clock(schedule)
    is_all = times.until == plan.at + AHEAD
    within = f"within {AHEAD.days} days" if is_all else f"until {clock.reading(times.until)}"
    told = [
        f"{within} {counted(count, *words)}: {_listed(shown, count)} ({clock.zone})"
        for count, shown, words in (
            (len(times.appear), map(clock.reading, times.appear[:_SHOWN]), ("time appears", "times appear")),
            (len(times.vanish), map(clock.reading, times.vanish[:_SHOWN]), ("time vanishes", "times vanish")),
            (len(times.move), map(clock.move, times.move[:_SHOWN]), ("time moves", "times move")),
        )
        if count
    ]
    for each in told or [f"{within} no time appears, vanishes or moves"]:
        yield from _wrapped(each)
    yield f"    runs now: {'yes, a time that was put off is due' if plan.runs_now(item) else 'no'}"
    skips = plan.skipped_today(item)
    if skips:
        due = _listed(map(clock.reading, skips[:_SHOWN]), len(skips))
        upcoming = schedule.next_run_at if schedule.enabled else None
        then = f"; the next time is {clock.reading(upcoming)}" if upcoming else ""
        yield from _wrapped(f"{WARNING} it was due today, at {due}, and would not run then{then}")


def _listed(shown: Iterable[str], count: int) -> str:
    texts = list(shown)
    return ", ".join(texts) + (", …" if count > len(texts) else "")


class _Clock:
    """TimeChanges as the clock of a schedule shows them."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.zone = schedule.timezone

    def reading(self, at: datetime) -> str:
        local = recurrence.local(self.schedule.timing, at)
        return f"{local:%a %d %b} {self._time(local)}"

    def move(self, pair: tuple[datetime, datetime]) -> str:
        before, after = (recurrence.local(self.schedule.timing, at) for at in pair)
        day = "" if before.date() == after.date() else f"{after:%a %d %b} "
        return f"{self.reading(pair[0])} → {day}{self._time(after)}"

    @staticmethod
    def _time(local: datetime) -> str:
        return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"


def _shown(value: Any) -> str:
    if value is None:
        return "default"
    value = redaction.shown(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "; ".join(" ".join(line.split()) for line in text.strip().splitlines())
    return text if len(text) <= 200 else f"{text[:199]}…"


def _shown_change(before: Any, after: Any) -> str:
    """Both values; if they are long lists, only what is new and what is gone."""
    both = isinstance(before, list) and isinstance(after, list)
    if not both or len(before) + len(after) <= 4 * _SHOWN:
        return f"{_shown(before)} → {_shown(after)}"
    new, gone = [each for each in after if each not in before], [each for each in before if each not in after]
    parts = [
        f"{len(found):,} {word}: {_listed(map(str, found[:_SHOWN]), len(found))}"
        for found, word in ((new, "new"), (gone, "gone"))
        if found
    ]
    return "; ".join(parts) or "in another order"


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="      ")
