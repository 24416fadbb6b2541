"""The calls of a queue over HTTP: which there are, the role that each needs, and how they are written.

An argument is JSON. What JSON has no form for is an object with one name: `{"$time": "2026-01-28T09:00:00+00:00"}`,
`{"$duration": 90.0}` in seconds, `{"$TemplateTarget": {…}}`. An answer is written as records are stored, and is read as
the type that the call declares."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from inspect import Parameter, signature
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from ...domain.checks import shown
from ...domain.errors import Invalid
from ...domain.model import ApiKey, RetryPolicy, Role, Run, TaskTarget, TemplateTarget, WorkflowTarget
from ...domain.schedule.why import Mention, Why
from ...domain.serving import Waiting, WaitReason
from ..python.client import Page, Queue

_OF_VIEWERS = """
now get task_id list count waiting steps artifacts get_schedule list_schedules runs count_runs preview why
schedule_history alarms schedule_id template_id
alarm_rules get_template list_templates get_calendar list_calendars nodes list_queues task_limits plan export forecast
"""
_OF_OPERATORS = """
submit submit_many start_workflow signal cancel cancel_page replay replay_page archive pause_schedule resume_schedule
trigger_schedule backfill cancel_backfill execute_template pause_queue resume_queue limit_queue
"""
_OF_ADMINS = """
create_schedule create_schedules update_schedule delete_schedule restore_schedule create_template update_template
delete_template create_calendar update_calendar delete_calendar apply spread set_alarm_rules remove_alarm_rules
create_key list_keys revoke_key
"""
ABOUT_ALL_TENANTS = frozenset(
    ["create_tenant", "get_tenant", "list_tenants", "set_limits", "suspend_tenant", "resume_tenant"]
)
"""Calls for admins whose key is good for every tenant; so are calls with `every_tenant` or `fleet`."""

CALLS: Mapping[str, Role] = {
    **dict.fromkeys(_OF_VIEWERS.split(), Role.VIEWER),
    **dict.fromkeys(_OF_OPERATORS.split(), Role.OPERATOR),
    **dict.fromkeys((*_OF_ADMINS.split(), *ABOUT_ALL_TENANTS), Role.ADMIN),
}
"""Calls of `Queue`, and the role that they need, as their routes do."""

VERSION_HEADER = "Rota-Version"
"""The header of an answer that has the version of the server."""

PROGRESS_HEADER = "Rota-Progress"
"""The header of a request that wants lines before the answer, each with the number of steps since the line before. The
response has it, too, if it is written so: lines, then the status, then the answer."""

_NOT_OVER_HTTP = ("connection", "report")
_VALUES: Mapping[str, type[msgspec.Struct]] = {
    f"${each.__name__}": each for each in (RetryPolicy, TaskTarget, WorkflowTarget, TemplateTarget)
}


class Answered(msgspec.Struct, frozen=True):
    """The answer of a call, and the warnings for its caller."""

    answer: msgspec.Raw
    warnings: list[str] = []


class _Page(msgspec.Struct, frozen=True):
    items: msgspec.Raw
    next_cursor: str | None


class _Why(msgspec.Struct, frozen=True):
    about: str
    reason: str
    status: str
    run: Run | None
    mentions: tuple[Mention, ...]


class _Waiting(msgspec.Struct, frozen=True):
    words: str
    reason: WaitReason


def named_arguments(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    called = signature(getattr(Queue, name))
    given = dict(called.bind(None, *args, **kwargs).arguments)
    given.pop("self")
    rest = [each.name for each in called.parameters.values() if each.kind is Parameter.VAR_KEYWORD]
    for each in rest:
        given |= given.pop(each, {})
    return given


def reports(name: str) -> bool:
    return "report" in signature(getattr(Queue, name)).parameters


def written_arguments(value: Any) -> Any:
    match value:
        case datetime():
            return {"$time": value.isoformat()}
        case timedelta():
            return {"$duration": value.total_seconds()}
        case msgspec.Struct():
            name = f"${type(value).__name__}"
            if name not in _VALUES:
                raise Invalid(
                    "server", f"a {name[1:]} cannot be sent to one", "leave it out, or name a store"
                )
            return {name: msgspec.to_builtins(value)}
        case Mapping():
            written = {name: written_arguments(each) for name, each in value.items()}
            return {"$object": written} if any(str(name).startswith("$") for name in written) else written
        case list() | tuple() | set() | frozenset():
            return [written_arguments(each) for each in value]
    return value


def read_arguments(name: str, body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise Invalid("body", f"{shown(body)} is not an object", "give the arguments of the call by name")
    given = {each: _read(value) for each, value in body.items()}
    for each in _NOT_OVER_HTTP:
        if each in given:
            raise Invalid(each, "it cannot be given to a server", "leave it out")
    try:
        signature(getattr(Queue, name)).bind(None, **given)
    except TypeError as problem:
        raise Invalid("body", str(problem), "give the arguments that the call of Queue has") from None
    return given


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (name := next(iter(value))).startswith("$"):
        return _read_special(name, value[name])
    return {name: _read(each) for name, each in value.items()}


def _read_special(name: str, value: Any) -> Any:
    try:
        match name:
            case "$time":
                return datetime.fromisoformat(value)
            case "$duration":
                return timedelta(seconds=value)
            case "$object":
                return {each: _read(part) for each, part in value.items()}
        return msgspec.convert(value, _VALUES[name])
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise Invalid(name, f"{shown(value)} is not one", "write it as rota --server does") from None


def written_answer(value: Any) -> Any:
    match value:
        case Page():
            return {"items": [written_answer(each) for each in value], "next_cursor": value.next_cursor}
        case ApiKey():  # without the fields that only the server needs
            return msgspec.structs.replace(value, digest="", signed_out={}, sessions_from=None)
        case (ApiKey() as key, token):
            return [written_answer(key), token]
        case Why():
            return _Why(value.about, value.reason, value.status, value.run, tuple(value.mentions))
        case Waiting():
            return _Waiting(str(value), value.reason)
    return value


def read_answer(name: str, raw: bytes | msgspec.Raw) -> Any:
    """The answer of a call, of the type that `Queue` declares."""
    wanted = _answer_type(name)
    if get_origin(wanted) is Page:
        found = msgspec.json.decode(raw, type=_Page)
        page: Page[Any] = Page(msgspec.json.decode(found.items, type=list[get_args(wanted)[0]]))  # type: ignore[misc]  # known at run time
        page.next_cursor = found.next_cursor
        return page
    if wanted is Why:
        why = msgspec.json.decode(raw, type=_Why)
        return Why(why.about, why.reason, why.status, why.run, why.mentions)
    if Waiting in get_args(wanted):
        waiting = msgspec.json.decode(raw, type=_Waiting | None)
        return None if waiting is None else Waiting(waiting.words, waiting.reason)
    return msgspec.json.decode(raw, type=wanted)


@cache
def _answer_type(name: str) -> Any:
    return get_type_hints(getattr(Queue, name))["return"]
