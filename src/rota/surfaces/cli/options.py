"""The options of commands: what is typed becomes a value, and a shape of `domain.options` becomes options."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...domain.errors import Invalid
from ..durations import parsed
from ..settings import parsed_size

if TYPE_CHECKING:
    from ...domain.model import RetryPolicy
    from ...domain.options import Option

__all__ = [
    "DURATION",
    "JSON",
    "JSON_TEXT",
    "LOG_LEVELS",
    "NONE",
    "NUMBER_OR_NONE",
    "PROCESSES",
    "RETRY_POLICY",
    "SIZE",
    "TIME",
    "WALL_TIME",
    "clearable",
    "json_lines",
    "shape_options",
    "together",
]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

LOG_LEVELS = ("debug", "info", "warning", "error")
_TIMES = "write it as 2026-01-28T09:00:00Z, 2026-01-28T09:00+01:00, or 2026-01-28T09:00 for local time"


class DurationType(click.ParamType[timedelta]):
    """`30s 5m 1h 7d 2w`, also `1h30m`, or a number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return parsed("", value)
        except Invalid as problem:
            self.fail(str(problem).removeprefix(": "), param, ctx)


class TimeType(click.ParamType[datetime]):
    """An ISO 8601 time. A naive one is the local time of the process, or is left naive (`keep_naive`)."""

    name = "time"

    def __init__(self, *, keep_naive: bool = False) -> None:
        self._keep_naive = keep_naive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        from ...engine.clock import aware

        if isinstance(value, datetime):
            return value
        try:
            at = datetime.fromisoformat(value.strip())
            return at if self._keep_naive and at.tzinfo is None else aware(at)
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r:.60} is not a time; {_TIMES}", param, ctx)


class ProcessesType(click.ParamType[int]):
    """A number, or `auto` for as many as this machine has processors."""

    name = "n|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "auto":
            return os.cpu_count() or 1
        if not str(value).isascii() or not str(value).isdigit() or not 1 <= int(str(value)[:4]) <= 256:
            self.fail(f"{value!r:.60} is not accepted; give a number from 1 to 256, or auto", param, ctx)
        return int(value)


class JsonText(click.ParamType[Any]):
    """JSON, `@file`, or `-` for stdin. It gives the text, not parsed: that may be one value or a line for each."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not isinstance(value, str):
            self.fail(f"{value!r:.60} is not JSON", param, ctx)
        try:
            if value == "-":
                return sys.stdin.buffer.read().decode("utf-8")
            if value.startswith("@"):
                return Path(value[1:]).read_text("utf-8")
        except OSError as problem:
            self.fail(f"{value[1:]} cannot be read: {problem.strerror}", param, ctx)
        except UnicodeDecodeError:
            self.fail("it is not UTF-8 text", param, ctx)
        return value


class Json(JsonText):
    """One JSON value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = super().convert(value, param, ctx)
        try:
            return one_value(text)
        except ValueError as problem:
            self.fail(f"{_excerpt(text)} is not JSON: {problem}", param, ctx)


class RetryPolicyText(click.ParamType["RetryPolicy"]):
    """`initial=5s,multiplier=3,maximum=1h,jitter=0.1`: what is left out has its default."""

    name = "policy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> RetryPolicy:
        from ...domain.model import RetryPolicy
        from ...domain.options import Duration, RetryPolicyOptions, options_of, value_type

        if isinstance(value, RetryPolicy):
            return value
        given: dict[str, Any] = {}
        for part in value.split(","):
            name, _, text = (each.strip() for each in part.partition("="))
            if name not in options_of(RetryPolicyOptions):
                accepted = ", ".join(options_of(RetryPolicyOptions))
                self.fail(
                    f"{part!r:.60} is not a part of it; accepted are {accepted}, as in initial=5s", param, ctx
                )
            try:
                is_duration = value_type(RetryPolicyOptions, name) == Duration
                given[name] = DURATION.convert(text, param, ctx) if is_duration else float(text)
            except ValueError:
                self.fail(f"{part!r:.60} is not a number", param, ctx)
        return RetryPolicy(**given)


class SizeType(click.ParamType[int]):
    """`200000`, `512KB`, `1MB`: bytes, in powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        size = parsed_size(value)
        if size is None:
            self.fail(f"{value!r:.60} is not a size; write bytes, or 512KB, or 1MB", param, ctx)
        return size


class NumberOrNone(click.ParamType[Any]):
    """A whole number, or `none` (kept as that word) for no limit."""

    name = "number|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == NONE or isinstance(value, int):
            return value
        if not value.strip().isascii() or not value.strip().isdigit():
            self.fail(f"{value!r:.60} is not a whole number; write one, or none", param, ctx)
        return int(value)


NONE = "none"
DURATION = DurationType()
SIZE = SizeType()
PROCESSES = ProcessesType()
RETRY_POLICY = RetryPolicyText()
NUMBER_OR_NONE = NumberOrNone()
TIME = TimeType()
WALL_TIME = TimeType(keep_naive=True)
JSON_TEXT = JsonText()
JSON = Json()


def one_value(text: str) -> Any:
    import json

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
    "timings": "--timing",
    "rules": "--rule",
    "windows": "--window",
}
"""Shorter to type than the name."""
_COMPLETED = {"task_type": "kinds", "timezone": "zones"}
"""What the shell completes, by `completing`."""
_METAVARS = {"cron": "LINE", "rrule": "RULE", "timezone": "ZONE", "task_type": "TYPE"}


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator. The help shows them in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def shape_options(
    shape: type, *, times: click.ParamType[datetime], leave_out: Collection[str] = ()
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
    from ...domain.model import RetryPolicy
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
        settings["metavar"] = _METAVARS.get(name, "NAME" if option.pattern else "TEXT")
    if name in _COMPLETED:
        from . import completing

        settings["shell_complete"] = getattr(completing, _COMPLETED[name])
    others = {"task_type": ["-t", "--type", "--kind"], "run_at": ["--at"]}.get(name, [])
    return click.option(*others, flag, name, **settings)


def _typed(name: str) -> str:
    return name.replace("_", "-")
