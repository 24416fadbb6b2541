"""The arguments of calls, turned into what the domain takes: a timing (`timings`), a target, a submission.

Durations are timedeltas or seconds. A naive datetime is the local time of the process; in a schedule with a timezone it
is on the clock of that zone. Options for the task go with any target that has them; an option that would be ignored is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from ...domain.checks import check_key, check_metadata, check_text, shown
from ...domain.errors import Invalid
from ...domain.model import Limits, Schedule, Target, TaskTarget, TemplateTarget, WorkflowTarget
from ...domain.options import (
    ScheduleChanges,
    ScheduleOptions,
    SubmitOptions,
    TaskOptions,
    TimingOptions,
    check_names,
    check_option,
    options_of,
)
from ...domain.plan import schedule_options
from ...domain.recurrence import RRule, Timing
from ...domain.schedule import definition
from ...domain.task import Submission, check_submission
from ...engine.app import App
from ...engine.clock import aware
from ...stores.queries import Cursor
from ..durations import iso
from ..redaction import restored
from .timings import begun, changed_timing, checked_zone, given_time, new_timing

_TIME_CURSOR = re.compile(r"\d{4}-\d\d-\d\dT[^~]+~[0-9a-f-]{36}")
"""A cursor as `cursor_text` writes it."""

_FOR_TASK = {name: option for name, option in options_of(TaskOptions).items() if name != "metadata"}
"""Options that are given beside a target, for its task. A schedule has metadata of its own."""
_FITTING = ("input", *_FOR_TASK)
OPTIONS = ("task_type", "target", *_FITTING)


def new_target(chosen: Mapping[str, Any]) -> Target:
    target, kind = chosen.get("target"), chosen.get("task_type")
    if (target is None) == (kind is None):
        problem = "no task was given" if kind is None else "it was given together with target"
        raise Invalid("task_type", problem, "give exactly one of task_type and target")
    return _fitted(TaskTarget(kind=check_text("task_type", kind)) if target is None else target, chosen)


def check_registered(target: Target, app: App) -> None:
    """Refused, if the app has this kind as something else (a workflow as a task, or a task as a workflow), or its
    handler cannot take this input."""
    if isinstance(target, TemplateTarget) or (handler := app.handlers.get(target.kind)) is None:
        return
    if handler.is_workflow == isinstance(target, WorkflowTarget):
        handler.signature.check(target.input)
        return
    what, wanted = ("workflow", "WorkflowTarget") if handler.is_workflow else ("task", "TaskTarget")
    raise Invalid(
        "task_type", f"{handler.kind!r} is registered as a {what}", f"give a rota.{wanted} as target"
    )


def changed_target(old: Target, chosen: Mapping[str, Any]) -> Target:
    """The old target with the options that are named, or the new one, if one is given."""
    kind = chosen.get("task_type")
    if chosen.get("target") is not None:
        return new_target(chosen)
    if kind is None:
        return _fitted(old, chosen)
    if not isinstance(old, TaskTarget):
        problem = f"this schedule runs a {_word(old)}"
        raise Invalid("task_type", problem, "give a rota.TaskTarget as target to replace it")
    return _fitted(replace(old, kind=check_text("task_type", kind)), chosen)


def _word(target: Target) -> str:
    return type(target).__name__.removesuffix("Target").lower()


def _fitted(target: object, chosen: Mapping[str, Any]) -> Target:
    if not isinstance(target, (TaskTarget, WorkflowTarget, TemplateTarget)):
        accepted = "give a rota.TaskTarget, WorkflowTarget or TemplateTarget"
        raise Invalid("target", f"{shown(target)} is not a target", accepted)
    options = {name: chosen[name] for name in _FITTING if name in chosen}
    for name in options:
        if name not in target.__struct_fields__:
            fitting = ", ".join(each for each in _FITTING if each in target.__struct_fields__)
            raise Invalid(name, f"a schedule that runs a {_word(target)} has none", f"it takes {fitting}")
    checked = {
        name: check_option(name, _FOR_TASK[name], options[name]) for name in options if name != "input"
    }
    return replace(target, **options | checked)


_TIMES = ("run_at", "start_at", "end_at")


def submission(kind: str, input: Any, options: Mapping[str, Any]) -> Submission:
    """A checked submission from the options of `Queue.submit`."""
    check_names(SubmitOptions, options)
    chosen = {name: value for name, value in options.items() if value is not None}
    found = [name for name in ("ttl", "ttl_seconds", "expires_at") if name in chosen]
    if len(found) > 1:
        raise Invalid(found[1], f"it was given together with {found[0]}", "give one of them")
    if "ttl_seconds" in chosen:
        chosen["ttl"] = _FOR_TASK["ttl"].check("ttl_seconds", chosen.pop("ttl_seconds"))
    for name in ("schedule_at", "expires_at"):
        if name in chosen:
            chosen[name] = given_time(name, chosen[name])
    return check_submission(Submission(kind=kind, input=restored("input", input), **chosen))


def submissions(pairs: Iterable[tuple[str, Any]], options: Mapping[str, Any]) -> list[Submission]:
    """Many with the same options, which are checked once for each kind."""
    seen: dict[str, Submission] = {}
    asked = []
    for kind, input in pairs:
        like = seen.get(kind) if isinstance(kind, str) else None
        if like is None:
            like = seen[kind] = submission(kind, input, options)
        asked.append(replace(like, input=restored("input", input)))
    return asked


def new_schedule(
    options: Mapping[str, Any], now: datetime, old: Schedule | None = None
) -> tuple[Timing, Target, dict[str, Any]]:
    """(timing, target, fields) from the options of `Queue.create_schedule`. `old` has what is hidden in them."""
    chosen = _with_times({name: value for name, value in options.items() if value is not None})
    if "key" in chosen:
        raise Invalid("key", "there is no such option here", "give the name as schedule_id")
    check_names(ScheduleOptions, chosen)
    timing, bounds = new_timing(chosen, now)
    target = _with_hidden(new_target(chosen), None if old is None else old.target)
    fields = _fields(chosen, old)
    if not isinstance(target, TemplateTarget) and "metadata" in fields and not target.metadata:
        target = replace(target, metadata=fields["metadata"])
    return timing, target, {**bounds, **fields}


def unsaved_schedule(options: Mapping[str, Any], now: datetime) -> Schedule:
    """A schedule that is only looked at: when it fires, and nothing else."""
    check_names(TimingOptions, options)
    timing, target, fields = new_schedule({**options, "task_type": "unsaved"}, now)
    return definition.create(
        "", "unsaved", timing, target, fields, tenant="default", now=now, actor="", limits=Limits()
    )


def schedule_changes(old: Schedule, options: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The changes that `Queue.update_schedule` asks for. Only what is named changes."""
    chosen = _with_times(options)
    check_names(ScheduleChanges, chosen)
    changes = changed_timing(old, chosen, now)
    if any(name in chosen for name in OPTIONS):
        changes["target"] = _with_hidden(changed_target(old.target, chosen), old.target)
    target = changes.get("target", old.target)
    if "metadata" in chosen and not isinstance(target, TemplateTarget) and target.metadata == old.metadata:
        changes["target"] = replace(target, metadata=restored("metadata", chosen["metadata"], old.metadata))
    if "key" in chosen:
        changes["key"] = chosen["key"]
    return changes | _fields(chosen, old)


def declared_schedule(options: Mapping[str, Any], now: datetime) -> tuple[Timing, Target, dict[str, Any]]:
    timing, target, fields = new_schedule(schedule_options(options), now)
    return begun(timing, options), _with_own_metadata(target, options), fields


def declared_changes(old: Schedule, options: Mapping[str, Any]) -> dict[str, Any]:
    """The changes that make a schedule say what a file says: what is left out has its default, except the status."""
    begin = old.timing.dtstart if isinstance(old.timing, RRule) else old.created_at
    timing, target, fields = new_schedule(schedule_options(options), begin, old)
    timing, target = begun(timing, options), _with_own_metadata(target, options, old)
    usual = {**definition.DEFAULTS, "missed_run_policy": definition.default_policy(timing)}
    if "status" in fields:
        usual["pause_note"] = None
    return {**usual, **fields, "timing": timing, "target": target}


def _with_own_metadata(target: Target, options: Mapping[str, Any], old: Schedule | None = None) -> Target:
    """The target with the metadata that a file says it has for itself; if it says none, with what it had for itself."""
    said, was = options.get("target_metadata"), None if old is None else old.target
    had = None if was is None or isinstance(was, TemplateTarget) else was.metadata
    if isinstance(target, TemplateTarget):
        if said is not None:
            problem = "a schedule that runs a template has none"
            raise Invalid("target_metadata", problem, "give its parameters as input")
        return target
    if said is not None:
        checked = check_metadata(restored("target_metadata", said, had), "target_metadata")
        return replace(target, metadata=checked)
    is_own = old is not None and had is not None and had != old.metadata
    return replace(target, metadata=had) if is_own else target


@contextmanager
def in_words_of(options: Mapping[str, Any]) -> Iterator[None]:
    """If a `rule` was given, a refusal inside names that, and not the rrule or the run_at that it became."""
    try:
        yield
    except Invalid as problem:
        if options.get("rule") is None or problem.field not in ("rrule", "run_at"):
            raise
        raise Invalid("rule", problem.problem) from None


def _with_times(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the zone checked, if one is given, and the times on its clock, if they are naive."""
    chosen = dict(options)
    zone = chosen.get("timezone")
    if zone is not None:
        zone = chosen["timezone"] = checked_zone(zone)
    for name in _TIMES:
        if chosen.get(name) is not None:
            chosen[name] = given_time(name, chosen[name], zone)
    return chosen


def _fields(chosen: Mapping[str, Any], old: Schedule | None) -> dict[str, Any]:
    fields = {name: value for name, value in chosen.items() if name in definition.FIELDS}
    if "metadata" in fields:
        fields["metadata"] = restored("metadata", fields["metadata"], old and old.metadata)
    return fields


def _with_hidden(target: Target, old: Target | None) -> Target:
    """The target with what its input hides."""
    return replace(target, input=restored("input", target.input, old and old.input))


def filters(shape: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The filters of a listing that are given, checked."""
    check_names(shape, given, "filter")
    options = options_of(shape)
    return {name: options[name].check(name, value) for name, value in given.items() if value is not None}


def cursor_text(at: datetime, id: str) -> str:
    """Where a page ended, as a text to hand back."""
    return f"{iso(at)}~{id}"


def parsed_cursor(value: object) -> Cursor | None:
    if value is None:
        return None
    try:
        at, id = check_text("cursor", value).split("~", 1)
        return Cursor(aware(datetime.fromisoformat(at)), id)
    except (ValueError, OverflowError, OSError):
        raise Invalid("cursor", f"{shown(value)} is not a cursor", "give the next_cursor of a page") from None


def parsed_name_cursor(value: object) -> str | None:
    """Where a page by name ended: the name. The end of a page in another order would be read as one: refused."""
    name = None if value is None else check_key(value, "cursor")
    if name is not None and _TIME_CURSOR.fullmatch(name):
        problem = f"{shown(value)} is where a list in another order ended"
        raise Invalid("cursor", problem, "give the next_cursor of a page by name")
    return name
