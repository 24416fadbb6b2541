"""The list of schedules, and what can be done to many of them at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from importlib.util import find_spec
from typing import Any

from fastapi import Response

from ....domain.errors import Invalid, Refused
from ....domain.model import Role, Schedule, ScheduleStatus
from ....engine.queries.overview import AT_MOST, LATE, Overview
from ....stores.queries import NEVER
from ... import files
from ...python.client import Page
from ...words import counted
from ..forms import moment
from ..overview import seen_of
from ..texts import kind_of, tags_of
from ..visit import HEADERS, FormField, Visit
from .strip import small_strip

LIMIT = 50
RUNS = 30
FILTERS = ("text", "kind", "tag", "timezone")
SORTS = {"newest": "newest first", "name": "by name", "next": "by next time", "outcome": "failed first"}
WORDS = {
    "next": "by when they are due; those with no time to come are last",
    "outcome": "whose last run failed, in the last day, first; then the others by name",
}
STATES = ("active", "paused", "draft", "completed")
ACTIONS = {"pause": "paused", "resume": "resumed", "trigger": "triggered", "delete": "deleted"}
"""The actions, and the word for one that is done."""
_BACKFILLED = {
    "backfill": "The backfill has begun. How far it is stands here.",
    "backfill-cancelled": "The backfill was cancelled. What was started goes on.",
}
_HOUR = timedelta(hours=1)


async def show(visit: Visit) -> Response:
    seen = await seen_of(visit)
    page, words, first = await _found(visit, None if seen is None else seen.found)
    now = await visit.queue.now()
    runs = await visit.queue.last_runs(page, limit=RUNS)
    return visit.show(
        "schedules.html",
        page=page,
        now=now,
        strips={id: small_strip(rows) for id, rows in runs.items()},
        failing={id: _failing([str(run.status) for run in rows]) for id, rows in runs.items()},
        late={schedule.id for schedule in page if is_late(schedule, now)},
        total=await visit.queue.open_schedules(),
        numbers={}
        if seen is None
        else {"late": len(seen.found.late), "failing": len(_failing_ones(seen.found))},
        most=AT_MOST,
        states=STATES,
        words=words,
        first=first,
        sorts=SORTS,
        said=done_words(visit),
        is_filtered=any(visit.asked(name) for name in (*FILTERS, "state")),
    )


async def _found(visit: Visit, known: Overview | None) -> tuple[Page[Schedule], str, int | None]:
    """The schedules that the query asks for; in words, which these are; and how many schedules were looked through, if
    not all."""
    state, sort = visit.asked("state"), visit.asked("sort") or "newest"
    if sort not in SORTS:
        raise Invalid("sort", f"{sort!r:.60} is not known", f"accepted are {', '.join(SORTS)}")
    filters: dict[str, Any] = {name: visit.asked(name) for name in FILTERS}
    if state in ("late", "failing"):
        found, words = await _of_overview(visit, state)
        return Page(_sorted([each for each in found if _matches(each, filters)], sort)), words, None
    if state is not None and state not in STATES:
        raise Invalid(
            "state", f"{state!r:.60} is not known", f"accepted are {', '.join(STATES)}, late and failing"
        )
    if state is not None:
        filters["status"] = state
    order, cursor = "name" if sort == "outcome" else sort, visit.asked("cursor")
    page, first = await visit.queue.sorted_schedules(
        order, limit=LIMIT, cursor=cursor, among_all=visit.asked("among") == "all", **filters
    )
    if sort == "outcome":
        await _failed_first(visit, known or await visit.queue.overview(), page, filters)
    return page, WORDS.get(sort, ""), first


async def _failed_first(
    visit: Visit, known: Overview, page: Page[Schedule], filters: Mapping[str, str | None]
) -> None:
    """Put schedules whose last run failed before the others, on the first page. They are among those that the overview
    knows: only the ledger of a schedule says how its last run went, and to read every ledger costs too much."""
    status = filters.get("status")
    chosen = [
        each for each in _failing_ones(known) if _matches(each, filters) and status in (None, each.status)
    ]
    runs = await visit.queue.last_runs(chosen, limit=RUNS)
    failed = [each for each in chosen if _failing([str(run.status) for run in runs[each.id]])]
    ids = {each.id for each in failed}
    others = [each for each in page if each.id not in ids]
    page[:] = others if visit.asked("cursor") else [*failed, *others]


def _sorted(found: list[Schedule], sort: str) -> list[Schedule]:
    """The schedules in the order that the store would give them; by outcome they are in order already."""
    if sort == "name":
        return sorted(found, key=lambda each: each.key)
    if sort == "next":
        return sorted(found, key=lambda each: (each.due_at or NEVER, each.id))
    return found


async def _of_overview(visit: Visit, state: str | None) -> tuple[list[Schedule], str]:
    """Schedules by what the overview knows of them."""
    known = await visit.queue.overview()
    if state == "late":
        return known.late, "due more than 5 seconds ago and not started"
    return _failing_ones(known), "with a task that failed in the last day"


def _failing_ones(known: Overview) -> list[Schedule]:
    ids = dict.fromkeys(task.schedule_id for task in known.failed if task.schedule_id in known.schedules)
    return [known.schedules[id] for id in ids if id]


def _matches(schedule: Schedule, filters: Mapping[str, str | None]) -> bool:
    """Whether the store would find the schedule by these filters."""
    text = (filters["text"] or "").casefold()
    told = (schedule.key, schedule.description, kind_of(schedule), *tags_of(schedule))
    return (
        any(text in each.casefold() for each in told)
        and filters["kind"] in (None, kind_of(schedule))
        and (filters["tag"] is None or filters["tag"] in tags_of(schedule))
        and filters["timezone"] in (None, schedule.timezone)
    )


def is_late(schedule: Schedule, now: datetime) -> bool:
    return schedule.enabled and schedule.due_at is not None and schedule.due_at <= now - LATE


def _failing(statuses: list[str]) -> int:
    """How many of the last runs failed, if the latest that ended is one of them."""
    ended = [status for status in statuses if status in ("completed", "failed")]
    return ended.count("failed") if ended and ended[-1] == "failed" else 0


async def act(visit: Visit) -> Response:
    """First the question, with its consequence in numbers; then, once it is confirmed, the deed."""
    action, keys = visit.given("action") or "", visit.all_given("key")
    if action not in (*ACTIONS, "export"):
        raise Invalid(
            "action", f"{action!r:.60} is not known", f"accepted are {', '.join(ACTIONS)} and export"
        )
    if action == "delete":
        visit.queue.caller.check_role(Role.ADMIN)
    if not keys:
        return visit.go(visit.url("schedules", said="none"))
    if action == "export":
        return await _export(visit, keys)
    if visit.given("confirmed") is None:
        return await _ask(visit, action, keys)
    try:
        until = pause_end(visit, UTC)
    except Invalid as wrong:
        return await _ask(visit, action, keys, str(wrong))
    done, refusals = 0, []
    for key in dict.fromkeys(keys):
        try:
            await deed(visit, action, key, until)
            done += 1
        except Refused as refused:
            refusals.append((key, str(refused)))
    if refusals:
        return visit.show("refused.html", done=done, verb=ACTIONS[action], refusals=refusals)
    return visit.go(visit.url("schedules", said=action, number=done))


async def _export(visit: Visit, keys: Sequence[str]) -> Response:
    """The selected, as a file that `rota apply` takes."""
    format = "yaml" if find_spec("yaml") is not None else "json"
    text = files.write(await visit.queue.export(list(dict.fromkeys(keys))), format)
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="schedules.{format}"'}
    return Response(text, headers=headers, media_type=f"application/{format}")


def pause_end(visit: Visit, zone: tzinfo | None) -> datetime | None:
    """When the pause that a form asks for ends by itself."""
    text = visit.moment("until")
    return moment("until", text, zone) if text else None


def deed(visit: Visit, action: str, key: str, until: datetime | None = None) -> Awaitable[Any]:
    queue, note = visit.queue, visit.given("note")
    deeds: dict[str, Callable[[], Awaitable[Any]]] = {
        "pause": lambda: queue.pause_schedule(key, note, until=until),
        "resume": lambda: queue.resume_schedule(key),
        "trigger": lambda: queue.trigger_schedule(key),
        "delete": lambda: queue.delete_schedule(key),
    }
    return deeds[action]()


async def _ask(visit: Visit, action: str, keys: list[str], problem: str | None = None) -> Response:
    now = await visit.queue.now()
    found = [await visit.queue.get_schedule(key) for key in dict.fromkeys(keys)]
    return visit.ask(
        f"{action.capitalize()} {counted(len(found), 'schedule')}",
        _consequence(action, found, now),
        back=visit.url("schedules"),
        hidden=[("action", action), *(("key", schedule.key) for schedule in found)],
        fields=asked_for(visit, action, "UTC"),
        problem=problem,
        listed=[schedule.key for schedule in found],
        is_danger=action == "delete",
    )


def asked_for(visit: Visit, action: str, zone: str) -> list[FormField]:
    """The fields that the question before an action has: of a pause, why and until when."""
    if action != "pause":
        return []
    until = f"Until, on the clock of {zone} (empty: until someone resumes it)"
    return [
        FormField("note", "Why (others will read it)", visit.given("note") or ""),
        FormField("until", until, visit.moment("until"), "moment"),
    ]


def _consequence(action: str, found: list[Schedule], now: datetime) -> str:
    active = [schedule for schedule in found if schedule.enabled]
    soon = [each for each in active if each.next_run_at and each.next_run_at <= now + _HOUR]
    match action:
        case "pause":
            due = (
                f"{len(soon)} of them {'is' if len(soon) == 1 else 'are'} due within the hour, and will not run."
                if soon
                else "None of them is due within the hour."
            )
            return (
                due
                + " What runs now goes on. Resume fires from then on; what was due meanwhile is not made up for."
            )
        case "resume":
            stopped = [each for each in found if each.status is not ScheduleStatus.ACTIVE]
            return f"{len(stopped)} of them will fire again, from their first time after now. Nothing is made up for."
        case "delete":
            number = counted(len(active), "of them is active", "of them are active")
            return (
                f"{number}, and will not fire again. Their history stays,"
                " and `rota schedule restore` brings them back."
            )
    return f"{counted(len(found), 'task')} will be started now, beside the schedules' own times."


def done_words(visit: Visit) -> str | None:
    """The sentence for a form that has done something, from the address that it led to."""
    said, number = visit.asked("said"), visit.asked("number") or ""
    if said == "none":
        return "No schedule was selected, so nothing was done."
    if said == "edit":
        return "The new version is saved. Nothing ran because of it."
    if said in _BACKFILLED:
        return _BACKFILLED[said]
    if said not in ACTIONS:
        return None
    if not (number.isdecimal() and len(number) < 7):
        return f"It was {ACTIONS[said]}."
    return f"{counted(int(number), 'schedule')} {ACTIONS[said]}."
