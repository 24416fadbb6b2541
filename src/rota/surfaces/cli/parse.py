"""What is typed, turned into values: durations, times, JSON, and the app that a module holds."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ...domain.model import RetryPolicy
    from ...engine.app import App

__all__ = [
    "DURATION",
    "JSON",
    "NONE",
    "NUMBER_OR_NONE",
    "RETRY_POLICY",
    "SIZE",
    "TIME",
    "WALL_TIME",
    "json_lines",
    "load_app",
]

_TIMES = "write it as 2026-01-28T09:00:00Z, 2026-01-28T09:00+01:00, or 2026-01-28T09:00 for local time"


class Duration(click.ParamType[timedelta]):
    """`30s 5m 1h 7d 2w`, also `1h30m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        from ...domain.errors import Invalid
        from ..durations import parsed

        if isinstance(value, timedelta):
            return value
        try:
            return parsed("", value)
        except Invalid as problem:
            self.fail(str(problem).removeprefix(": "), param, ctx)


class Time(click.ParamType[datetime]):
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


class JsonText(click.ParamType[Any]):
    """JSON as it stands, `@file`, or `-` for stdin. The text, not parsed: it may be one value or a line
    for each."""

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


class Size(click.ParamType[int]):
    """`200000`, `512KB`, `1MB`: bytes, in powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        import re

        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]{1,12}) ?(|B|KB|KIB|MB|MIB)", value.strip().upper())
        if found is None:
            self.fail(f"{value!r:.60} is not a size; write bytes, or 512KB, or 1MB", param, ctx)
        return int(found[1]) * {"K": 1024, "M": 1024 * 1024}.get(found[2][:1], 1)


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
DURATION = Duration()
SIZE = Size()
RETRY_POLICY = RetryPolicyText()
NUMBER_OR_NONE = NumberOrNone()
TIME = Time()
WALL_TIME = Time(keep_naive=True)
JSON_TEXT = JsonText()
JSON = Json()


def one_value(text: str) -> Any:
    import json

    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_lines(text: str, *, by_line: bool = False) -> list[Any]:
    """The value, or one for each line. A text that is one JSON value is one value, however many lines it
    has."""
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


def load_app(name: str) -> App:
    """The app at `module:app`, the current folder being on the path."""
    from importlib import import_module

    from ...engine.app import App

    module_name, _, attribute = name.partition(":")
    if not module_name:
        raise _bad_app(f"{name!r} names no module; write module:app, such as shop.tasks:app")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (
            module_name == problem.name or module_name.startswith(f"{problem.name}.")
        ):
            raise _bad_app(f"there is no module {module_name!r} here or on the Python path") from None
        raise _bad_app(f"{module_name} cannot be imported: {problem}") from None
    except Exception as problem:
        where = _where(problem)
        raise _bad_app(
            f"{module_name} cannot be imported: {type(problem).__name__}: {problem}{where}"
        ) from None
    found = getattr(module, attribute or "app", None)
    if not isinstance(found, App):
        raise _bad_app(_no_app(module, module_name, attribute or "app", found))
    return found


def _bad_app(sentence: str) -> click.ClickException:
    return click.BadParameter(sentence, param_hint="APP")


def _no_app(module: Any, module_name: str, attribute: str, found: Any) -> str:
    from ...engine.app import App

    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    what = f"has no {attribute!r}" if found is None else f"has a {attribute!r} that is no rota.App"
    advice = f"did you mean {module_name}:{apps[0]}?" if apps else "it has no rota.App at all"
    return f"{module_name} {what}; {advice}"


def _where(problem: Exception) -> str:
    """The user's line that failed."""
    trace = problem.__traceback__
    place = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if "importlib" not in file and not file.startswith("<"):
            place = f" ({file}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return place
