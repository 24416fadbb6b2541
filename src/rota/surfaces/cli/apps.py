"""Apps in the current folder: what `rota` alone proposes to run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click

__all__ = ["apps_in", "next_command"]

_MOST_FILES = 200
_LARGEST = 200_000


def next_command(folder: Path | None = None) -> str:
    """What to do next here, in one or two lines."""
    found = list(apps_in(folder or Path()))
    if not found:
        return f"Begin with {_typed('rota up --demo')}: schedules that fire before your eyes."
    if len(found) == 1:
        return f"There is an app here. Run it with {_typed(f'rota up {found[0]}')}"
    return f"There are apps here: {', '.join(found)}. Run one with {_typed(f'rota up {found[0]}')}"


def apps_in(folder: Path) -> Iterator[str]:
    """Each `module:name` of this folder, and of the packages in it, to which a file assigns an App. Nothing is run."""
    files = sorted([*folder.glob("*.py"), *_in_packages(folder)])[:_MOST_FILES]
    for file in files:
        place = file.relative_to(folder)
        module = ".".join(place.with_suffix("").parts)
        if all(part.isidentifier() for part in module.split(".")):
            yield from (f"{module}:{name}" for name in _apps_of(file))


def _in_packages(folder: Path) -> Iterator[Path]:
    for sign in folder.glob("*/__init__.py"):
        yield from sign.parent.glob("*.py")


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
