"""Names in requests and answers: the tenants' API speaks camelCase, `/api/v1` snake_case; inside, all is snake_case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fastapi import Request

from ...domain.options import (
    Duration,
    ScheduleOptions,
    SubmitOptions,
    TaskOptions,
    names_of,
    options_of,
    value_type,
)

__all__ = ["SLASH", "as_given", "camel", "camel_keys", "in_words_of"]

SLASH = "\ue000"
"""Stands for a slash inside a name while the path is taken apart; no name can have it."""

_NAMES = names_of(ScheduleOptions) | names_of(SubmitOptions)
_SECONDS = {
    name: f"{name}_seconds"
    for name in options_of(ScheduleOptions)
    if value_type(ScheduleOptions, name) == Duration
}
_OF_TARGET = (names_of(TaskOptions) | {"input", "template_id"}) - {"metadata"}
_PLACES = {
    **_SECONDS,
    **{name: f"target.{_SECONDS.get(name, name)}" for name in _OF_TARGET},
    "schedule_id": "name",
    "key": "name",
    "run_at": "schedule_type.run_at",
    "cron": "schedule_type.cron",
    "interval": "schedule_type.every_seconds",
    "rrule": "schedule_type.rule",
    "timezone": "schedule_type.timezone",
    "task_type": "target.task_kind",
}
"""Where the tenants' API keeps what the domain calls so, in the body of a schedule."""

_WORDS = sorted({"schedule_id", "template_id", "next_cursor"} | {name for name in _NAMES if "_" in name})
_FIELD = re.compile(rf"(?<!['\"\w])({'|'.join(_WORDS)})(?!['\"\w])")
"""Fields as the domain's sentences name them beside the one that they are about."""

_PLACES_V1 = {
    "timeout": "timeout_seconds",
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
    else:
        field = _SECONDS.get(field, field)
    return ".".join(camel(part) for part in field.split("."))


def in_words_of(sentence: str, request: Request, details: Mapping[str, object]) -> str:
    """A sentence of the domain with the names that its fields have in this request. What is quoted stays, and so do
    `details`: names that users gave."""
    if "/api/v1/" in request.url.path:
        return sentence
    theirs = details.values()
    return _FIELD.sub(
        lambda found: found[0] if found[0] in theirs else camel(_SECONDS.get(found[0], found[0])), sentence
    )
