"""Schedules in a file: plan, apply, export, and import, which makes such a file of a crontab."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...words import counted
from ..options import together
from ..session import Session, command

if TYPE_CHECKING:
    from ....domain.plan import Plan
    from ....engine.app import App
    from ...python.client import Queue

_FORMATS = ["yaml", "toml", "json"]
_OF_SYSTEM = ("/etc/crontab", "/etc/cron.d/")
_source = click.argument("file")
_output = click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file."
)
_options = together(
    click.option("--prune", is_flag=True, help="Pause the schedules that the file had and no longer has."),
    click.option("--force", is_flag=True, help="Overwrite what was edited by hand since the last apply."),
)


@command(examples=["rota plan rota.yaml", "rota plan rota.yaml --check", "rota plan shop.tasks:app"])
@_source
@_options
@click.option("--all", "everything", is_flag=True, help="Show every change, however many there are.")
@click.option("--check", is_flag=True, help="Exit with 1 if anything would change.")
def plan(session: Session, file: str, prune: bool, force: bool, everything: bool, check: bool) -> None:
    """Show what a file would change: schedules and templates that are created, changed and removed, and which times
    within the next 14 days appear, vanish or move. Nothing is written.

    FILE is a .yaml, .toml or .json file, or the app of a module (shop.tasks:app)."""
    source = _source_of(session, file)
    made = session.run(lambda queue: _planned(session, queue, source, prune=prune, force=force))
    _show_plan(session, made, prune=prune, everything=everything)
    if check and made.changes:
        raise click.exceptions.Exit(1)


@command(examples=["rota apply rota.yaml", "rota apply rota.yaml --yes --prune"])
@_source
@_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def apply(session: Session, file: str, prune: bool, force: bool, yes: bool) -> None:
    """Make the store say what a file says, in one transaction. The plan is shown, and done if you agree and if it still
    holds then. It runs nothing by itself."""
    from ... import plans

    check_can_ask(yes)
    source = _source_of(session, file)

    async def work(queue: Queue) -> Plan | None:
        made = await _planned(session, queue, source, prune=prune, force=force)
        if not session.as_json:
            _show_plan(session, made, prune=prune)
        session.screen.still()
        if made.changes and not confirmed("Apply this?", yes):
            return None
        steps = len(_schedules_of(source)) + 2 * sum(bool(each.differences) for each in made.schedules)
        what = f"applying {counted(len(made.changes), 'change')}"
        with session.screen.progress(what, steps) as bar:
            return await queue.apply(source, made, prune=prune, force=force, report=bar.advance)

    done = session.run(work, creates=True)
    if done is None:
        session.screen.remark("nothing was changed")
        raise click.exceptions.Exit(1)
    if session.as_json:
        return session.screen.json(plans.answer(done))
    return session.screen.say("Applied." if done.changes else "Nothing to do.")


@command(examples=["rota export > rota.yaml", "rota export -o schedules.toml", "rota export --format json"])
@_output
@click.option("--format", "format_", type=click.Choice(_FORMATS), help="[default: that of the file; yaml]")
def export(session: Session, output: Path | None, format_: str | None) -> None:
    """Write all schedules and templates as a file that `rota plan` and `rota apply` take. Applied at once, it changes
    nothing."""
    from ... import files

    chosen = "json" if output is None and session.as_json else _format(format_, output)
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


@command(
    examples=[
        "rota import crontab -o rota.yaml",
        "rota import crontab /etc/crontab --timezone Europe/Berlin",
        "rota apply rota.yaml",
    ]
)
@click.argument("file", required=False, metavar="[FILE]")
@_output
@click.option("--format", "format_", type=click.Choice(_FORMATS), help="[default: yaml]")
@click.option(
    "--timezone", metavar="ZONE", help="The clock that cron runs on. [default: that of this machine]"
)
@click.option(
    "--system/--user",
    default=None,
    help="Whether its lines name a user. [default: those of /etc/crontab and /etc/cron.d do]",
)
def crontab(
    session: Session,
    file: str | None,
    output: Path | None,
    format_: str | None,
    timezone: str | None,
    system: bool | None,
) -> None:
    """Turn a crontab into a file of schedules and shell templates, for `rota plan` and `rota apply`. It changes nothing
    by itself, and says what it could not take.

    FILE is a crontab, or - for stdin; without one it is that of the user (crontab -l). Workers run shell commands only
    with --allow-shell."""
    from ... import files
    from ...crontab import imported

    zone = timezone or _local_zone()
    is_system = str(file).startswith(_OF_SYSTEM) if system is None else system
    found = imported(_crontab(file), timezone=zone, system=is_system)
    chosen = _format(format_, output)
    for remark in found.remarks:
        session.screen.warn(remark)
    if output is None:
        click.echo(files.write(found.document, "json" if session.as_json else chosen), nl=False)
    else:
        output.write_text(files.write(found.document, chosen), "utf-8")
        if session.as_json:
            session.screen.json({"file": str(output), "taken": found.taken, "zones": list(found.zones)})
            return
    clocks = ", ".join(found.zones) or zone
    said = (
        f"took {counted(found.taken, 'line')}, on the clock of {clocks}; nothing is changed yet:"
        f" `rota apply {'FILE' if output is None else output}` shows what would be, and asks"
    )
    session.screen.remark(said)


def check_can_ask(yes: bool) -> None:
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("nobody can be asked here: give --yes")


def confirmed(question: str, yes: bool) -> bool:
    return yes or click.confirm(question, err=True)


def _show_plan(session: Session, made: Plan, *, prune: bool, everything: bool = False) -> None:
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
    """The declarations of a file, or else the app of a module."""
    from ... import files

    path = Path(name)
    if name.endswith(tuple(files.SUFFIXES)) or path.exists():
        size = path.stat().st_size if files.format_of(path) == "yaml" and path.is_file() else None
        with session.screen.progress(f"reading {name}", size, of_bytes=True) as bar:
            return files.read(path, report=bar.advance)
    from ..apps import load_app

    found = load_app(name)
    assert found is not None, "a name was given"
    return found


def _format(given: str | None, output: Path | None) -> str:
    from ... import files

    return given or ("yaml" if output is None else files.format_of(output))


def _crontab(file: str | None) -> str:
    import subprocess

    try:
        if file == "-":
            return sys.stdin.read()
        if file is not None:
            return Path(file).read_text("utf-8", "replace")
        listed = subprocess.run(["crontab", "-l"], capture_output=True, text=True, check=False)
    except OSError as problem:
        what = "crontab -l" if file is None else file
        raise click.UsageError(f"{what} cannot be read: {problem.strerror}; name a file") from None
    if listed.returncode:
        said = listed.stderr.strip() or "there is none"
        raise click.UsageError(f"crontab -l says: {said}; name a file")
    return listed.stdout


def _local_zone() -> str:
    """The zone of this machine by its name; UTC if it has none."""
    named = os.environ.get("TZ", "").lstrip(":")
    if not named:
        try:
            named = os.readlink("/etc/localtime").partition("zoneinfo/")[2]
        except OSError:
            named = ""
    return named or "UTC"
