"""Commands about alarms: what is wrong, and what is to be an alarm."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ....domain.model import Alarm, AlarmRules
from ....domain.options import AlarmOptions
from ...durations import short
from .. import completing
from ..options import SCHEDULE, given, shape_options
from ..render import Cell
from ..session import Session, command

if TYPE_CHECKING:
    from ...python.client import Queue


@command(
    examples=["rota alarms", "rota alarms --over --schedule nightly", "rota alarms --json | jq '.[].subject'"]
)
@click.option("--over", is_flag=True, help="Those that are over, too.")
@click.option(
    "--schedule",
    type=SCHEDULE,
    metavar="NAME",
    shell_complete=completing.schedules,
    help="Of this schedule, by its id or name.",
)
@click.option("--limit", type=int, default=100, show_default=True, metavar="N", help="How many at most.")
def alarms(session: Session, over: bool, schedule: str | None, limit: int) -> None:
    """What is wrong: schedules that are late, stopped, fail or take too long, and a fleet that does not do its work.
    `rota alarm-rules` says what is to be an alarm for a tag; the --alarm options of a schedule, for that one."""

    async def ask(queue: Queue) -> tuple[list[Alarm], datetime]:
        own = await queue.alarms(schedule=schedule, over=over, limit=limit)
        fleet = [] if schedule else await queue.alarms(fleet=True, over=over, limit=limit)
        found = sorted((*own, *fleet), key=lambda each: each.began_at, reverse=True)
        return found[:limit], await queue.now()

    found, now = session.run(ask)
    if session.as_json:
        return session.screen.json(found)
    if not found:
        return session.say_none("alarms" if over else "open alarms", {"schedule": schedule})
    headings = ("BEGAN", "STATE", "RULE", "SUBJECT", "WHAT", "TOLD")
    rows = [_row(session, each, now) for each in found]
    return session.screen.table(headings, rows, yields=("TOLD", "RULE", "SUBJECT", "WHAT"))


def _row(session: Session, alarm: Alarm, now: datetime) -> list[Cell | str]:
    began = session.screen.away(alarm.began_at, now)
    state = Cell("open", "red")
    if alarm.over_at is not None:
        state = Cell(f"over after {short(alarm.over_at - alarm.began_at)}", "green")
    return [began, state, str(alarm.rule), Cell(alarm.subject, "bold"), alarm.detail, ", ".join(alarm.told)]


@command(
    examples=[
        "rota alarm-rules",
        "rota alarm-rules billing --alarm-late 5m --alarm-failures 2",
        "rota alarm-rules billing --remove",
    ]
)
@click.argument("tag", required=False)
@shape_options(AlarmOptions)
@click.option("--remove", is_flag=True, help="Take its rules away.")
def rules(session: Session, tag: str | None, remove: bool, **options: Any) -> None:
    """The rules of tags: they hold for every schedule whose target has the tag, and has no such rule of its own. With
    options: the rules of the tag, instead of those it had."""
    wanted = given(options)
    if (wanted or remove) and tag is None:
        raise click.UsageError("name the tag that the rules are for")
    if wanted and remove:
        raise click.UsageError("give rules, or --remove")

    async def act(queue: Queue) -> dict[str, AlarmRules]:
        if tag is not None and remove:
            await queue.remove_alarm_rules(tag)
        elif tag is not None and wanted:
            await queue.set_alarm_rules(tag, **wanted)
        found = await queue.alarm_rules()
        return found if tag is None else {name: each for name, each in found.items() if name == tag}

    _show_rules(session, session.run(act))


def _show_rules(session: Session, found: dict[str, AlarmRules]) -> None:
    if session.as_json:
        return session.screen.json(dict(sorted(found.items())))
    if not found:
        return session.say_none("rules of tags", {}, "`rota alarm-rules --help` shows how to give some")
    return session.screen.table(
        ("TAG", "RULES"), [[Cell(tag, "bold"), _words(each)] for tag, each in sorted(found.items())]
    )


def _words(rules: AlarmRules) -> str:
    values = [(name, getattr(rules, name)) for name in rules.__struct_fields__]
    return ", ".join(
        f"{name.removeprefix('alarm_')} {value if isinstance(value, int) else short(value)}"
        for name, value in values
        if value is not None
    )
