"""Bringing along what another scheduler has: `rota import crontab`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from ...words import counted
from ..command import command
from ..session import Session, with_session

__all__ = ["crontab"]

_ZONES = "zoneinfo/"
_OF_SYSTEM = ("/etc/crontab", "/etc/cron.d/")


@command(
    examples=[
        "rota import crontab -o rota.yaml",
        "rota import crontab /etc/crontab --timezone Europe/Berlin",
        "rota apply rota.yaml",
    ]
)
@click.argument("file", required=False, metavar="[FILE]")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@click.option("--format", "format_", type=click.Choice(["yaml", "toml", "json"]), help="[default: yaml]")
@click.option(
    "--timezone", metavar="ZONE", help="The clock that cron runs on. [default: that of this machine]"
)
@click.option(
    "--system/--user",
    default=None,
    help="Whether its lines name a user. [default: those of /etc/crontab and /etc/cron.d do]",
)
@with_session
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
    found = imported(_text(file), timezone=zone, system=is_system)
    chosen = format_ or ("yaml" if output is None else files.format_of(output))
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


def _text(file: str | None) -> str:
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
            named = os.readlink("/etc/localtime").partition(_ZONES)[2]
        except OSError:
            named = ""
    return named or "UTC"
