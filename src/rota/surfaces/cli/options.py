"""The options of commands: what is typed becomes a value, and a shape of `domain.options` becomes options."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import click

from ...domain.errors import Invalid
from ...domain.model import RetryPolicy
from ..durations import parsed
from ..settings import parsed_size

if TYPE_CHECKING:
    from ...domain.options import Option
    from ..python.client import Queue

T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

LOG_LEVELS = ("debug", "info", "warning", "error")
_BEGINNING = re.compile("[0-9a-f][0-9a-f-]{0,34}")
_TIMES = "write it as 2026-01-28T09:00:00Z, 2026-01-28T09:00+01:00, or 2026-01-28T09:00 for local time"


class Typed(click.ParamType[T]):
    """A parameter that is read by a function, whose ValueError says what is wrong. The help calls it `name`."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> T:
        try:
            return self._read(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


class Named(click.ParamType[str]):
    """The name or the id of a record: of a `schedule`, a `template` or a `task`. The beginning of an id is made whole
    before the command begins. A name has no beginnings: `rota schedule delete report` is not to delete `report-2`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def may_begin(self, value: object) -> TypeGuard[str]:
        return isinstance(value, str) and _BEGINNING.fullmatch(value) is not None

    async def whole(self, queue: Queue, value: str) -> str:
        """The id of the one whose id begins so. A name is taken as it is."""
        ask = {"schedule": queue.schedule_id, "template": queue.template_id, "task": queue.task_id}
        return await ask[self.name](value)


def _duration(text: str) -> timedelta:
    """`30s 5m 1h 7d 2w`, also `1h30m`, or a number of seconds."""
    try:
        return parsed("", text)
    except Invalid as problem:
        raise ValueError(problem.problem) from None


def _time(text: str, *, keep_naive: bool = False) -> datetime:
    """An ISO 8601 time. A naive one is the local time of the process, or is left naive (`keep_naive`)."""
    from ...engine.clock import aware

    try:
        at = datetime.fromisoformat(text.strip())
        return at if keep_naive and at.tzinfo is None else aware(at)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r:.60} is not a time; {_TIMES}") from None


def _processes(text: str) -> int:
    """A number, or `auto` for as many as this machine has processors."""
    if text == "auto":
        return os.cpu_count() or 1
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:4]) <= 256:
        raise ValueError(f"{text!r:.60} is not accepted; give a number from 1 to 256, or auto")
    return int(text)


def _json_text(text: str) -> str:
    """JSON, `@file`, or `-` for stdin. It gives the text, not parsed: that may be one value or a line for each."""
    try:
        if text == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return Path(text[1:]).read_text("utf-8") if text.startswith("@") else text
    except OSError as problem:
        raise ValueError(f"{text[1:]} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def _json(text: str) -> Any:
    content = _json_text(text)
    try:
        return one_value(content)
    except ValueError as problem:
        raise ValueError(f"{_excerpt(content)} is not JSON: {problem}") from None


def _retry_policy(text: str) -> RetryPolicy:
    """`initial=5s,multiplier=3,maximum=1h,jitter=0.1`: what is left out has its default."""
    from ...domain.options import Duration, RetryPolicyOptions, options_of, value_type

    found: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in options_of(RetryPolicyOptions):
            accepted = ", ".join(options_of(RetryPolicyOptions))
            raise ValueError(f"{part!r:.60} is not a part of it; accepted are {accepted}, as in initial=5s")
        is_duration = value_type(RetryPolicyOptions, name) == Duration
        found[name] = _duration(value) if is_duration else _number(part, value)
    return RetryPolicy(**found)


def _number(part: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{part!r:.60} is not a number") from None


def _size(text: str) -> int:
    """`200000`, `512KB`, `1MB`: bytes, in powers of 1024."""
    size = parsed_size(text)
    if size is None:
        raise ValueError(f"{text!r:.60} is not a size; write bytes, or 512KB, or 1MB")
    return size


def _number_or_none(text: str) -> int | str:
    """A whole number, or `none` (kept as that word) for no limit."""
    if text == NONE:
        return text
    if not text.strip().isascii() or not text.strip().isdigit():
        raise ValueError(f"{text!r:.60} is not a whole number; write one, or none")
    return int(text)


NONE = "none"
SCHEDULE = Named("schedule")
TEMPLATE = Named("template")
TASK = Named("task")
DURATION = Typed("duration", _duration)
SIZE = Typed("size", _size)
PROCESSES = Typed("n|auto", _processes)
RETRY_POLICY = Typed("policy", _retry_policy)
NUMBER_OR_NONE = Typed("number|none", _number_or_none)
TIME = Typed("time", _time)
WALL_TIME = Typed("time", partial(_time, keep_naive=True))
JSON_TEXT = Typed("json", _json_text)
JSON = Typed("json", _json)


def one_value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_lines(text: str, *, by_line: bool = False) -> list[Any]:
    """The value, or one for each line. A text that is one JSON value is one, however many lines it has."""
    if not by_line:
        try:
            return [one_value(text)]
        except ValueError as problem:
            lines = [line for line in text.splitlines() if line.strip()]
            if len(lines) < 2:
                raise click.BadParameter(
                    f"{_excerpt(text)} is not JSON: {problem}", param_hint="--input"
                ) from None
    return [_line(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _line(number: int, line: str) -> Any:
    try:
        return one_value(line)
    except ValueError as problem:
        raise click.BadParameter(f"line {number} is not JSON: {problem}", param_hint="--input") from None


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


_FLAGS = {
    "tags": "--tag",
    "schedule_at": "--at",
    "task_type": "--task-type",
    "template_id": "--template",
    "timings": "--timing",
    "rules": "--rule",
    "windows": "--window",
}
"""Shorter to type than the name."""
_COMPLETED = {
    "kind": "kinds",
    "schedule": "schedules",
    "task_type": "kinds",
    "template_id": "templates",
    "timezone": "zones",
}
"""Names that `completing` completes in a shell."""
_METAVARS = {
    "cron": "LINE",
    "kind": "TYPE",
    "queue": "NAME",
    "rrule": "RULE",
    "schedule": "ID",
    "tag": "NAME",
    "task_type": "TYPE",
    "template_id": "NAME",
    "timezone": "ZONE",
}
_NAMED = {"schedule": SCHEDULE, "template_id": TEMPLATE}
_OTHER_FLAGS = {"kind": ["-t", "--type"], "run_at": ["--at"], "task_type": ["-t", "--type", "--kind"]}


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator. The help shows them in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were typed."""
    return {name: value for name, value in options.items() if value is not None and value != ()}


def page_options(limit: int) -> Decorator:
    return together(
        click.option("-n", "--limit", default=limit, show_default=True, help="How many."),
        click.option("--cursor", help="Go on where an earlier page ended."),
    )


def shape_options(
    shape: type, *, times: click.ParamType[datetime] = TIME, leave_out: Collection[str] = ()
) -> Decorator:
    """Every option of the shape, under its name."""
    from ...domain.options import options_of, value_type

    options = options_of(shape).items()
    return together(
        *(
            _click_option(name, option, value_type(shape, name), times)
            for name, option in options
            if name not in leave_out
        )
    )


def clearable(shape: type, *, leave_out: Collection[str] = ()) -> list[str]:
    """The options of the shape that can be taken away again, as they are typed."""
    from ...domain.options import options_of

    options = options_of(shape).items()
    return [_typed(name) for name, option in options if option.clearable and name not in leave_out]


def _click_option(name: str, option: Option, kind: Any, times: click.ParamType[datetime]) -> Any:
    from ...domain.options import Duration

    flag = _FLAGS.get(name, f"--{_typed(name)}")
    settings: dict[str, Any] = {"help": option.help}
    if kind is bool:
        return click.option(f"{flag}/--no-{_typed(name)}", name, default=None, **settings)
    if kind is datetime:
        settings["type"] = times
    elif kind is int:
        settings["type"] = int
        if option.alone is not None:
            settings |= {"is_flag": False, "flag_value": option.alone}
    elif kind == Duration:
        settings["type"] = DURATION
    elif kind is RetryPolicy:
        settings |= {
            "type": RETRY_POLICY,
            "help": f"Such as initial=5s,multiplier=3,maximum=1h. {option.help}",
        }
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        settings["type"] = click.Choice([str(choice) for choice in kind])
    elif kind == Iterable[str]:
        about = "A tag; may be repeated." if name == "tags" else f"May be repeated. {option.help}"
        settings |= {"multiple": True, "metavar": "NAME", "help": about}
    elif name == "timings":
        settings |= {"multiple": True, "metavar": "TIMING", "help": f"May be repeated. {option.help}"}
    elif name == "metadata":
        settings |= {"type": JSON, "metavar": "JSON"}
    else:
        settings |= {
            "type": _NAMED.get(name),
            "metavar": _METAVARS.get(name, "NAME" if option.pattern else "TEXT"),
        }
    if name in _COMPLETED:
        from . import completing

        settings["shell_complete"] = getattr(completing, _COMPLETED[name])
    return click.option(*_OTHER_FLAGS.get(name, []), flag, name, **settings)


def _typed(name: str) -> str:
    return name.replace("_", "-")
