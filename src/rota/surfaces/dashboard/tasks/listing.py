"""The lists of tasks and workflows, and what can be done to many of them at once: to those that are selected, or to all
that match the filters."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import Response

from ....domain.errors import Invalid, Refused
from ....domain.model import TaskStatus
from ....domain.task import REPLAYABLE
from ...durations import parsed
from ...words import counted
from ..texts import up_to
from ..visit import FormField, Visit
from .task import ACTIONS

LIMIT = 50
COUNTED = 10_000
FURTHER = (
    ("a day", "1d", timedelta(days=1)),
    ("a week", "7d", timedelta(days=7)),
    ("30 days", "30d", timedelta(days=30)),
    ("to the first", "36500d", timedelta(days=36500)),
)
"""How far back one may look: in words, in the address. The further, the longer it takes."""

FILTERS = ("status", "kind", "queue", "schedule", "tag")


async def workflows(visit: Visit) -> Response:
    return await show(visit, workflow=True)


async def show(visit: Visit, **only: Any) -> Response:
    filters: dict[str, Any] = {name: visit.asked(name) for name in FILTERS}
    asked = visit.asked("back")
    given = None if asked is None else parsed("back", asked)
    page, back = await visit.queue.recent(
        back=given, limit=LIMIT, cursor=visit.asked("cursor"), **only, **filters
    )
    return visit.show(
        "tasks.html",
        page=page,
        back=back,
        further=[(words, text) for words, text, reach in FURTHER if back and reach > back],
        now=await visit.queue.now(),
        statuses=[str(each) for each in TaskStatus],
        said=_said(visit),
        is_filtered=any(filters.values()),
        only_workflows=bool(only),
        nav="workflows" if only else "tasks",
    )


async def act(visit: Visit) -> Response:
    """First the question with the number, then the deed."""
    action = visit.given("action") or ""
    if action.removesuffix("-all") not in ACTIONS:
        raise Invalid("action", f"{action!r:.60} is not known", f"accepted are {', '.join(ACTIONS)}")
    if action.endswith("-all"):
        return await _all_that_match(visit, action.removesuffix("-all"))
    return await _selected(visit, action, list(dict.fromkeys(visit.all_given("id"))))


async def _selected(visit: Visit, action: str, ids: list[str]) -> Response:
    if not ids:
        return visit.go(visit.url("tasks", said="none"))
    if visit.given("confirmed") is None:
        found = [await visit.queue.get(id) for id in ids]
        can = [each for each in found if (each.is_live if action == "cancel" else each.status in REPLAYABLE)]
        rest = len(found) - len(can)
        words = f"{len(can)} of them can be; {rest} {'is' if rest == 1 else 'are'} left as they are."
        return _ask(visit, action, counted(len(found), "task"), words, [("id", id) for id in ids])
    done = 0
    for id in ids:
        try:
            await (
                visit.queue.cancel(id, visit.given("reason") or "")
                if action == "cancel"
                else visit.queue.replay(id)
            )
            done += 1
        except Refused:  # the question said that those stay as they are
            continue
    return visit.go(visit.url("tasks", said=action, number=done))


async def _all_that_match(visit: Visit, action: str) -> Response:
    filters: dict[str, Any] = {name: visit.given(name) for name in FILTERS if visit.given(name)}
    if visit.given("workflow"):
        filters["workflow"] = True
    if visit.given("confirmed") is None:
        number = await _number(visit, action, filters)
        state = {"cancel": "that have not ended", "replay": "that failed"}[action]
        if "status" in filters:
            state = f"that are {filters['status']}"
        others = ", ".join(
            f"{name} {filters[name]}" for name in FILTERS if name in filters and name != "status"
        )
        words = f"All {state}{' with ' + others if others else ''}, when it is done: also those that come until then."
        hidden = [(name, str(value)) for name, value in filters.items()]
        tasks = f"{up_to(number, COUNTED)} task{'' if number == 1 else 's'}"
        return _ask(visit, f"{action}-all", tasks, words, hidden)
    if action == "cancel":
        done = await visit.queue.cancel_many(reason=visit.given("reason") or "", **filters)
    else:
        done = await visit.queue.replay_many(**filters)
    return visit.go(visit.url("tasks", said=action, number=done))


async def _number(visit: Visit, action: str, filters: dict[str, Any]) -> int:
    """How many it would be, counted no further than `COUNTED`."""
    states = [filters["status"]] if "status" in filters else ["failed"]
    if action == "cancel" and "status" not in filters:
        states = ["pending", "running"]
    rest = {name: value for name, value in filters.items() if name != "status"}
    number = 0
    for status in states:
        number += await visit.queue.count(at_most=COUNTED, status=status, **rest)
    return min(number, COUNTED)


def _ask(visit: Visit, action: str, tasks: str, words: str, hidden: list[tuple[str, str]]) -> Response:
    return visit.ask(
        f"{action.removesuffix('-all').capitalize()} {tasks}",
        words,
        back=visit.url("tasks"),
        hidden=[("action", action), *hidden],
        fields=[FormField("reason", "Why")] if action.startswith("cancel") else [],
    )


def _said(visit: Visit) -> str | None:
    said, number = visit.asked("said"), visit.asked("number") or ""
    if said == "none":
        return "No task was selected, so nothing was done."
    if said not in ACTIONS or not (number.isdecimal() and len(number) < 9):
        return None
    done = {"cancel": "cancelled, or asked to stop", "replay": "run again"}[said]
    return f"{counted(int(number), 'task')} {done}."
