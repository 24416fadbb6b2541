"""The parts that every record is made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import fields

Duration = timedelta | float | str
"""A number is one of seconds; a text is such as 90s, 5m or 1h30m."""
_NO_STEP = timedelta(seconds=2)


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A part of a record. Frozen data has no cycles, so that the collector need not look for them."""


class Record(Value, frozen=True, kw_only=True):
    """A thing that a store keeps: it has an identity, an owner and a count of its writes."""

    id: str
    tenant: str = "default"
    version: int = 0


@cache
def defaults_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The defaults of its fields, by name; None for one that has none."""
    defaults: dict[str, Any] = {}
    for each in fields(struct):
        if each.default_factory is not msgspec.NODEFAULT:
            defaults[each.name] = each.default_factory()
        else:
            defaults[each.name] = None if each.default is msgspec.NODEFAULT else each.default
    return defaults


def facts_of(record: Record, *without: str) -> dict[str, Any]:
    """A record as the audit shows it: plain data, without these fields."""
    facts: dict[str, Any] = msgspec.to_builtins(record)
    return {name: value for name, value in facts.items() if name not in ("record", *without)}


def is_from_the_future(written_at: datetime, now: datetime) -> bool:
    """Whether a clock that was ahead wrote it, and was set back since. Two seconds are no step."""
    return written_at > now + _NO_STEP


def to_the_second(at: datetime) -> str:
    """`2026-03-01T09:00:00Z`, as sentences have it."""
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def aware(at: datetime) -> datetime:
    """The same instant in UTC. A naive one is the local time of the process.

    `fold` chooses between two instants of one local time (PEP 495); by default the first. A local time that does not
    exist is moved on by the length of the gap (02:30 is 03:30).
    """
    if at.tzinfo is UTC:
        return at
    if at.utcoffset() is not None:
        return at.astimezone(UTC)
    # astimezone() takes the wrong side of a gap, and a float timestamp has no room for microseconds.
    seconds = at.replace(microsecond=0, tzinfo=None).timestamp()
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=at.microsecond)
