"""Which submissions are the same task, and for how long: `unique_by`, `unique_for`.

A receipt under a derived id names the task that was submitted last. It is read and written in the transaction that
admits a task, so two submissions at the same time are one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from .errors import Invalid
from .ids import derived_id
from .model import Receipt, Task

DEFAULT_PARTS = ("input", "kind")
_UNIQUE = "unique"


def unique_id(tenant: str, kind: str, queue: str, input: Any, by: tuple[str, ...]) -> str:
    """The id of the receipt: the same for all submissions that are the same task. `input` is in its stored form."""
    parts = [(part, _value(part, kind, queue, input)) for part in by]
    return derived_id("unique", tenant, msgspec.json.encode(parts, order="deterministic").decode())


def is_same(holder: Task, unique_for: timedelta | None, now: datetime) -> bool:
    """Whether a submission that is the same gives this task back: while it lives, or its period lasts."""
    lasts = unique_for is not None and now - holder.created_at < unique_for
    return lasts or holder.as_of(now).is_live


def receipt_for(id: str, task: Task, unique_for: timedelta | None, known: Receipt | None) -> Receipt:
    """The receipt that names this task from now on, in place of the one that was `known`. It is kept at least as long
    as its period."""
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
