"""A schedule: its strip, its next times, its ledger, its versions; and what can be done to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from fastapi import Response

from ....domain.errors import Invalid, NotFound, Refused
from ....domain.model import Event, Role, Run, RunReason, RunStatus, RunTrigger, Schedule, TemplateTarget
from ....domain.recurrence import After
from ....domain.schedule import definition
from ....domain.schedule.why import Why
from ....domain.serving import handlers_of, living, nobody_handles
from ...redaction import restored
from ...versions import changed_fields, deleted_because
from ...words import counted
from ..alarms import RULES
from ..forms import clock_of, json_of, moment
from ..texts import pretty, took
from ..visit import FormField, Visit
from .listing import ACTIONS, asked_for, deed, done_words, is_late, pause_end
from .strip import bars, usual_interval

PAST = 60
COMING = 20
LISTED = 10
LIMIT = 50
SETTINGS = {RunReason.OVERLAP: "overlap", RunReason.MISSED: "missed"}
"""The question of the editor that would have changed what became of a time."""
_BOOKS = ("next_run_at", "last_run_at", "last_task_id", "run_count")
"""The fields that the scheduler writes: no difference that anyone made."""
_KEPT = ("status", "pause_note", "completed_reason", "key", *_BOOKS)
"""The fields that stay when a version is put back."""


async def show(visit: Visit) -> Response:
    queue = visit.queue
    schedule = await queue.get_schedule(visit.part("key"), deleted=True)
    is_deleted = schedule.deleted_at is not None
    past = await queue.explained_runs(schedule.id, limit=PAST)
    coming = [] if is_deleted else await queue.preview(schedule.id, COMING)
    now = await queue.now()
    shown, now_at, width = bars(past, coming if schedule.enabled else [])
    chosen = await _chosen(visit, schedule, past)
    ran = [each.run for each in past if each.run is not None]
    return visit.show(
        "schedule.html",
        schedule=schedule,
        now=now,
        is_late=is_late(schedule, now),
        bars=shown,
        now_at=now_at,
        width=width,
        chosen=chosen,
        coming=coming[:LISTED],
        zone=schedule.timezone,
        next_local=(schedule.next_run_at or now).astimezone(clock_of(schedule, now)),
        setting=SETTINGS.get(chosen[1].run.reason)
        if chosen and chosen[1].run and chosen[1].run.reason
        else None,
        interval=took(usual_interval(ran)),
        took=_chart(_lengths(ran)),
        late=_chart(_lateness(ran)),
        target=_target(schedule),
        alarms=await queue.alarms(schedule=schedule.id, limit=LISTED),
        alarm_names=RULES,
        deleted_because=deleted_because(await queue.schedule_history(schedule.id)) if is_deleted else "",
        serves=None if is_deleted else await _who_serves(visit, schedule),
        causes=schedule.timing.schedules if isinstance(schedule.timing, After) else (),
        effects=await _effects(visit, schedule),
        said=done_words(visit),
        tab="now",
    )


async def _chosen(visit: Visit, schedule: Schedule, past: Sequence[Why]) -> tuple[datetime, Why] | None:
    """The time that the address asks about, or else the latest that did not go as planned."""
    asked = visit.asked("at")
    if asked is not None:
        at = moment("at", asked, UTC)
        return at, await visit.queue.why(schedule.id, at)
    usual = (RunStatus.COMPLETED, RunStatus.RUNNING, RunStatus.BUFFERED)
    odd = [each for each in past if each.run is not None and each.run.status not in usual]
    latest = odd[-1:] or list(past[-1:])
    return (latest[0].run.scheduled_at, latest[0]) if latest and latest[0].run is not None else None


class ServedBy(NamedTuple):
    """Who handles what a schedule runs, in words; `is_nobody`: that is a warning."""

    words: str
    is_nobody: bool


class Chart(NamedTuple):
    """A line over the last runs. `points` is for a box of 560 by 72, as high as the longest."""

    points: str
    number: int
    median: str
    longest: str


def _chart(lengths: Sequence[timedelta]) -> Chart | None:
    """The line over these lengths; None, if there are fewer than two."""
    if len(lengths) < 2:
        return None
    top = max(*lengths, timedelta(milliseconds=1))
    step = 560 / (len(lengths) - 1)
    points = " ".join(
        f"{number * step:.0f},{68 - each / top * 64:.0f}" for number, each in enumerate(lengths)
    )
    middle = sorted(lengths)[len(lengths) // 2]
    return Chart(points, len(lengths), took(middle), took(top))


def _lengths(runs: Sequence[Run]) -> list[timedelta]:
    """How long runs took, of those that ran to an end."""
    ran = (RunStatus.COMPLETED, RunStatus.FAILED)
    return [
        run.completed_at - run.started_at
        for run in runs
        if run.completed_at and run.started_at and run.status in ran
    ]


def _lateness(runs: Sequence[Run]) -> list[timedelta]:
    """How long after their times runs began, of those that the schedule started by itself."""
    return [
        max(run.started_at - run.scheduled_at, timedelta(0))
        for run in runs
        if run.started_at and run.trigger is RunTrigger.SCHEDULED
    ]


def _target(schedule: Schedule) -> dict[str, Any]:
    """The facts of its target that are not empty."""
    target = schedule.target
    facts: dict[str, Any] = msgspec.to_builtins(target)
    if isinstance(target, TemplateTarget):
        return facts
    said = {name: value for name, value in facts.items() if value not in (None, "", [], {})}
    return {**said, "tags": ", ".join(target.tags)} if target.tags else said


async def _who_serves(visit: Visit, schedule: Schedule) -> ServedBy | None:
    """How many live nodes handle what it runs; None, if that is not known."""
    target = schedule.target
    if isinstance(target, TemplateTarget):
        return None
    nodes, now = await visit.queue.nodes(dead=True), await visit.queue.now()
    unhandled = nobody_handles(nodes, now, schedule.tenant, target.kind, target.queue)
    if unhandled is not None:
        return ServedBy(unhandled.replace("`", ""), is_nobody=True)
    handlers = handlers_of(living(nodes, now), schedule.tenant, target.kind, target.queue)
    if not handlers:
        return None
    return ServedBy(f"{counted(len(handlers), 'node serves', 'nodes serve')} it", is_nobody=False)


async def _effects(visit: Visit, schedule: Schedule) -> list[Schedule]:
    """The schedules that run when this one's runs end."""
    found = []
    for id in schedule.followers[:LISTED]:
        try:
            found.append(await visit.queue.get_schedule(id))
        except NotFound:  # it was deleted meanwhile
            continue
    return found


async def runs(visit: Visit) -> Response:
    schedule, status = await visit.queue.get_schedule(visit.part("key"), deleted=True), visit.asked("status")
    page = await visit.queue.runs(schedule.id, status=status, limit=LIMIT, cursor=visit.asked("cursor"))
    return visit.show(
        "runs.html",
        schedule=schedule,
        page=page,
        zone=schedule.timezone,
        now=await visit.queue.now(),
        statuses=[str(each) for each in RunStatus],
        tab="runs",
    )


async def versions(visit: Visit) -> Response:
    """The changes, and who made them; with `old` and `new`, the differences between any two versions."""
    schedule = await visit.queue.get_schedule(visit.part("key"), deleted=True)
    events = await visit.queue.schedule_history(schedule.id)
    old, new = visit.asked("old"), visit.asked("new")
    pair = [_version(events, each) for each in (old, new)] if old and new else []
    return visit.show(
        "versions.html",
        schedule=schedule,
        events=[(event, (event.after or {}).get("version")) for event in events[::-1][:LIMIT]],
        compared=[each for each in changed_fields(*pair) if each[0] not in _BOOKS] if pair else None,
        old=old,
        new=new,
        now=await visit.queue.now(),
        said=done_words(visit),
        tab="versions",
    )


def _version(events: Sequence[Event], number: str) -> dict[str, Any]:
    for event in events:
        if event.after and str(event.after.get("version")) == number:
            return event.after
    raise NotFound("version", number)


async def ask_to_put_back(visit: Visit) -> Response:
    """The question before an earlier version is put back: what would change."""
    key, number = visit.part("key"), visit.asked("version") or ""
    events = await visit.queue.schedule_history(key)
    schedule = await visit.queue.get_schedule(key)
    changed = changed_fields(definition.as_facts(schedule), _version(events, number))
    told = [each for each in changed if each[0] not in _KEPT]
    words = "It becomes a new version; the ones after it stay in the history. Nothing runs because of it."
    if not told:
        words = "It differs in nothing that can be put back."
    return visit.ask(
        f"Put version {number} back",
        words,
        back=visit.schedule_url(schedule, "versions"),
        hidden=[("version", number)],
        changes=told,
    )


async def put_back(visit: Visit) -> Response:
    key, number = visit.part("key"), visit.given("version") or ""
    if not (number.isdecimal() and len(number) < 10):
        raise NotFound("version", number)
    await visit.queue.put_back_schedule(key, int(number))
    return visit.go(visit.schedule_url(key, "versions", said="edit"))


async def ask(visit: Visit) -> Response:
    """The question before a deed, in words that name its consequence."""
    action = _action(visit)
    schedule = await visit.queue.get_schedule(visit.part("key"))
    return _question(visit, schedule, action, await visit.queue.now())


def _question(
    visit: Visit, schedule: Schedule, action: str, now: datetime, problem: str | None = None
) -> Response:
    fields = asked_for(visit, action, schedule.timezone)
    if action == "trigger":
        stored = pretty(schedule.target.input)
        fields = [FormField("input", "Input, as JSON", visit.given("input") or stored, "json")]
    return visit.ask(
        f"{action.capitalize()} {schedule.key}",
        _consequence(action, schedule, now),
        back=visit.schedule_url(schedule),
        verb=action.capitalize(),
        fields=fields,
        problem=problem,
        is_danger=action == "delete",
    )


def _consequence(action: str, schedule: Schedule, now: datetime) -> str:
    next = schedule.next_run_at
    due = "" if next is None else f" Its next time, in {took(next - now)}, will not run."
    match action:
        case "pause":
            return (
                f"It will not fire until it is resumed, by someone or at a time.{due} What runs now goes on."
            )
        case "resume":
            return "It fires again from its first time after now. What was due meanwhile is not made up for."
        case "trigger":
            return "One task starts now, beside the schedule's own times. Its next time stays as it is."
    return f"It will not fire again.{due} Its history stays, and `rota schedule restore` brings it back."


async def act(visit: Visit) -> Response:
    action, key = _action(visit), visit.part("key")
    schedule = await visit.queue.get_schedule(key)
    now = await visit.queue.now()
    if action != "trigger":
        try:
            await deed(visit, action, key, pause_end(visit, clock_of(schedule, now)))
        except Invalid as wrong:
            return _question(visit, schedule, action, now, str(wrong))
        back = visit.url("schedules", said=action, number=1) if action == "delete" else None
        return visit.go(back or visit.schedule_url(key, said=action))
    try:
        given = restored("input", json_of(visit.given("input")), schedule.target.input)
        task = await visit.queue.trigger_schedule(key, given)
    except Refused as refused:
        if isinstance(refused, NotFound):
            raise
        return _question(visit, schedule, action, now, str(refused))
    return visit.go(visit.url("tasks", task.id))


def _action(visit: Visit) -> str:
    action = visit.action(*ACTIONS)
    if action == "delete":
        visit.queue.caller.check_role(Role.ADMIN)
    return action
