"""What someone asks for when a task is submitted, what of it is accepted, and which submissions are the same task.

Of those, a receipt under a derived id names the task that was submitted last. It is read and written in the transaction
that admits a task, so two submissions at the same time are one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from .errors import Invalid
from .ids import derived_id
from .limits import check_kind, check_metadata
from .model import Receipt, Task, TaskRequest
from .options import SubmitOptions, options_of

__all__ = ["Submission", "check_submission", "holder_of", "is_same", "receipt_for", "unique_id"]


class Submission(TaskRequest, frozen=True, kw_only=True):
    """What someone asks for. `ttl` counts from submission; at most one of `ttl` and `expires_at` is given."""

    schedule_at: datetime | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None
    unique_for: timedelta | None = None
    unique_by: tuple[str, ...] = ()
    schedule_id: str | None = None
    run_id: str | None = None
    scheduled_at: datetime | None = None
    is_workflow: bool = False
    trace: str | None = None


class Checked(Submission, frozen=True, kw_only=True):
    """A submission of which all but its input is in stored form: what `check_submission` gives. `input`, `trace`
    and `is_workflow` may be replaced in it, nothing else: the rest is not looked at again."""


UNIQUE_BY = ("input", "kind")
_UNIQUE = "unique"
_CHECKS = tuple(
    (name, option.check) for name, option in options_of(SubmitOptions).items() if name != "metadata"
)
_DEFAULTS = {name: getattr(Submission(kind="any"), name) for name, _ in _CHECKS}


def check_submission(asked: Submission) -> Checked:
    """The submission with all but its input in stored form; the input waits for the limits of its tenant."""
    if isinstance(asked, Checked):
        return asked
    if asked.ttl is not None and asked.expires_at is not None:
        raise Invalid("ttl", "expires_at is given, too", "give one of ttl, ttl_seconds and expires_at")
    is_unique = asked.unique_for is not None or asked.unique_by
    if is_unique and asked.idempotency_key is not None:
        raise Invalid(
            "idempotency_key", "it was given together with unique_for or unique_by", "give one of them"
        )
    given = {
        name: check(name, value)
        for name, check in _CHECKS
        if not _is_default(name, value := getattr(asked, name))
    }
    if is_unique:
        given["unique_by"] = given.get("unique_by", UNIQUE_BY)
    given |= {"kind": check_kind(asked.kind), "metadata": check_metadata(asked.metadata)}
    return Checked(**{name: getattr(asked, name) for name in asked.__struct_fields__} | given)


def _is_default(name: str, value: object) -> bool:
    """What was not asked for is in its stored form already; and most submissions ask for next to nothing."""
    default = _DEFAULTS[name]
    return value is default or (type(value) is type(default) and value == default)


def unique_id(tenant: str, kind: str, queue: str, input: Any, by: tuple[str, ...]) -> str:
    """Of the receipt: the same for all submissions that are the same task. `input` is in its stored form."""
    parts = [(part, _value(part, kind, queue, input)) for part in by]
    return derived_id("unique", tenant, msgspec.json.encode(parts, order="deterministic").decode())


def is_same(holder: Task, unique_for: timedelta | None, now: datetime) -> bool:
    """Whether a submission that is the same gives this task back: while it lives, or its period lasts."""
    lasts = unique_for is not None and now - holder.created_at < unique_for
    return lasts or holder.as_of(now).is_live


def receipt_for(id: str, task: Task, unique_for: timedelta | None, known: Receipt | None) -> Receipt:
    """What names this task from now on, in place of what was `known`. It is kept at least as long as its period."""
    at = task.created_at + (unique_for or timedelta(0))
    version = 0 if known is None else known.version
    answer = {"task": task.id}
    return Receipt(
        id=id, tenant=task.tenant, version=version, at=at, fingerprint=_UNIQUE, status=200, answer=answer
    )


def holder_of(receipt: Receipt) -> str:
    """The id of the task that it names; empty: it is a receipt of something else."""
    return str(receipt.answer["task"]) if receipt.fingerprint == _UNIQUE else ""


def _value(part: str, kind: str, queue: str, input: Any) -> Any:
    match part:
        case "kind":
            return kind
        case "queue":
            return queue
        case "input":
            return input
    value = input
    for name in part.split(".")[1:]:
        if not isinstance(value, dict) or name not in value:
            raise Invalid(
                "unique_by", f"the input has no {part.removeprefix('input.')!r}", "give it, or another part"
            )
        value = value[name]
    return value
