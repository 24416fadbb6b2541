"""What someone asks for when a task is submitted, and what of it is accepted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from .errors import Invalid
from .limits import (
    check_duration,
    check_kind,
    check_metadata,
    check_number,
    check_priority,
    check_queue,
    check_retry_policy,
    check_tags,
    check_text,
    check_time,
)
from .model import RetryPolicy

__all__ = ["Submission", "check_submission"]

MOST_RETRIES = 1_000_000
SHORTEST_TIMEOUT = timedelta(milliseconds=1)


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What someone asks for. `ttl` counts from submission; at most one of `ttl` and `expires_at` is given."""

    kind: str
    input: Any = None
    schedule_at: datetime | None = None
    expires_at: datetime | None = None
    ttl: timedelta | None = None
    queue: str = "default"
    priority: int = 128
    max_retries: int | None = None
    max_reschedules: int | None = None
    retry_policy: RetryPolicy | None = None
    timeout: timedelta | None = None
    idempotency_key: str | None = None
    metadata: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    schedule_id: str | None = None
    run_id: str | None = None
    scheduled_at: datetime | None = None
    is_workflow: bool = False
    trace: str | None = None


class Checked(Submission, frozen=True, kw_only=True):
    """A submission of which all but its input is in stored form: what `check_submission` gives. `input`, `trace`
    and `is_workflow` may be replaced in it, nothing else: the rest is not looked at again."""


_CHECKS: tuple[tuple[str, Callable[[object], Any]], ...] = (
    ("queue", check_queue),
    ("priority", check_priority),
    ("tags", check_tags),
    ("schedule_at", partial(check_time, "schedule_at")),
    ("expires_at", partial(check_time, "expires_at")),
    ("ttl", partial(check_duration, "ttl")),
    ("max_retries", partial(check_number, "max_retries", least=0, most=MOST_RETRIES)),
    ("max_reschedules", partial(check_number, "max_reschedules", least=0, most=MOST_RETRIES)),
    ("retry_policy", check_retry_policy),
    ("timeout", partial(check_duration, "timeout_seconds", least=SHORTEST_TIMEOUT)),
    ("idempotency_key", partial(check_text, "idempotency_key", most=255)),
)
_DEFAULTS = {name: getattr(Submission(kind="any"), name) for name, _ in _CHECKS}


def check_submission(asked: Submission) -> Checked:
    """The submission with all but its input in stored form; the input waits for the limits of its tenant."""
    if isinstance(asked, Checked):
        return asked
    if asked.ttl is not None and asked.expires_at is not None:
        raise Invalid("ttl", "expires_at is given, too", "give one of ttl, ttl_seconds and expires_at")
    given = {
        name: check(value) for name, check in _CHECKS if not _is_default(name, value := getattr(asked, name))
    }
    given |= {"kind": check_kind(asked.kind), "metadata": check_metadata(asked.metadata)}
    return Checked(**{name: getattr(asked, name) for name in asked.__struct_fields__} | given)


def _is_default(name: str, value: object) -> bool:
    """What was not asked for is in its stored form already; and most submissions ask for next to nothing."""
    default = _DEFAULTS[name]
    return value is default or (type(value) is type(default) and value == default)
