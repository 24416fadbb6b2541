"""Versions of a schedule: what an event of its history changed, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import NODEFAULT, Struct, json, to_builtins
from msgspec.structs import fields

from ..domain.model import Event, Schedule, TaskTarget

_NOT_TOLD = ("version", "updated_at", "updated_by", "due_at", "zone_data", "record", "deleted_at")
"""Fields that a history leaves out: they change with every edit, or say nothing to people."""


def differences(event: Event) -> list[tuple[str, Any, Any]]:
    """(field, before, after) of each field that is not the same. None, if there was nothing before."""
    return changed_fields(event.before, event.after or {}) if event.before else []


def deleted_because(events: Sequence[Event]) -> str:
    """Why a deleted schedule is, where that was no wish of its own: its key was taken, or its template deleted."""
    return next((event.detail for event in reversed(events) if event.action == "deleted"), "")


def changed_fields(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """The same between any two versions."""
    before, after = _flat(_plain(before)), _flat(_plain(after))
    return [
        (name, before.get(name), after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name) and name not in _NOT_TOLD
    ]


def _plain(version: dict[str, Any]) -> dict[str, Any]:
    """As it is stored: a tuple is a list there."""
    plain: dict[str, Any] = json.decode(json.encode(version))
    return plain


def _flat(version: dict[str, Any]) -> dict[str, Any]:
    """Field by field, those of the target and the timing too. What is not stored has its default."""
    target = version.get("target") or {}
    usual = _defaults(TaskTarget) if target.get("type") == "task" else {}
    flat = _defaults(Schedule) | {name: version[name] for name in version if name not in ("target", "timing")}
    for part, values in (("target", usual | target), ("timing", version.get("timing") or {})):
        flat |= {f"{part}.{name}": value for name, value in values.items()}
    return flat


def _defaults(record: type[Struct]) -> dict[str, Any]:
    return {each.name: to_builtins(each.default) for each in fields(record) if each.default is not NODEFAULT}
