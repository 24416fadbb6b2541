"""Commands that look ahead: how much is coming, and taking the peaks out of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from ...words import counted
from ..options import DURATION, TIME
from ..session import Session, command
from .plans import check_can_ask, confirmed


@command(
    examples=[
        "rota forecast",
        "rota forecast --from 2026-12-01 --to 2026-12-08 --by day",
        "rota forecast --json | jq '.busiest[0]'",
    ]
)
@click.option("--from", "start", type=TIME, help="From when on. [default: now]")
@click.option("--to", "end", type=TIME, help="Until when, at most 31 days. [default: 24 hours later]")
@click.option(
    "--by",
    type=click.Choice(["minute", "hour", "day"]),
    default="hour",
    help="How long the lines are. [default: hour]",
)
def forecast(session: Session, start: datetime | None, end: datetime | None, by: str) -> None:
    """How many runs are coming, how much work they are, and in which minutes they meet: from the schedules themselves,
    and from how long their last runs took. A schedule that comes after others has no times of its own and is left
    out."""
    from ... import forecasts

    async def ask(queue: Any) -> Any:
        return await queue.forecast(session.screen.local(start or await queue.now()), end, by)

    made = session.run(ask)
    if session.as_json:
        return session.screen.json(forecasts.answer(made))
    for line in forecasts.lines(made, session.screen.local):
        session.screen.prose(line, hang=6)
    return None


@command(
    examples=[
        "rota spread --dry-run",
        "rota spread 2026-12-01T09:00 --over 10m",
        "rota spread 2026-12-01T09:00 --over 10m --yes",
    ]
)
@click.argument("at", type=TIME, required=False)
@click.option("--over", type=DURATION, help="Over how long. [default: what helps enough]")
@click.option("--dry-run", is_flag=True, help="Only say what would move.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def spread(session: Session, at: datetime | None, over: timedelta | None, dry_run: bool, yes: bool) -> None:
    """Spread the schedules that fire in one minute, the busiest of the next 24 hours unless one is named, over a while.
    Each gets an offset, so that all minutes of the while become equally busy. A schedule that has an offset or a jitter
    is left alone, and one that fires again within the while."""
    from ... import forecasts

    if not dry_run:
        check_can_ask(yes)
    found = session.run(lambda queue: queue.spread(at, over, dry_run=True))
    if not session.as_json:
        for line in forecasts.spread_lines(found, session.screen.local):
            session.screen.prose(line, hang=6)
    if not dry_run:
        if not confirmed(f"Spread {counted(found.moving, 'schedule')}?", yes):
            session.screen.remark("nothing was changed")
            raise click.exceptions.Exit(1)
        shown = found
        found = session.run(lambda queue: queue.spread(shown.at, shown.over, token=shown.token))
    if session.as_json:
        session.screen.json(forecasts.spread_answer(found))
    elif not dry_run:
        session.screen.say(f"Spread {counted(found.moving, 'schedule')}.")
