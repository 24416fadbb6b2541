"""Names on the wire: the tenants' API speaks camelCase, `/api/v1` snake_case; inside, all is snake_case."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from fastapi import Request

__all__ = ["SLASH", "as_given", "camel", "camel_keys"]

SLASH = "\ue000"
"""Stands for a slash inside a name while the path is taken apart; no name can have it."""

_PLACES = {
    "schedule_id": "name",
    "key": "name",
    "run_at": "schedule_type.run_at",
    "cron": "schedule_type.cron",
    "interval": "schedule_type.every_seconds",
    "rrule": "schedule_type.rule",
    "timezone": "schedule_type.timezone",
    "task_type": "target.task_kind",
}
"""Where the tenants' API keeps what the domain calls so."""

_PLACES_V1 = {
    "cron": "cron_expression",
    "interval": "interval_seconds",
    "kind": "command",
}


@lru_cache(maxsize=4096)
def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def camel_keys(shape: dict[str, Any]) -> dict[str, Any]:
    """The shape with its own keys in camelCase. What users put into it (inputs, metadata) is theirs."""
    return {camel(name): value for name, value in shape.items()}


def as_given(field: str, request: Request) -> str:
    """A field of the domain under the name that it has in this request."""
    if "/api/v1/" in request.url.path:
        return _PLACES_V1.get(field, field)
    if request.method in ("PUT", "PATCH") or request.url.path.endswith(("/schedules", "/preview")):
        field = _PLACES.get(field, field)
    elif field in ("schedule_id", "task_id", "key_id"):
        field = "id"  # the one in the path
    return ".".join(camel(part) for part in field.split("."))
