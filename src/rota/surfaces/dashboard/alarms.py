"""Alarms: what is wrong now, what was, and which rules of tags say so."""

from __future__ import annotations

from datetime import timedelta

from fastapi import Response

from ...domain.model import AlarmRules
from ..durations import long_text
from .visit import Visit

LIMIT = 100
RULES = {
    "late": "late",
    "no_success": "no success",
    "failures": "failing",
    "duration": "takes too long",
    "ending": "comes to its end",
    "overdue": "overdue",
    "missing_row": "missing from the ledger",
    "stuck_run": "stuck",
    "scheduler_silent": "no scheduler",
    "lost_leases": "lost leases",
    "not_expired": "not expired",
    "waiting_tasks": "tasks wait",
}
"""Each rule in a word or two."""


async def show(visit: Visit) -> Response:
    over = visit.asked("over") is not None
    schedule = visit.asked("schedule")
    page = await visit.queue.alarms(schedule=schedule, over=over, limit=LIMIT, cursor=visit.asked("cursor"))
    sees_fleet = visit.queue.caller.is_of_all_tenants and schedule is None
    return visit.show(
        "alarms.html",
        page=page,
        fleet=await visit.queue.alarms(fleet=True, over=over, limit=LIMIT) if sees_fleet else [],
        rules=[(tag, _words(each)) for tag, each in sorted((await visit.queue.alarm_rules()).items())],
        names=RULES,
        over=over,
        now=await visit.queue.now(),
    )


def _words(rules: AlarmRules) -> str:
    """`late by 5 minutes, 3 failures in a row`."""
    said = []
    for name, words in (
        ("alarm_late", "late by"),
        ("alarm_no_success", "no success for"),
        ("alarm_duration", "a run longer than"),
        ("alarm_ending", "no time left within"),
    ):
        length: timedelta | None = getattr(rules, name)
        if length is not None:
            said.append(f"{words} {long_text(length)}" if length else f"{words} any time: off")
    if rules.alarm_failures is not None:
        said.append(f"{rules.alarm_failures} failures in a row")
    return ", ".join(said)
