"""Apps on the command line. An app is named as `module:app`. `rota` alone looks for apps in the current folder and
proposes to run them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ...engine.app import App

_MOST_FILES = 200
_LARGEST = 200_000


def load_app(name: str | None) -> App | None:
    """The app at `module:app`; the current folder is on the path. None: no app was named."""
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


_OURS = str(Path(__file__).parents[2])
"""Where the code of Rota is."""


def _where(problem: Exception) -> str:
    """The user's line that failed."""
    trace = problem.__traceback__
    place = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if "importlib" not in file and not file.startswith(("<", _OURS)):
            place = f" ({file}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return place


def next_command() -> str:
    """The next thing to do here, in one or two lines."""
    found = list(apps_in(Path()))
    if not found:
        return f"Begin with {_typed('rota up --demo')}: schedules that fire before your eyes."
    if len(found) == 1:
        return f"There is an app here. Run it with {_typed(f'rota up {found[0]}')}"
    return f"There are apps here: {', '.join(found)}. Run one with {_typed(f'rota up {found[0]}')}"


def apps_in(folder: Path) -> Iterator[str]:
    """Each `module:name` of this folder, and of the packages in it, to which a file assigns an App. Nothing is run."""
    packages = [sign.parent for sign in folder.glob("*/__init__.py")]
    for file in sorted(file for each in (folder, *packages) for file in each.glob("*.py"))[:_MOST_FILES]:
        place = file.relative_to(folder)
        module = ".".join(place.with_suffix("").parts)
        if all(part.isidentifier() for part in module.split(".")):
            yield from (f"{module}:{name}" for name in _apps_of(file))


def _apps_of(file: Path) -> Iterator[str]:
    try:
        text = file.read_text("utf-8") if file.stat().st_size <= _LARGEST else ""
        parsed = ast.parse(text) if "App(" in text and "rota" in text else ast.parse("")
    except (OSError, ValueError, SyntaxError):
        return
    for line in parsed.body:
        value, targets = (
            getattr(line, "value", None),
            getattr(line, "targets", [getattr(line, "target", None)]),
        )
        called = value.func if isinstance(value, ast.Call) else None
        if ast.unparse(called) in ("App", "rota.App") if called is not None else False:
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _typed(line: str) -> str:
    return click.style(line, bold=True)
