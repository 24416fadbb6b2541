"""What a schedule is to run, from the options of `create_schedule` and `update_schedule`. Options for the task go
with whatever target they fit; what would be ignored is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ..domain.errors import Invalid
from ..domain.limits import check_duration, check_tags, check_text, shown
from ..domain.model import Target, TaskTarget, TemplateTarget, WorkflowTarget
from ..engine.app import App

__all__ = ["OPTIONS", "changed_target", "check_registered", "new_target"]

_FITTING = ("input", "queue", "max_retries", "ttl", "priority", "timeout", "tags")
OPTIONS = ("task_type", "target", *_FITTING)


def new_target(chosen: Mapping[str, Any]) -> Target:
    target, kind = chosen.get("target"), chosen.get("task_type")
    if (target is None) == (kind is None):
        problem = "no task was given" if kind is None else "it was given together with target"
        raise Invalid("task_type", problem, "give exactly one of task_type and target")
    return _fitted(TaskTarget(kind=check_text("task_type", kind)) if target is None else target, chosen)


def check_registered(target: Target, app: App) -> None:
    """Refused, if the app has this kind as something else: a workflow as a task, or a task as a workflow."""
    handler = None if isinstance(target, TemplateTarget) else app.handlers.get(target.kind)
    if handler is None or handler.is_workflow == isinstance(target, WorkflowTarget):
        return
    what, wanted = ("workflow", "WorkflowTarget") if handler.is_workflow else ("task", "TaskTarget")
    raise Invalid(
        "task_type", f"{handler.kind!r} is registered as a {what}", f"give a rota.{wanted} as target"
    )


def changed_target(old: Target, chosen: Mapping[str, Any]) -> Target:
    """The old one with what is named, or else the new one that is given."""
    kind = chosen.get("task_type")
    if chosen.get("target") is not None:
        return new_target(chosen)
    if kind is None:
        return _fitted(old, chosen)
    if not isinstance(old, TaskTarget):
        problem = f"this schedule runs a {type(old).__name__}"
        raise Invalid("task_type", problem, "give a rota.TaskTarget as target to replace it")
    return _fitted(replace(old, kind=check_text("task_type", kind)), chosen)


def _fitted(target: object, chosen: Mapping[str, Any]) -> Target:
    """The target with the options that were given beside it."""
    if not isinstance(target, (TaskTarget, WorkflowTarget, TemplateTarget)):
        accepted = "give a rota.TaskTarget, WorkflowTarget or TemplateTarget"
        raise Invalid("target", f"{shown(target)} is not a target", accepted)
    options = {name: chosen[name] for name in _FITTING if name in chosen}
    for name in options:
        if name not in target.__struct_fields__:
            fitting = ", ".join(each for each in _FITTING if each in target.__struct_fields__)
            raise Invalid(name, f"a {type(target).__name__} has none", f"it takes {fitting}")
    return replace(target, **_checked(options))


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    for name in ("ttl", "timeout"):
        if options.get(name) is not None:
            options[name] = check_duration(name, options[name])
    if "tags" in options:
        options["tags"] = check_tags(options["tags"])
    return options
