"""The options that a command takes from a declared shape of `domain.options`: their names, types and help."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any

import click

from ...domain.model import RetryPolicy
from ...domain.options import Duration, Option, options_of, value_type
from .parse import DURATION, JSON, RETRY_POLICY

__all__ = ["clearable", "shape_options"]

_FLAGS = {"tags": "--tag", "idempotency_key": "--key", "schedule_at": "--at", "task_type": "--task-type"}
"""Shorter to type than the name."""
_METAVARS = {"cron": "LINE", "rrule": "RULE", "timezone": "ZONE", "task_type": "TYPE"}


def shape_options(
    shape: type, *, times: click.ParamType[datetime], leave_out: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the command takes every option of the shape, under its name."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for name, option in reversed(options_of(shape).items()):
            if name not in leave_out:
                function = _click_option(name, option, value_type(shape, name), times)(function)
        return function

    return decorate


def clearable(shape: type, *, leave_out: Collection[str] = ()) -> list[str]:
    """What can be taken away again, as it is typed."""
    options = options_of(shape).items()
    return [_typed(name) for name, option in options if option.clearable and name not in leave_out]


def _click_option(name: str, option: Option, kind: Any, times: click.ParamType[datetime]) -> Any:
    flag = _FLAGS.get(name, f"--{_typed(name)}")
    settings: dict[str, Any] = {"help": option.help}
    if kind is bool:
        return click.option(f"{flag}/--no-{_typed(name)}", name, default=None, **settings)
    if kind is datetime:
        settings["type"] = times
    elif kind is int:
        settings["type"] = int
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
    elif name == "metadata":
        settings |= {"type": JSON, "metavar": "JSON"}
    else:
        settings["metavar"] = _METAVARS.get(name, "NAME" if option.pattern else "TEXT")
    short = ["-t"] if name == "task_type" else []
    return click.option(*short, flag, name, **settings)


def _typed(name: str) -> str:
    return name.replace("_", "-")
