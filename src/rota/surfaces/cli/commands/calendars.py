"""Commands about calendars: named sets of days and windows."""

from __future__ import annotations

from typing import Any

import click

from ....domain.model import Calendar
from ....domain.schedule.calendar_options import MOST_ICS, CalendarOptions
from ...words import counted
from .. import completing
from ..options import given, shape_options, together
from ..render import Cell
from ..session import Session, command

_options = together(
    click.option("--day", "days", multiple=True, metavar="DAY", help="Such as 2027-12-24; may be repeated."),
    shape_options(CalendarOptions, leave_out=("days", "ics")),
    click.option("--ics", metavar="FILE", help="A file with all-day events; - reads what is piped in."),
)


@command(
    examples=[
        "rota calendar create uk-holidays --country GB --subdivision ENG",
        "rota calendar create team --ics team.ics",
        "rota calendar create closing-days --day 2027-12-24 --day 2027-12-31",
        "rota calendar create weekends --rule 'FREQ=WEEKLY;BYDAY=SA,SU'",
        "rota calendar create month-end --rule 'FREQ=MONTHLY;BYMONTHDAY=-1'",
        "rota calendar create nights --window 22:00-06:00 --timezone Europe/London",
    ]
)
@click.argument("name")
@_options
def create(session: Session, name: str, **options: Any) -> None:
    """Store days and windows under a name. Schedules name it in --exclude or --only."""
    fields = _fields(options)
    made = session.run(lambda queue: queue.create_calendar(name, **fields), creates=True)
    _answer(session, made, "created")


@command(examples=["rota calendar update closing-days --day 2027-12-24 --day 2027-12-31 --day 2028-01-02"])
@click.argument("name", shell_complete=completing.calendars)
@_options
@click.option("--version", type=int, help="Only if it is still at this version.")
def update(session: Session, name: str, version: int | None, **options: Any) -> None:
    """Change what is named, nothing else; days given replace all that were there. Its schedules are planned anew."""
    changes = _fields(options)
    if not changes:
        raise click.UsageError("nothing to change was given")
    changed = session.run(lambda queue: queue.update_calendar(name, version=version, **changes))
    _answer(session, changed, "updated")


@command(examples=["rota calendar list", "rota calendar list --json | jq '.calendars[].name'"])
def list_calendars(session: Session) -> None:
    """All calendars, by name."""
    found, now = session.run_timed(lambda queue: queue.list_calendars())
    if session.as_json:
        return session.screen.json({"calendars": found})
    if not found:
        return session.say_none("calendars", {}, "`rota calendar create --help` shows how to make one")
    rows: list[list[Cell | str]] = [
        [
            Cell(each.name, "bold"),
            _summary(each),
            each.timezone or "",
            session.screen.away(each.updated_at, now),
        ]
        for each in found
    ]
    return session.screen.table(
        ("NAME", "COVERS", "ZONE", "CHANGED"), rows, yields=("CHANGED", "ZONE", "COVERS")
    )


@command(examples=["rota calendar show closing-days", "rota calendar show closing-days --json"])
@click.argument("name", shell_complete=completing.calendars)
def show(session: Session, name: str) -> None:
    """One calendar."""
    found = session.run(lambda queue: queue.get_calendar(name))
    if session.as_json:
        return session.screen.json(found)
    screen = session.screen
    screen.say(click.style(found.name, bold=True))
    if found.description:
        screen.say(f"  {found.description}")
    for title, values in (("days", found.days), ("rules", found.rules), ("windows", found.windows)):
        for number, value in enumerate(values):
            screen.say(f"  {title if not number else '':9} {value}")
    screen.say(f"  zone      {found.timezone or 'that of each schedule'}")
    return screen.say(f"  changed   {screen.clock(found.updated_at)}, version {found.version}")


@command(examples=["rota calendar delete closing-days"])
@click.argument("name", shell_complete=completing.calendars)
def delete(session: Session, name: str) -> None:
    """Remove it for good; refused while a schedule names it."""
    session.run(lambda queue: queue.delete_calendar(name))
    session.tell({"name": name, "deleted": True}, f"deleted {name}")


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    fields = given(options)
    if "ics" in fields:
        fields["ics"] = _read(fields["ics"])
    return fields


def _read(name: str) -> str:
    try:
        with click.open_file(name, encoding="utf-8") as file:
            return str(file.read(MOST_ICS + 1))
    except OSError as problem:
        raise click.BadParameter(f"{name} cannot be read: {problem.strerror}", param_hint="--ics") from None
    except UnicodeDecodeError:
        raise click.BadParameter(f"{name} is not UTF-8 text", param_hint="--ics") from None


def _answer(session: Session, calendar: Calendar, verb: str) -> None:
    session.tell(calendar, f"{verb} {click.style(calendar.name, bold=True)}: {_summary(calendar)}")


def _summary(calendar: Calendar) -> str:
    """`12 days until 2027-12-31, 1 rule, 22:00-06:00`"""
    days, rules = len(calendar.days), len(calendar.rules)
    parts = [f"{counted(days, 'day')} until {calendar.days[-1]}"] if days else []
    parts += [counted(rules, "rule")] if rules else []
    return ", ".join([*parts, *calendar.windows])
