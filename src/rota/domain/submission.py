"""What someone asks for when a task is submitted, and what of it is accepted."""

from __future__ import annotations

from datetime import datetime

from .errors import Invalid
from .limits import check_kind, check_metadata
from .model import TaskRequest
from .options import SubmitOptions, options_of

__all__ = ["Submission", "check_submission"]


class Submission(TaskRequest, frozen=True, kw_only=True):
    """What someone asks for. `ttl` counts from submission; at most one of `ttl` and `expires_at` is given."""

    schedule_at: datetime | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None
    schedule_id: str | None = None
    run_id: str | None = None
    scheduled_at: datetime | None = None
    is_workflow: bool = False
    parent_id: str | None = None
    parent_step: str | None = None
    trace: str | None = None


class Checked(Submission, frozen=True, kw_only=True):
    """A submission of which all but its input is in stored form: what `check_submission` gives. `input`, `trace`,
    `is_workflow` and the parent may be replaced in it, nothing else: the rest is not looked at again."""


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
    given = {
        name: check(name, value)
        for name, check in _CHECKS
        if not _is_default(name, value := getattr(asked, name))
    }
    given |= {"kind": check_kind(asked.kind), "metadata": check_metadata(asked.metadata)}
    return Checked(**{name: getattr(asked, name) for name in asked.__struct_fields__} | given)


def _is_default(name: str, value: object) -> bool:
    """What was not asked for is in its stored form already; and most submissions ask for next to nothing."""
    default = _DEFAULTS[name]
    return value is default or (type(value) is type(default) and value == default)
