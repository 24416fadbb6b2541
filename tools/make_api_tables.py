"""The tables of `docs/api.md`, from the code: calls, errors, codes, records, choices.

    python tools/make_api_tables.py

Each stands between `<!-- made: name -->` and `<!-- end -->`; the words round them are written by hand.
`tests/test_docs.py` fails if a table is not what this would write.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

import rota
from rota.domain.errors import _SENTENCES
from rota.domain.options import (
    Duration,
    ScheduleFilters,
    ScheduleOptions,
    SubmitOptions,
    TaskFilters,
    TemplateOptions,
    options_of,
    value_type,
)
from rota.domain.schedule.calendar_options import CalendarOptions

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
MADE = re.compile(r"(<!-- made: (?P<name>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

TASK_CALLS = [
    *("submit", "submit_many", "get", "task_id", "list", "recent", "count", "history", "wait"),
    *("cancel", "request_cancellation", "cancel_many", "cancel_page", "mark_expired"),
    *("replay", "replay_many", "replay_page", "archive"),
]
ARTIFACT_CALLS = ["artifacts", "open_artifact"]
ALARM_CALLS = ["alarms", "alarm_rules", "set_alarm_rules", "remove_alarm_rules"]
OPEN_ARTIFACT = ["read", "save", "chunks"]
WORKFLOW_CALLS = ["start_workflow", "start_workflows", "signal", "steps", "unread_signals", "run_tree"]
WORKFLOW = ["task", "version", "idempotency_key", "step", "child", "map", "sleep", "receive", "first", "undo"]
WORKFLOW += ["restart", "progress", "log"]
SCHEDULE_CALLS = [
    *(
        "create_schedule",
        "create_schedules",
        "get_schedule",
        "schedule_id",
        "list_schedules",
        "sorted_schedules",
        "count_schedules",
        "update_schedule",
    ),
    *(
        "pause_schedule",
        "disable_schedule",
        "resume_schedule",
        "enable_schedule",
        "trigger_schedule",
        "backfill",
        "cancel_backfill",
    ),
    *(
        "delete_schedule",
        "restore_schedule",
        "schedule_history",
        "put_back_schedule",
        "count_runs",
        "runs",
        "preview",
        "clock_changes",
        "why",
        "run_due",
    ),
    *(
        "preview_timing",
        "declare_schedules",
        "explained_runs",
        "last_runs",
        "open_schedules",
        "overview",
        "last_day",
    ),
]
PLAN_CALLS = ["plan", "plan_create", "plan_update", "apply", "export"]
FORECAST_CALLS = ["forecast", "spread"]
TEMPLATE_CALLS = [
    *("create_template", "get_template", "template_id", "list_templates"),
    *("update_template", "delete_template"),
    "execute_template",
]
CALENDAR_CALLS = [
    *("create_calendar", "get_calendar", "list_calendars", "update_calendar", "delete_calendar"),
]
TENANT_CALLS = [
    *("create_tenant", "get_tenant", "list_tenants", "set_limits", "suspend_tenant", "resume_tenant"),
    *("create_key", "list_keys", "revoke_key", "events"),
]
LIMIT_CALLS = ["limit_queue", "limit_kind", "task_limits", "declare_limits"]
SERVING_CALLS = ["nodes", "waiting", "list_queues", "pause_queue", "resume_queue", "drain_queue"]
HOOKS = ["on_startup", "on_shutdown", "on_success", "on_error"]
CONTEXT = ["task", "queue", "attempt", "scheduled_at", "is_cancellation_requested", "is_stopping"]
QUEUE_CALLS = ["now", "for_tenant", "bind", "close"]
FUNCTION = ["__call__", "submit", "options", "map", "args"]
HANDLE = ["id", "get", "cancel", "result"]
CONTEXT += ["check", "progress", "log", "artifact", "extend_lease", "call"]
SAID_HERE = {
    "get": "One task.",
    "count": "How many tasks match the same filters as in `list`.",
    "close": "Close the store. `async with` does it for you.",
    "get_template": "One template.",
    "get_calendar": "One calendar.",
    "get_tenant": "One tenant: its status and its limits.",
    "count_schedules": "How many schedules match the same filters as in `list_schedules`.",
    "pause_schedule": "Stop firing until it is resumed. The note says why.",
    "disable_schedule": "The same as `pause_schedule`.",
    "enable_schedule": "The same as `resume_schedule`.",
    "request_cancellation": "The same as `cancel`.",
    "restore_schedule": "Undo a delete. It fires again from the first time after now.",
    "on_startup": "Called with the worker before it starts.",
    "on_shutdown": "Called with the worker after it has stopped.",
    "on_success": "Called with the task and its output.",
    "on_error": "Called with the task and the exception of a failed attempt.",
    "stop": "Ask for a graceful end; `run()` returns when it has come.",
    "queue": "The queue of the task's own tenant.",
    "attempt": "1 for the first attempt.",
    "__call__": "Call the function here and now, as if it had not been decorated.",
    "id": "The task's id.",
}
OPTIONS = {
    "submit options": (SubmitOptions, ()),
    "task filters": (TaskFilters, ()),
    "schedule options": (ScheduleOptions, ()),
    "schedule filters": (ScheduleFilters, ()),
    "template options": (TemplateOptions, ()),
    "calendar options": (CalendarOptions, ()),
}
OWN_FORM = {
    "ttl_seconds": "`ttl`, in seconds.",
    "timeout_seconds": "`timeout`, in seconds.",
    "rule": "A `RecurrenceRule`, instead of an rrule.",
    "target": "A `TaskTarget`, `WorkflowTarget` or `TemplateTarget`, instead of a task_type.",
    "input": "The input of its tasks.",
    "parameters_schema": "A JSON Schema that the parameters, with the input laid over them, must fit.",
    "runtime": "`python` (a kind), `shell` or `http` (a command). [default: python]",
    "command": "Of a shell template: a command line, a list of arguments, or a `ShellCommand`. Of an http one: a URL"
    " (with its method before it), or an `HttpRequest`. Of a python one: what people call the function.",
    "parameters": "A dict: the input, under what is given when it is run.",
}
"""Options that have a form of their own on each surface, and so no help that fits all of them."""
RECORDS: list[type[msgspec.Struct]] = [
    rota.Task,
    rota.Change,
    rota.LogLine,
    rota.Failure,
    rota.RetryPolicy,
    rota.Schedule,
    rota.TaskTarget,
    rota.WorkflowTarget,
    rota.TemplateTarget,
    rota.Cron,
    rota.Interval,
    rota.After,
    rota.Once,
    rota.RRule,
    rota.Several,
    rota.RecurrenceRule,
    rota.Run,
    rota.Event,
    rota.Backfill,
    rota.Occurrence,
    rota.ClockChange,
    rota.Template,
    rota.Calendar,
    rota.Artifact,
    rota.ShellCommand,
    rota.HttpRequest,
    rota.Step,
    rota.OpenWait,
    rota.Signal,
    rota.Tenant,
    rota.Limits,
    rota.Limit,
    rota.TenantUse,
    rota.ApiKey,
    rota.NodeState,
    rota.PausedQueue,
    rota.Alarm,
    rota.AlarmRules,
    rota.QueueUse,
    rota.Retention,
]
CHOICES = [
    rota.TaskStatus,
    rota.ChangeType,
    rota.ScheduleStatus,
    rota.RunStatus,
    rota.RunTrigger,
    rota.RunReason,
    rota.MissedRunPolicy,
    rota.OverlapPolicy,
    rota.ExcludedPolicy,
    rota.BackfillStatus,
    rota.AlarmRule,
    rota.Role,
    rota.Runtime,
    rota.TenantStatus,
    rota.StepKind,
    rota.StepStatus,
    rota.Frequency,
    rota.DayOfWeek,
    rota.MonthOfYear,
]


def tables() -> dict[str, str]:
    """Every table by its name."""
    return {
        "task calls": _calls(rota.Queue, TASK_CALLS),
        "artifact calls": _calls(rota.Queue, ARTIFACT_CALLS),
        "open artifact": _calls(rota.OpenArtifact, OPEN_ARTIFACT),
        "workflow calls": _calls(rota.Queue, WORKFLOW_CALLS),
        "workflow": _calls(rota.Workflow, WORKFLOW),
        "schedule calls": _calls(rota.Queue, SCHEDULE_CALLS),
        "template calls": _calls(rota.Queue, TEMPLATE_CALLS),
        "calendar calls": _calls(rota.Queue, CALENDAR_CALLS),
        "plan calls": _calls(rota.Queue, PLAN_CALLS),
        "forecast calls": _calls(rota.Queue, FORECAST_CALLS),
        "tenant calls": _calls(rota.Queue, TENANT_CALLS),
        "limit calls": _calls(rota.Queue, LIMIT_CALLS),
        "serving calls": _calls(rota.Queue, SERVING_CALLS),
        "alarm calls": _calls(rota.Queue, ALARM_CALLS),
        "queue calls": _calls(rota.Queue, QUEUE_CALLS),
        "app": _calls(rota.App, ["task", "workflow", "schedule", "provide", "connect", *HOOKS]),
        "functions": _calls(rota.TaskFunction, FUNCTION),
        "handles": _calls(rota.Handle, HANDLE),
        "worker": _calls(rota.Worker, ["__init__", "run", "run_once", "stop", *HOOKS]),
        "node": _calls(rota.Node, ["__init__", "run", "run_once", "stop"]),
        "context": _calls(rota.Context, CONTEXT),
        "errors": _errors(),
        "codes": _codes(),
        "records": "\n\n".join(map(_record, RECORDS)),
        "choices": _choices(),
        **{name: _options(shape, leave_out) for name, (shape, leave_out) in OPTIONS.items()},
    }


def page(text: str) -> str:
    """The page with its tables as they should be."""
    made = tables()
    return MADE.sub(lambda found: f"{found[1]}{made[found['name']]}\n{found[3]}", text)


def _table(head: list[str], rows: Iterator[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _calls(owner: type, names: list[str]) -> str:
    def rows() -> Iterator[list[str]]:
        for name in names:
            value = inspect.getattr_static(owner, name, None)
            about = SAID_HERE.get(name) or _first_paragraph(value, owner if name == "__init__" else None)
            yield [f"`{_shown(owner, name, value)}`", about]

    return _table(["call", "what it does"], rows())


def _shown(owner: type, name: str, value: Any) -> str:
    if not inspect.isfunction(value):
        return name
    signature = inspect.signature(value)
    parts: list[str] = []
    for parameter in list(signature.parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        star = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={_default(parameter.default)}"
        parts.append(f"{star}{parameter.name}{default}")
    called = {"__init__": owner.__name__, "__call__": "function"}.get(name, name)
    returns = "" if name == "__init__" else f" -> {signature.return_annotation}"
    return f"{called}({', '.join(parts)}){returns.replace('Tasks', 'list[Task]')}"


def _default(value: object) -> str:
    return getattr(value, "__name__", None) or (
        f"{value.total_seconds():g}" if hasattr(value, "total_seconds") else repr(value)
    )


def _first_paragraph(value: Any, owner: type | None) -> str:
    text = inspect.getdoc(owner if owner is not None else value)
    assert text, f"{value} says nothing about itself"
    return " ".join(text.split("\n\n")[0].split())


def _options(shape: type, leave_out: tuple[str, ...]) -> str:
    declared, hints = options_of(shape), get_type_hints(shape)

    def rows() -> Iterator[list[str]]:
        for name in hints:
            if name not in leave_out:
                about = declared[name].help if name in declared else OWN_FORM[name]
                yield [f"`{name}`", _type(shape, name), about]

    return _table(["option", "type", "meaning"], rows())


def _type(shape: type, name: str) -> str:
    found = value_type(shape, name)
    if found == Duration:
        return "timedelta or seconds"
    names = {"Iterable": "list of str", "Mapping": "dict", "dict": "dict", "Any": ""}
    shown = getattr(found, "__name__", str(found))
    return {"target": "", "timezone": "str or ZoneInfo"}.get(name, names.get(shown, shown))


def _errors() -> str:
    def rows() -> Iterator[list[str]]:
        for depth, error in _tree(rota.RotaError, 0):
            also = [base.__name__ for base in error.__bases__ if not issubclass(base, rota.RotaError)]
            beside = f" ({also[0]})" if depth and also else ""
            code = {"Refused": "one of those below", "Invalid": "`invalid`", "NotFound": "`not_found`"}
            shown = code.get(error.__name__, f"`{error.code}`")
            yield [f"{'· ' * depth}`{error.__name__}`{beside}", shown, _first_paragraph(error, None)]

    return _table(["error", "code", "means"], rows())


def _tree(error: type[rota.RotaError], depth: int) -> Iterator[tuple[int, type[rota.RotaError]]]:
    yield depth, error
    for below in error.__subclasses__():
        if below.__name__ in rota.__all__:
            yield from _tree(below, depth + 1)


def _codes() -> str:
    rows = (
        [f"`{code}`", sentence.replace("!r", "").replace(":,", "")]
        for code, sentence in sorted(_SENTENCES.items())
    )
    return _table(["code", "sentence"], rows)


def _record(record: type[msgspec.Struct]) -> str:
    fields = ", ".join(f"`{name}`" for name in record.__struct_fields__)
    questions = [
        name
        for name, value in vars(record).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, (property, classmethod)))
    ]
    answers = f" Answers: {', '.join(f'`{name}`' for name in questions)}." if questions else ""
    return f"**`{record.__name__}`**: {_first_paragraph(record, None)} Fields: {fields}.{answers}"


def _choices() -> str:
    def rows() -> Iterator[list[str]]:
        for choice in CHOICES:
            members: Iterator[Enum] = iter(choice)
            yield [f"`{choice.__name__}`", ", ".join(f"`{member.value}`" for member in members)]

    return _table(["name", "values"], rows())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
