"""`rota schedule history`: every version of a schedule, and what was different about it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..command import command
from ..render import Cell, seconds
from ..session import Session, with_session
from .schedules import schedule_argument

if TYPE_CHECKING:
    from msgspec import Struct

    from ....domain.model import Event
    from ...python.client import Queue

__all__ = ["history"]

_SILENT = ("version", "updated_at", "updated_by", "due_at", "zone_data", "record", "deleted_at")


@command(examples=["rota schedule history daily-report"])
@schedule_argument
@with_session
def history(session: Session, schedule_id: str) -> None:
    """Who changed what, and when, oldest first. Also of a schedule that is deleted."""

    async def ask(queue: Queue) -> tuple[list[Event], datetime]:
        return await queue.schedule_history(schedule_id), await queue.now()

    events, now = session.run(ask)
    if session.as_json:
        from ...shapes import event as shape

        return session.screen.json([shape(event) for event in events])
    rows = [_row(session, event, now) for event in events]
    return session.screen.table(("AT", "WHO", "WHAT", "CHANGE"), rows)


def _row(session: Session, event: Event, now: datetime) -> list[Cell | str]:
    from ...durations import relative

    at = relative(event.at, now) if session.screen.is_terminal else seconds(event.at)
    return [at, event.actor, Cell(event.action, "bold"), _difference(event)]


def _difference(event: Event) -> str:
    """What is not the same before and after."""
    if not event.before:
        return event.detail
    before, after = _flat(event.before), _flat(event.after or {})
    names = [
        name for name in {**before, **after} if before.get(name) != after.get(name) and name not in _SILENT
    ]
    parts = [f"{name}: {_brief(before.get(name))} → {_brief(after.get(name))}" for name in names]
    return "; ".join([*([event.detail] if event.detail else []), *parts])


def _flat(version: dict[str, Any]) -> dict[str, Any]:
    """Field by field, those of the target and the timing too. What is not stored has its default."""
    from ....domain.model import Schedule, TaskTarget

    target = version.get("target") or {}
    usual = _defaults(TaskTarget) if target.get("type") == "task" else {}
    flat = _defaults(Schedule) | {name: version[name] for name in version if name not in ("target", "timing")}
    for part, values in (("target", usual | target), ("timing", version.get("timing") or {})):
        flat |= {f"{part}.{name}": value for name, value in values.items()}
    return flat


def _defaults(record: type[Struct]) -> dict[str, Any]:
    from msgspec import NODEFAULT, to_builtins
    from msgspec.structs import fields

    return {each.name: to_builtins(each.default) for each in fields(record) if each.default is not NODEFAULT}


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return "-" if value is None else text if len(text) <= 80 else f"{text[:79]}…"
