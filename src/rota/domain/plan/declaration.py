"""Declarations: schedules, templates and calendars as a file has them: plain data under the names of `options`. Pure.

`of_schedule`, `of_template` and `of_calendar` write a record so; what has its default is left out. `schedule_options`
and `template_options` read it back, as Python's calls take it. What `options` declares gets here by itself. What only
a file can say of a schedule (`STAYING`) is laid over what these calls make of the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec

from ..checks import check_text, shown
from ..errors import Invalid
from ..model import (
    Calendar,
    RetryPolicy,
    Runtime,
    Schedule,
    ScheduleStatus,
    Target,
    TaskTarget,
    Template,
    TemplateTarget,
    WorkflowTarget,
    defaults_of,
)
from ..options import (
    RetryPolicyOptions,
    ScheduleOptions,
    TaskOptions,
    TemplateOptions,
    TimingOptions,
    check_names,
    names_of,
    options_of,
    value_type,
)
from ..recurrence import MICROSECOND, After, Cron, Interval, Once, RRule, Several, Timing
from ..runtimes import Command
from ..schedule.calendars import FIELDS as CALENDAR_FIELDS
from ..schedule.definition import FIELDS, default_policy

TARGETS = ("task_type", "workflow", "template")
"""The options that say what a schedule runs: it has one of them."""
OF_STATUS = ("status", "pause_note", "pause_until")
"""The options that people switch while things run. A file that leaves one out leaves it as it is."""
BEGINS = {"anchor": "interval", "dtstart": "rrule"}
"""The options that say where a timing counts from, and which timing does."""
STAYING = (*BEGINS, "target_metadata")
"""The options that only a file has. One that leaves them out leaves them as they are; of a new schedule they follow
from `start_at`, or else from now, and from `metadata`."""
_FOR_TASK = tuple(name for name in options_of(TaskOptions) if name != "metadata")
_UNITS = (("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


def of_schedule(schedule: Schedule, aliases: Mapping[str, str]) -> dict[str, Any]:
    """The options that make this schedule. `aliases` has those of the templates, by id."""
    target = schedule.target
    form = _of_target(target, aliases) | _of_timing(schedule.timing)
    form |= _said(schedule, FIELDS, missed_run_policy=default_policy(schedule.timing))
    if not isinstance(target, TemplateTarget) and target.metadata != schedule.metadata:
        form["target_metadata"] = target.metadata
    if schedule.status is ScheduleStatus.COMPLETED:
        form.pop("status")
    return form


def as_said(form: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The form of a schedule without what stays as it is, because the options do not say it."""
    said = _without([name for name in STAYING if options.get(name) is None], form)
    return said if says_begin(options) else without_begins(said)


def says_begin(options: Mapping[str, Any]) -> bool:
    """Whether the options of a file say where the timing counts from."""
    timings = options.get("timings")
    places = [options, *(timings if isinstance(timings, list) else ())]
    return any(each.get(name) is not None for each in places if isinstance(each, Mapping) for name in BEGINS)


def without_begins(form: Mapping[str, Any]) -> dict[str, Any]:
    """The form, without where each of its several timings counts from."""
    if "timings" not in form:
        return dict(form)
    return {**form, "timings": [_without(BEGINS, each) for each in form["timings"]]}


def _without(names: Collection[str], options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


def of_template(template: Template) -> dict[str, Any]:
    """The options that make this template, beside its alias."""
    form: dict[str, Any] = {}
    if template.runtime is Runtime.PYTHON:
        form["kind"] = template.kind
    elif isinstance(template.command, msgspec.Struct):
        form[template.runtime.value] = of_command(template.command)
    written = ("runtime", "command") if template.runtime is not Runtime.PYTHON else ()
    return form | _said(template, sorted(names_of(TemplateOptions) - set(written)))


def of_calendar(calendar: Calendar) -> dict[str, Any]:
    """The options that make this calendar, beside its name."""
    return _said(calendar, sorted(CALENDAR_FIELDS))


def _said(record: msgspec.Struct, names: Iterable[str], **usual: Any) -> dict[str, Any]:
    """These fields of a record, in plain data; without those that are as usual, by default or as is given here."""
    defaults = {**defaults_of(type(record)), **usual}
    return {
        name: plain_value(getattr(record, name)) for name in names if getattr(record, name) != defaults[name]
    }


def schedule_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a schedule in a file, for `create_schedule`. A time without a zone is on the clock of `timezone`,
    or else in UTC."""
    chosen = dict(options)
    given = [name for name in (*TARGETS, "target") if chosen.get(name) is not None]
    if len(given) > 1:
        raise Invalid(given[1], f"it was given together with {given[0]}", "give one of them")
    of_file = ("workflow", "template", *STAYING)
    check_names(ScheduleOptions, chosen, beside=of_file)
    names = _without(of_file, chosen)
    target = _target(chosen)
    if target is not None:
        names.pop("task_type", None)
        names["target"] = target
    if isinstance(names.get("timings"), list):
        names["timings"] = [_part(each) for each in names["timings"]]
    return _values(ScheduleOptions, names)


def _part(timing: Any) -> Any:
    return _values(ScheduleOptions, _without(BEGINS, timing)) if isinstance(timing, Mapping) else timing


def template_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a template in a file, for `create_template`. `shell` and `http` are short for a command and its
    runtime."""
    chosen = dict(options)
    for runtime in (Runtime.SHELL, Runtime.HTTP):
        if runtime in chosen:
            if "command" in chosen or "runtime" in chosen:
                raise Invalid(
                    runtime, "it was given together with a command or a runtime", "give one of them"
                )
            chosen |= {"runtime": runtime.value, "command": chosen.pop(runtime)}
    check_names(TemplateOptions, chosen, beside=("kind", "shell", "http"))
    return _values(TemplateOptions, chosen)


def plain_value(value: Any) -> Any:
    """A value of a record in plain data, as people write it: `5m`, `2026-12-31T23:59:00Z`."""
    match value:
        case timedelta():
            return duration_text(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case RetryPolicy():
            return _said(value, RetryPolicy.__struct_fields__)
        case tuple():
            return [plain_value(each) for each in value]
        case _:
            return msgspec.to_builtins(value)


def duration_text(span: timedelta) -> str | float:
    """`1h30m`; seconds as a number, if it is finer than a millisecond."""
    left, finer = divmod(span // MICROSECOND, 1000)
    if finer or left < 0:
        return span.total_seconds()
    parts = []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def _of_target(target: Target, aliases: Mapping[str, str]) -> dict[str, Any]:
    form: dict[str, Any] = {}
    match target:
        case TemplateTarget():
            form["template"] = aliases.get(target.template_id, target.template_id)
        case WorkflowTarget():
            form["workflow"] = target.kind
        case TaskTarget():
            form["task_type"] = target.kind
    if target.input is not None:
        form["input"] = target.input
    return form if isinstance(target, TemplateTarget) else form | _said(target, _FOR_TASK)


def _of_timing(timing: Timing) -> dict[str, Any]:
    match timing:
        case Once(run_at):
            return {"run_at": plain_value(run_at)}
        case Interval(every, anchor):
            return {"interval": duration_text(every)} | _of_begin("anchor", anchor)
        case Cron(expression):
            return {"cron": expression} | _of_clock(timing)
        case RRule(rule, dtstart):
            return {"rrule": rule} | _of_begin("dtstart", dtstart) | _of_clock(timing)
        case Several(timings):
            return {"timings": [_of_timing(part) for part in timings]}
        case After():
            said = {f"after_{name}": value for name, value in _said(timing, ("on", "delay")).items()}
            return {"after": list(timing.schedules)} | said


def _of_begin(name: str, at: datetime | None) -> dict[str, Any]:
    return {} if at is None else {name: plain_value(at)}


def _of_clock(timing: Cron | RRule) -> dict[str, Any]:
    """The zone, and what is said about days and about daylight saving."""
    names = set(timing.__struct_fields__) & options_of(TimingOptions).keys()
    return _said(timing, sorted(names, reverse=True))


def of_command(command: Command | str) -> str | list[str] | dict[str, Any]:
    """A command as `create_template` takes it, without its runtime. A shell command that is only a line, or a request
    that is only a URL, is written as that."""
    if isinstance(command, str):
        return command
    form: dict[str, Any] = msgspec.to_builtins(command)
    form.pop("runtime")
    simple: str | list[str] | None = form.get("run", form.get("url"))
    return simple if simple is not None and len(form) == 1 else form


def _target(chosen: Mapping[str, Any]) -> Target | None:
    if chosen.get("workflow") is not None:
        return WorkflowTarget(kind=check_text("workflow", chosen["workflow"]))
    if chosen.get("template") is not None:
        return TemplateTarget(template_id=check_text("template", chosen["template"]))
    if chosen.get("task_type") is not None:
        return TaskTarget(kind=check_text("task_type", chosen["task_type"]))
    return None


def _values(shape: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Times and policies that were written as texts. What else is written so, the options take as it is."""
    is_utc = options.get("timezone") is None
    return {name: _value(shape, name, value, is_utc) for name, value in options.items()}


def _value(shape: type, name: str, value: Any, is_utc: bool) -> Any:
    if value is None or name not in options_of(shape):
        return value
    kind = value_type(shape, name)
    if kind is RetryPolicy:
        return _policy(name, value)
    if kind is not datetime:
        return value
    at = written_time(name, value)
    return at.replace(tzinfo=UTC) if is_utc and at.tzinfo is None else at


def written_time(field: str, value: object) -> datetime:
    """A time as files have it; without a zone if none was written."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):  # YAML and TOML have days, too
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001  its zone is that of the schedule
    try:
        return datetime.fromisoformat(check_text(field, value).strip())
    except ValueError:
        accepted = "write it as 2026-12-31T23:59:00Z, or without the Z on the clock of timezone"
        raise Invalid(field, f"{shown(value)} is not a time", accepted) from None


def _policy(field: str, value: object) -> object:
    if isinstance(value, RetryPolicy):
        return value
    if not isinstance(value, dict):
        accepted = f"give a mapping with {', '.join(options_of(RetryPolicyOptions))}"
        raise Invalid(field, f"{shown(value)} is not a policy", accepted)
    check_names(RetryPolicyOptions, value, f"part of a {field}")
    parts = options_of(RetryPolicyOptions)
    return RetryPolicy(**{name: parts[name].check(f"{field}.{name}", given) for name, given in value.items()})
