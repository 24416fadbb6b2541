"""`/api/tenants/{tenant}/alarms` and `/alarm-rules`: what is wrong, and what is to be an alarm."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response

from ....domain.model import AlarmRules
from ....domain.options import AlarmOptions
from ...shapes import Answer, ItemsAnswer, PageAnswer, Time, listed, shaped
from ..fields import given_options
from ..openapi import documented
from ..reading import Router
from ..service import Admin, Cursor, Limit, Viewer, answer
from . import schemas

router = Router(prefix="/api/tenants/{tenant}", tags=["alarms"])

Tag = Annotated[str, Path(description="A tag of the targets of schedules.", min_length=1, max_length=255)]


class AlarmAnswer(Answer, frozen=True, kw_only=True):
    """Something that was wrong, from when it began until it was over; `overAt` null: it goes on. `told` says who was
    told of it."""

    id: str
    rule: str
    subject_type: str
    subject_id: str
    subject: str
    detail: str
    began_at: Time
    over_at: Time | None
    told: tuple[str, ...]
    told_at: Time | None


class AlarmsAnswer(PageAnswer[AlarmAnswer], frozen=True, kw_only=True):
    """A page of alarms."""


class AlarmRulesAnswer(Answer, frozen=True, kw_only=True):
    """The rules of a tag; null: none of its own."""

    tag: str
    alarm_late_seconds: float | None
    alarm_no_success_seconds: float | None
    alarm_failures: int | None
    alarm_duration_seconds: float | None
    alarm_ending_seconds: float | None


class TagRulesAnswer(ItemsAnswer[AlarmRulesAnswer], frozen=True, kw_only=True):
    """The rules of all tags that have some."""


def _rules(tag: str, rules: AlarmRules) -> AlarmRulesAnswer:
    return shaped(AlarmRulesAnswer, rules, tag=tag)


@router.get("/alarms", **documented(200, AlarmsAnswer))
async def list_alarms(
    queue: Viewer,
    schedule: Annotated[
        str | None, Query(max_length=255, description="The id of a schedule, or its name.")
    ] = None,
    over: Annotated[bool, Query(description="Those that are over, too.")] = False,
    fleet: Annotated[
        bool, Query(description="Those about the whole store; needs a key to every tenant.")
    ] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """What is wrong now, newest first."""
    if fleet:
        queue.caller.check_all_tenants("alarms of the fleet are")
    page = await queue.alarms(schedule=schedule, over=over, fleet=fleet, limit=limit, cursor=cursor)
    return answer(listed(AlarmsAnswer, page))


@router.get("/alarm-rules", **documented(200, TagRulesAnswer))
async def list_rules(queue: Viewer) -> Response:
    """The rules of tags. Those of a single schedule are fields of it."""
    found = await queue.alarm_rules()
    return answer(TagRulesAnswer(items=[_rules(tag, rules) for tag, rules in sorted(found.items())]))


@router.put("/alarm-rules/{tag}", **documented(200, AlarmRulesAnswer))
async def set_rules(queue: Admin, tag: Tag, body: schemas.AlarmRulesBody) -> Response:
    """The rules of all schedules whose target has the tag, instead of those it had."""
    return answer(_rules(tag, await queue.set_alarm_rules(tag, **given_options(body, AlarmOptions))))


@router.delete("/alarm-rules/{tag}", **documented(204))
async def remove_rules(queue: Admin, tag: Tag) -> Response:
    """Take away the rules of a tag."""
    await queue.remove_alarm_rules(tag)
    return Response(status_code=204)
