"""A task's history: what can happen to a task, and the words for it.

A change carries facts: its type, and the numbers and times that belong to it. Code reads the facts. The words are for
people, and `describe` is the only place that makes them: to reword a sentence changes no figure and no event name.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Change

__all__ = ["ChangeType", "describe"]


class ChangeType(StrEnum):
    """What happened to a task."""

    CREATED = "created"
    CLAIMED = "claimed"
    RETRIED = "retried"
    RESCHEDULED = "rescheduled"
    RELEASED = "released"
    """The worker stopped before the handler ended, or cannot run it."""
    LEASE_LOST = "lease_lost"
    """The worker did not renew its lease. The status says whether the task runs again or has failed."""
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    COMPLETED = "completed"
    FAILED = "failed"
    REPLAYED = "replayed"
    ARCHIVED = "archived"
    CLOCK_SET_BACK = "clock_set_back"


def describe(change: Change) -> str:
    """What happened, in words. Empty where the status says it all."""
    match change.type:
        case ChangeType.CREATED:
            return (
                "created" if change.expires_at is None else f"created, expires_at: {_iso(change.expires_at)}"
            )
        case ChangeType.CLAIMED:
            return f"attempt {change.attempt}"
        case ChangeType.RETRIED | ChangeType.LEASE_LOST if change.retry is not None:
            return (
                f"retry {change.retry} of {change.max_retries} in {_seconds(change.delay)}: {change.reason}"
            )
        case ChangeType.RESCHEDULED:
            return f"rescheduled in {_seconds(change.delay)}{_extended(change)}{_because(change)}"
        case ChangeType.RELEASED:
            return f"handed back: {change.reason or 'the worker stopped'}"
        case ChangeType.CANCEL_REQUESTED:
            return f"cancel requested{_because(change)}"
        case ChangeType.EXPIRED:
            return f"expired_at: {_iso(change.at)}"
        case ChangeType.REPLAYED:
            return "replayed"
        case ChangeType.ARCHIVED:
            return f"was {change.was}"
        case ChangeType.CLOCK_SET_BACK:
            return "the clock was set back: it counts from now"
        case _:
            return change.reason


def _extended(change: Change) -> str:
    return "" if change.expires_at is None else f", expires_at extended to {_iso(change.expires_at)}"


def _because(change: Change) -> str:
    return f": {change.reason}" if change.reason else ""


def _seconds(delay: timedelta) -> str:
    return f"{delay.total_seconds():,.3f}".rstrip("0").rstrip(".") + " s"


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
