"""A backfill of a schedule: first which days, then how many times that would be, then the deed; and its end."""

from __future__ import annotations

from datetime import datetime, timedelta

from fastapi import Response

from ....domain.errors import Refused
from ....domain.model import Backfill, Schedule
from ...words import counted
from ..forms import clock_of, moment, typed
from ..visit import FormField, Visit

HOW = {"buffer_all": "one after the other", "allow": "all at once"}


async def ask(visit: Visit) -> Response:
    """The question before a backfill: without days, which; with them, how many times it would be."""
    schedule = await visit.queue.get_schedule(visit.part("key"))
    if not visit.moment("start") or not visit.moment("end"):
        return await _which(visit, schedule)
    try:
        found = await _backfill(visit, schedule, is_dry=True)
    except Refused as refused:
        return await _which(visit, schedule, str(refused))
    if not found.started:
        passed = counted(found.total, "time is", "times are") + " in this stretch, and each has run."
        return await _which(visit, schedule, passed if found.total else "No time is in this stretch.")
    return visit.ask(
        f"Backfill {schedule.key}",
        _consequence(found, visit.asked("overlap_policy") or "buffer_all"),
        back=visit.schedule_url(schedule),
        verb=f"Run {counted(found.started, 'time')}",
        hidden=[
            ("start", visit.moment("start")),
            ("end", visit.moment("end")),
            ("overlap_policy", visit.asked("overlap_policy") or ""),
        ],
    )


def _consequence(found: Backfill, policy: str) -> str:
    ran = (
        f" {found.passed:,} of {found.total:,} have run already, and are left alone." if found.passed else ""
    )
    tasks = counted(found.started, "task starts", "tasks start")
    return f"{tasks}, {HOW.get(policy, policy)}, beside its own times.{ran} It can be cancelled on the way."


async def _which(visit: Visit, schedule: Schedule, problem: str | None = None) -> Response:
    zone = clock_of(schedule, await visit.queue.now())
    now = (await visit.queue.now()).astimezone(zone)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    usual = {"start": typed(today - timedelta(days=1)), "end": typed(today - timedelta(minutes=1))}
    given = {name: visit.moment(name) or text for name, text in usual.items()}
    return visit.ask(
        f"Backfill {schedule.key}",
        "Times of the past that have not run are run after all. Those that have run are left alone.",
        back=visit.schedule_url(schedule),
        verb="Count them first",
        method="get",
        fields=[
            FormField("start", f"From, on the clock of {schedule.timezone}", given["start"], "moment"),
            FormField("end", "Up to", given["end"], "moment"),
            FormField("overlap_policy", "How", visit.asked("overlap_policy") or "", "select", options=HOW),
        ],
        problem=problem,
    )


async def _backfill(visit: Visit, schedule: Schedule, *, is_dry: bool) -> Backfill:
    asked = visit.asked if is_dry else visit.given
    zone = clock_of(schedule, await visit.queue.now())

    def end_of(name: str) -> datetime:
        return moment(name, visit.moment(name), zone)

    policy = asked("overlap_policy") or "buffer_all"
    return await visit.queue.backfill(
        schedule.key, end_of("start"), end_of("end"), overlap_policy=policy, dry_run=is_dry
    )


async def act(visit: Visit) -> Response:
    schedule = await visit.queue.get_schedule(visit.part("key"))
    await _backfill(visit, schedule, is_dry=False)
    return visit.go(visit.schedule_url(schedule, said="backfill"))


async def ask_to_cancel(visit: Visit) -> Response:
    schedule = await visit.queue.get_schedule(visit.part("key"))
    left = 0 if schedule.backfill is None else schedule.backfill.left
    return visit.ask(
        f"Cancel the backfill of {schedule.key}",
        f"{counted(left, 'time that was', 'times that were')} still to be run will not be. What was started goes on.",
        back=visit.schedule_url(schedule),
        verb="Cancel the backfill",
    )


async def cancel(visit: Visit) -> Response:
    schedule = await visit.queue.get_schedule(visit.part("key"))
    await visit.queue.cancel_backfill(schedule.key)
    return visit.go(visit.schedule_url(schedule, said="backfill-cancelled"))
