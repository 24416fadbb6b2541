"""Apps as they are named on the command line: `module:app`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ...engine.app import App

__all__ = ["load_app"]


def load_app(name: str | None) -> App | None:
    """The app at `module:app`; the current folder is on the path. None: no app was named."""
    from importlib import import_module

    from ...engine.app import App

    if name is None:
        return None
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
