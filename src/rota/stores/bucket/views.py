"""The views: objects for people and scripts, kept up to date beside the log.

    schedules/{key}.json                  the schedule: all its options, and its state
    schedules/{key}/last_run.json         when it ran last, which task that was, when it runs next
    schedules/{key}/history/{time}.json   what became of one expected time
    tasks/{id}.json                       a task that has ended, if asked for (`?views=tasks`)

They are written after the commit, from the state at that time, and rota never reads them. Views of other tenants are
under `tenants/{tenant}/`. Characters that some services refuse in a key are written as `~` and their code. So is the
dot of a schedule named `a.json`: its folder would have the name of the view of `a`, and no file system has both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import msgspec

from ...domain.definition import SCHEDULE_FIELDS
from ...domain.model import Record, Run, RunTrigger, Schedule, Target, Task
from ...domain.recurrence import Cron, Interval, Once, RRule, Timing

__all__ = ["View", "is_view", "view_folders", "views_of"]

View = tuple[str, bytes | None]
"""A key and its text; None: nothing should be there."""

_LONGEST = 150
_ENDING = ".json"


def view_folders(*, tasks: bool) -> tuple[str, ...]:
    """The prefixes of all views."""
    return ("schedules/", "tasks/", "tenants/") if tasks else ("schedules/", "tenants/")


def is_view(key: str, *, tasks: bool) -> bool:
    """Whether a key in one of the folders is a view that this node writes. With `tasks` it writes those of tasks, too;
    without, another node may."""
    parts = key.split("/")
    kind = parts[2] if parts[0] == "tenants" and len(parts) > 3 else parts[0]
    return key.endswith(".json") and (kind == "schedules" or (tasks and kind == "tasks"))


def views_of(record: Record, schedule: Schedule | None, *, gone: bool, tasks: bool) -> Iterator[View]:
    """The views that a record has now. `schedule` is the one that a run belongs to."""
    if isinstance(record, Schedule):
        yield from _schedule_views(record, gone=gone or record.deleted_at is not None)
    elif isinstance(record, Run) and schedule is not None:
        yield _history(schedule, record), _text(None if gone else _run(schedule, record))
    elif tasks and isinstance(record, Task) and not record.is_live:
        yield f"{_tenant(record)}tasks/{_name(record.id)}.json", _text(None if gone else record)


def _schedule_views(schedule: Schedule, *, gone: bool) -> Iterable[View]:
    last = None if gone or schedule.last_run_at is None else _last_run(schedule)
    return [
        (f"{_home(schedule)}.json", _text(None if gone else _definition(schedule))),
        (f"{_home(schedule)}/last_run.json", _text(last)),
    ]


def _home(schedule: Schedule) -> str:
    name = _name(schedule.key)
    if name.lower().endswith(_ENDING):
        name = f"{name[: -len(_ENDING)]}~2E{name[1 - len(_ENDING) :]}"
    return f"{_tenant(schedule)}schedules/{name}"


def _history(schedule: Schedule, run: Run) -> str:
    kind = "" if run.trigger is RunTrigger.SCHEDULED else f"-{run.trigger}"  # a manual run has its own
    return f"{_home(schedule)}/history/{_time(run.scheduled_at)}{kind}.json"


def _tenant(record: Record) -> str:
    return "" if record.tenant == "default" else f"tenants/{_name(record.tenant)}/"


def _time(at: datetime) -> str:
    shape = "%Y-%m-%dT%H-%M-%SZ" if at.microsecond == 0 else "%Y-%m-%dT%H-%M-%S.%fZ"
    return at.astimezone(UTC).strftime(shape)


def _name(text: str) -> str:
    """A text as a part of a key: readable where it can be, and never two texts for one name."""
    safe = quote(text, safe="@+=").replace("~", "%7E").replace("%", "~")
    if safe.startswith("."):
        safe = "~2E" + safe[1:]
    if len(safe) <= _LONGEST:
        return safe
    return f"{safe[:_LONGEST]}~{blake2b(text.encode(), digest_size=8).hexdigest()}"


def _text(value: Any) -> bytes | None:
    return None if value is None else msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _definition(schedule: Schedule) -> dict[str, Any]:
    """All that can be given when a schedule is created, by the names that it is given by, durations in seconds; then
    what became of it."""
    given = {name: _value(getattr(schedule, name)) for name in SCHEDULE_FIELDS}
    return {
        "id": schedule.key,
        **_target(schedule.target),
        **_timing(schedule.timing),
        "timezone": schedule.timezone,
        "enabled": schedule.enabled,
        **given,
        "next_run_at": schedule.next_run_at,
        "run_count": schedule.run_count,
        "created_at": schedule.created_at,
        "created_by": schedule.created_by,
        "updated_at": schedule.updated_at,
        "updated_by": schedule.updated_by,
    }


def _target(target: Target) -> dict[str, Any]:
    names = {"kind": "task_type", "metadata": "target_metadata"}  # a schedule has metadata of its own
    fields = {names.get(name, name): _value(getattr(target, name)) for name in target.__struct_fields__}
    return {"target_type": target.__struct_config__.tag, **fields}


def _timing(timing: Timing) -> dict[str, Any]:
    match timing:
        case Cron(expression=expression):
            return {"cron": expression}
        case Interval(every=every, anchor=anchor):
            return {"interval": every.total_seconds(), "anchor": anchor}
        case RRule(rule=rule, dtstart=dtstart):
            return {"rrule": rule, "dtstart": dtstart}
        case Once(run_at=run_at):
            return {"run_at": run_at}


def _value(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _last_run(schedule: Schedule) -> dict[str, Any]:
    return {
        "schedule_id": schedule.key,
        "last_run_at": schedule.last_run_at,
        "last_task_id": schedule.last_task_id,
        "next_run_at": schedule.next_run_at,
    }


def _run(schedule: Schedule, run: Run) -> dict[str, Any]:
    return {
        "schedule_id": schedule.key,
        "scheduled_at": run.scheduled_at,
        "until": run.until,
        "count": run.count,
        "trigger": run.trigger,
        "status": run.status,
        "reason": run.reason,
        "task_id": run.target_id,
        "started_at": run.started_at,
        "completed_at": run.completed_at,
        "error": run.error,
    }
