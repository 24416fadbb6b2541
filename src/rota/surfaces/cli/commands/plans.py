"""Schedules in a file: plan, apply, export."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...words import counted
from ..command import command
from ..options import together
from ..session import Session, with_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ....domain.plan import Plan
    from ....engine.app import App
    from ...python.client import Queue

__all__ = ["applied", "apply", "check_can_ask", "confirmed", "export", "plan", "show_plan"]

_SUFFIXES = (".yaml", ".yml", ".toml", ".json")
_source = click.argument("file")
_options = together(
    click.option("--prune", is_flag=True, help="Pause the schedules that the file had and no longer has."),
    click.option("--force", is_flag=True, help="Overwrite what was edited by hand since the last apply."),
)


@command(
    examples=[
        "rota plan rota.yaml",
        "rota plan rota.yaml --check",
        "rota plan shop.tasks:app",
    ]
)
@_source
@_options
@click.option("--all", "everything", is_flag=True, help="Show every change, however many there are.")
@click.option("--check", is_flag=True, help="Exit with 1 if anything would change.")
@with_session
def plan(session: Session, file: str, prune: bool, force: bool, everything: bool, check: bool) -> None:
    """Show what a file would change: schedules and templates that are created, changed and removed, and which times
    within the next 14 days appear, vanish or move. Nothing is written.

    FILE is a .yaml, .toml or .json file, or the app of a module (shop.tasks:app)."""
    source = _source_of(session, file)
    made = session.run(lambda queue: _planned(session, queue, source, prune=prune, force=force))
    show_plan(session, made, prune=prune, everything=everything)
    if check and made.changes:
        raise click.exceptions.Exit(1)


@command(examples=["rota apply rota.yaml", "rota apply rota.yaml --yes --prune"])
@_source
@_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_session
def apply(session: Session, file: str, prune: bool, force: bool, yes: bool) -> None:
    """Make the store say what a file says, in one transaction. The plan is shown, and done if you agree and if it still
    holds then. It runs nothing by itself."""
    check_can_ask(yes)
    source = _source_of(session, file)

    async def work(queue: Queue) -> Plan | None:
        made = await _planned(session, queue, source, prune=prune, force=force)
        if not session.as_json:
            show_plan(session, made, prune=prune)
        session.screen.still()
        if made.changes and not confirmed("Apply this?", yes):
            return None
        steps = len(_schedules_of(source)) + 2 * sum(bool(each.differences) for each in made.schedules)
        what = f"applying {counted(len(made.changes), 'change')}"
        with session.screen.progress(what, steps) as bar:
            return await queue.apply(source, made, prune=prune, force=force, report=bar.advance)

    applied(session, work)


@command(
    examples=["rota export > rota.yaml", "rota export -o schedules.toml", "rota export --format json"],
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["yaml", "toml", "json"]),
    help="[default: that of the file; yaml]",
)
@with_session
def export(session: Session, output: Path | None, format_: str | None) -> None:
    """Write all schedules and templates as a file that `rota plan` and `rota apply` take. Applied at once, it changes
    nothing."""
    from ... import files

    chosen = format_ or ("yaml" if output is None else files.format_of(output))
    if output is None and session.as_json:
        chosen = "json"
    document = session.run(lambda queue: queue.export())
    number = sum(map(len, document.values()))
    with session.screen.progress(f"writing {chosen.upper()}", number) as bar:
        text = files.write(document, chosen, report=bar.advance)
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text, "utf-8")
    if session.as_json:
        session.screen.json(
            {"file": str(output), **{section: len(named) for section, named in document.items()}}
        )
        return
    found = ", ".join(counted(len(named), section.removesuffix("s")) for section, named in document.items())
    session.screen.remark(f"wrote {output}: {found}")


def applied(session: Session, work: Callable[[Queue], Awaitable[Plan | None]]) -> None:
    """Do it, and say so."""
    from ... import plans

    done = session.run(work, creates=True)
    if done is None:
        session.screen.remark("nothing was changed")
        raise click.exceptions.Exit(1)
    if session.as_json:
        return session.screen.json(plans.answer(done))
    return session.screen.say("Applied." if done.changes else "Nothing to do.")


def check_can_ask(yes: bool) -> None:
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("nobody can be asked here: give --yes")


def confirmed(question: str, yes: bool) -> bool:
    """Whether the user agrees."""
    return yes or click.confirm(question, err=True)


def show_plan(session: Session, made: Plan, *, prune: bool = False, everything: bool = False) -> None:
    from ... import plans

    if session.as_json:
        return session.screen.json(plans.answer(made))
    for line in plans.lines(made, prune=prune, most=None if everything else 40):
        colour = _COLOURS.get(line[:1])
        if line.startswith(f"    {plans.WARNING}"):
            line = click.style(line, fg="yellow", bold=True)
        session.screen.prose(click.style(line, fg=colour) if colour else line, hang=6)
    if made.changes or made.kept:
        session.screen.say()
    return session.screen.say(plans.summary(made))


_COLOURS = {"+": "green", "~": "yellow", "-": "red"}


async def _planned(session: Session, queue: Queue, source: App | Mapping[str, Any], **how: bool) -> Plan:
    with session.screen.progress("planning", len(_schedules_of(source))) as bar:
        return await queue.plan(source, **how, report=bar.advance)


def _schedules_of(source: App | Mapping[str, Any]) -> Mapping[str, Any]:
    return source.get("schedules", {}) if isinstance(source, Mapping) else source.schedules


def _source_of(session: Session, name: str) -> App | Mapping[str, Any]:
    """What a file declares, or else the app of a module."""
    if name.endswith(_SUFFIXES) or Path(name).exists():
        from ... import files

        path = Path(name)
        size = path.stat().st_size if files.format_of(path) == "yaml" and path.is_file() else None
        with session.screen.progress(f"reading {name}", size, of_bytes=True) as bar:
            return files.read(path, report=bar.advance)
    from ..apps import load_app

    found = load_app(name)
    assert found is not None, "a name was given"
    return found
