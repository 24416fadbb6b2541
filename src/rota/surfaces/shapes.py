"""Records as JSON: every field is there, times are ISO texts in UTC, durations are in seconds.

`plain` gives plain values, for the command line. An `Answer` is the declared shape of what the HTTP API sends."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, Generic, TypeVar, get_args

import msgspec

from ..domain.model import (
    Alarm,
    ApiKey,
    Artifact,
    Calendar,
    Change,
    Event,
    Limit,
    NodeState,
    PausedQueue,
    Run,
    Schedule,
    Target,
    Task,
    TaskTarget,
    Template,
    TemplateTarget,
    Tenant,
)
from ..domain.options import Duration, ScheduleOptions, options_of, value_type
from ..domain.recurrence import After, ClockChange, Cron, Interval, Once, RRule, Several, Simple, Timing
from ..domain.serving import is_alive
from ..engine.queries import Occurrence
from ..engine.queries.serving import QueueUse
from .durations import iso

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An answer in camelCase."""


class ItemsAnswer(Answer, Generic[T], frozen=True, kw_only=True):
    """All there are."""

    items: list[T]


class PageAnswer(ItemsAnswer[T], Generic[T], frozen=True, kw_only=True):
    """Some, and where the next page begins."""

    next_cursor: str | None


def shaped(shape: type[S], record: object, **given: Any) -> S:
    """The record in a declared shape. A field has the value that is given, or that of the record's field of the same
    name, in the shape that is declared for it; `…_seconds` is a duration of the record."""
    inner = _inner_shapes(shape)
    for name in shape.__struct_fields__:
        if name in given:
            continue
        value = getattr(record, name.removesuffix("_seconds"))
        if name in inner and value is not None:
            is_list = isinstance(value, (list, tuple))
            value = [shaped(inner[name], each) for each in value] if is_list else shaped(inner[name], value)
        given[name] = value.total_seconds() if isinstance(value, timedelta) else value
    return shape(**given)


def listed(shape: type[S], found: Iterable[Any], made: Callable[[Any], object] | None = None) -> S:
    """Records as a declared list or page: each as it is `made`, or else in the shape that is declared for them."""
    each_made = made or (lambda each: shaped(_inner_shapes(shape)["items"], each))
    return shaped(shape, found, items=[each_made(each) for each in found])


@cache
def _inner_shapes(shape: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """The shape of each field that has a declared one, or a list of such."""
    fields = msgspec.structs.fields(shape)
    return {field.name: part for field in fields for part in _shapes_in(field.type)}


def _shapes_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in get_args(kind):
        yield from _shapes_in(part)


def plain(value: Any) -> Any:
    """A record as plain values, or whatever holds records: a list, a page, an object. Names are in snake_case, also
    those of an answer."""
    match value:
        case Answer():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case msgspec.Struct():
            return _told(value)
        case list() | tuple():
            return [plain(each) for each in value]
        case dict():
            return {name: plain(each) for name, each in value.items()}
    return value


_NOT_TOLD: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    Alarm: ("version", "tell_at"),
    ApiKey: ("digest", "version", "signed_out", "sessions_from"),
    Artifact: ("tenant", "version", "inline", "content"),
    Calendar: ("id", "tenant"),
    Event: ("version",),
    PausedQueue: ("id", "version", "tenant"),
    Template: ("applied",),
}
"""Fields that are for Rota alone, such as the digest of a key, and the bytes of an artifact."""


_OF_CALENDARS = ("calendars", "excluded_from", "ended_by_calendars")
_INNER = ("zone_data", "due_at", "applied", "watch", "followers", "causes", *_OF_CALENDARS)
_NOT_SHOWN = ("id", "key", "timing", "target", "metadata", *_INNER)


def _told(record: msgspec.Struct) -> dict[str, Any]:
    """A record: field by field, if it has no other form."""
    match record:
        case Task():
            shape = fields_of(record, leave_out=("kind", "history", "lease_id"))
            shape["waits_for"] = [str(wait) for wait in record.waits_for]
            return {"id": shape.pop("id"), "task_type": record.kind, "status": shape.pop("status"), **shape}
        case Change():
            shape = fields_of(record)
            return {"version": shape.pop("number"), **shape}
        case Schedule():
            return _schedule(record)
        case Run():
            shape = fields_of(record, leave_out=("tenant", "version"))
            return {"task_id": record.target_id if record.target_type != "template" else None, **shape}
        case Tenant():  # its limits stand beside the rest
            shape = fields_of(record, leave_out=("tenant", "limits", "alarm_rules"))
            limits = fields_of(record.limits, leave_out=("declared",))
            return {"id": shape.pop("id"), "status": shape.pop("status"), **limits, **shape}
        case Occurrence():
            return {"at": iso(record.at), "local": record.local.isoformat(), "dst": record.dst}
        case ClockChange():
            return {**fields_of(record), "reading": record.reading.isoformat()}
    return fields_of(record, leave_out=_NOT_TOLD.get(type(record), ()))


def _schedule(record: Schedule) -> dict[str, Any]:
    """A schedule; `id` is its name, `uid` what distinguishes it from a deleted one of the same name."""
    shape = fields_of(record, leave_out=_NOT_SHOWN)
    return {
        "id": record.key,
        "uid": record.id,
        "status": shape.pop("status"),
        "enabled": record.enabled,
        **_target(record.target),
        **_timing(record.timing),
        **shape,
        "metadata": record.metadata,
    }


def node(record: NodeState, now: datetime) -> dict[str, Any]:
    shape = fields_of(record, leave_out=("version",))
    return {"id": shape.pop("id"), "alive": is_alive(record, now), **shape}


def queue_use(record: QueueUse, now: datetime) -> dict[str, Any]:
    """A queue; `oldest_seconds` is for how long the first of its tasks could have run."""
    shape = fields_of(record, leave_out=("paused",))
    oldest = None if record.oldest_at is None else (now - record.oldest_at).total_seconds()
    return {**shape, "oldest_seconds": oldest, "paused": plain(record.paused)}


def task_limits(limits: Mapping[str, Limit], declared: Container[str]) -> list[dict[str, Any]]:
    """Limits of kinds and queues, by what they limit; those in `declared` are of handlers."""
    return [
        {
            "kind": name if what == "kind" else None,
            "queue": name if what == "queue" else None,
            **fields_of(limit),
            "declared": subject in declared,
        }
        for subject, limit in sorted(limits.items())
        for what, _, name in [subject.partition(":")]
    ]


def _target(target: Target) -> dict[str, Any]:
    shape = {"target_type": target.__struct_config__.tag, "task_type": None, **fields_of(target)}
    if isinstance(target, TemplateTarget):
        return shape
    shape["task_type"] = shape.pop("kind")
    if isinstance(target, TaskTarget):
        shape["target_metadata"] = shape.pop("metadata")
    return shape


def _timing(timing: Timing) -> dict[str, Any]:
    shape: dict[str, Any] = dict.fromkeys(("cron", "interval_seconds", "run_at", "rrule", "timings", "after"))
    choices = {name: getattr(timing, name, None) for name in ("day_match", "dst_gap", "dst_fold")}
    own: dict[str, Any]
    match timing:
        case Several(timings):
            own = {"timings": [_timing(part) for part in timings], "timezone": timing.timezone}
        case After(schedules, on, delay):
            about = {"after_on": on, "after_delay_seconds": delay.total_seconds()}
            own = {"after": list(schedules), **about, "timezone": "UTC"}
        case _:
            own = _simple(timing)
    return {**shape, **own, **choices}


def _simple(timing: Simple) -> dict[str, Any]:
    match timing:
        case Cron(expression, zone):
            return {"cron": expression, "timezone": zone}
        case Interval(every):
            return {"interval_seconds": every.total_seconds(), "timezone": "UTC"}
        case Once(run_at):
            return {"run_at": iso(run_at), "timezone": "UTC"}
        case RRule(rule, _, zone):
            return {"rrule": rule, "timezone": zone}


def fields_of(record: msgspec.Struct, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """Field by field; a duration says that it is in seconds."""
    shape: dict[str, Any] = {}
    for name in record.__struct_fields__:
        if name in leave_out:
            continue
        value = getattr(record, name)
        if _is_duration(name, value):
            shape[f"{name}_seconds"] = None if value is None else value.total_seconds()
        else:
            shape[name] = _value(value)
    return shape


_DURATIONS = frozenset(
    name for name in options_of(ScheduleOptions) if value_type(ScheduleOptions, name) == Duration
)


def _is_duration(name: str, value: Any) -> bool:
    """Whether a field is a duration, also when it is not set: its name must not depend on its value. (A retry policy's
    jitter is a share.)"""
    return isinstance(value, timedelta) or (value is None and name in _DURATIONS)


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, msgspec.Struct):
        return fields_of(value)
    if isinstance(value, (tuple, list)):
        return [_value(each) for each in value]
    return value
