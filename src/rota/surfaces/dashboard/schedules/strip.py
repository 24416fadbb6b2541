"""The strip: one bar for each expected time, oldest left.

Outcome is shape and colour: completed solid, failed solid with a cut, skipped a hollow low box, cancelled a flat line,
expected an outline. Height is how long it took against the schedule's interval, by the fifth root: twice as long is a
seventh taller, a second of an hour can be seen, and a bar that fills its slot is about to overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from ....domain.model import Run, RunStatus
from ....domain.schedule.why import Why
from ....engine.queries import Occurrence
from ...words import counted
from ..texts import REASONS, reason, took

_LEAST_INTERVAL = timedelta(seconds=1)
_LOW = 3.0
_CUT = 11.0
"""As low as a bar may be; one that failed must have room for its cut."""


class StripBar(NamedTuple):
    """One expected time in the wide strip. `name` is what it is called, after its time; `path` is its outline,
    `cut` the mark of a failure."""

    at: datetime
    status: str
    name: str
    words: str
    x: int
    path: str
    cut: str


def small_strip(runs: Sequence[Run]) -> Markup:
    """The last runs of a schedule, in a list: one path for each outcome, since a page has thousands of bars."""
    if not runs:
        return Markup("")
    step, height = 7, 28
    interval = usual_interval(runs)
    paths: dict[str, list[str]] = {}
    for number, run in enumerate(runs):
        x, status = number * step, str(run.status)
        tall = _height(run, interval, height)
        paths.setdefault(status, []).append(_outline(status, x, step - 2, height, tall))
        if run.status is RunStatus.FAILED:
            paths.setdefault("cut", []).append(_cut(x, step - 2, height))
    drawn = Markup("").join(
        Markup('<path class="s-{}" d="{}"/>').format(status, "".join(parts))
        for status, parts in paths.items()
    )
    return Markup('<svg class="strip" width="{}" height="{}" role="img" aria-label="{}">{}</svg>').format(
        len(runs) * step - 2, height, _summary(runs), drawn
    )


def _summary(runs: Sequence[Run]) -> str:
    """`last 30: 28 completed, 2 failed`."""
    numbers = Counter(str(run.status) for run in runs)
    return f"last {len(runs)}: " + ", ".join(f"{number} {status}" for status, number in numbers.most_common())


def bars(past: Sequence[Why], coming: Sequence[Occurrence]) -> tuple[list[StripBar], int, int]:
    """The bars of a schedule's page, where `now` is, and how wide it all is."""
    step, height = 11, 60
    runs = [why.run for why in past if why.run is not None]
    interval = usual_interval(runs)
    found = []
    for number, (why, run) in enumerate(zip(past, runs, strict=True)):
        status, x = str(run.status), number * step
        found.append(
            StripBar(
                at=run.scheduled_at,
                status=status,
                name=_name(run),
                words=reason(why),
                x=x,
                path=_outline(status, x, step - 2, height, _height(run, interval, height)),
                cut=_cut(x, step - 2, height) if run.status is RunStatus.FAILED else "",
            )
        )
    now = len(found) * step + 4
    for number, each in enumerate(coming):
        x = now + 6 + number * step
        about = "expected" + (f", {each.dst}" if each.dst else "")
        found.append(
            StripBar(
                each.at, "expected", about, about, x, _outline("expected", x, step - 2, height, 10.0), ""
            )
        )
    return found, now, now + 6 + len(coming) * step


def _name(run: Run) -> str:
    """The words that a screen reader says after the time: `skipped: the run before was still going`."""
    reason = f": {REASONS[run.reason]}" if run.reason else ""
    many = f", {counted(run.count, 'time')}" if run.count > 1 else ""
    by_hand = ", by hand" if run.trigger == "manual" else ""
    length = (
        f", took {took(run.completed_at - run.started_at)}" if run.completed_at and run.started_at else ""
    )
    return f"{run.status}{reason}{many}{by_hand}{length}"


def usual_interval(runs: Sequence[Run]) -> timedelta:
    times = sorted(run.scheduled_at for run in runs)
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    return max(gaps[len(gaps) // 2], _LEAST_INTERVAL) if gaps else timedelta(days=1)


def _height(run: Run, interval: timedelta, height: int) -> float:
    if run.started_at is None or run.completed_at is None:
        return height * 0.45
    length = max(run.completed_at - run.started_at, timedelta(0))
    least = _CUT if run.status is RunStatus.FAILED else _LOW
    return max(least, float(min(1.0, length / interval) ** 0.2) * (height - 2))


def _outline(status: str, x: int, width: int, height: int, tall: float) -> str:
    match status:
        case "skipped" | "buffered":
            return f"M{x}.5 {height - 6}.5h{width - 1}v5h-{width - 1}z"
        case "cancelled":
            return f"M{x} {height - 1}h{width}"
        case "expected":
            return f"M{x}.5 {height - 9}.5h{width - 1}v9h-{width - 1}z"
    return f"M{x} {height - tall:.3g}h{width}v{tall:.3g}h-{width}z"


def _cut(x: int, width: int, height: int) -> str:
    return f"M{x - 1} {height - 3}l{width + 2} -5"
