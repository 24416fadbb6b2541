"""Limits of tasks, and their state for each key."""

from __future__ import annotations

from datetime import datetime

from .shared import Record, Value


class Limit(Value, frozen=True, kw_only=True):
    """At most `concurrency` tasks at once, and at most `rate` of them ("100/m"); with `key`, for each value that this
    field of their input has. None: no such limit, and one for all of them."""

    concurrency: int | None = None
    rate: str | None = None
    key: str | None = None


class Gate(Record, frozen=True, kw_only=True, tag_field="record", tag="gate.1"):
    """The state of a limit for one key. `subject` is what is limited ("kind:mail", "queue:mail"). `inside` have passed
    and not ended. `has_line`: someone may wait in its line. How many is not counted: so a gate that one leaves and
    another enters stays as it is. `next_at` is the next moment of its rate that nobody was given. `open_at` is from
    when on another may start: it counts only those that had nothing left to wait for."""

    subject: str
    key: str | None = None
    limit: Limit
    inside: int = 0
    has_line: bool = False
    next_at: datetime | None = None
    open_at: datetime | None = None
    updated_at: datetime

    @property
    def idle_since(self) -> datetime | None:
        """Since when nobody needs it; None: someone does."""
        if self.inside or self.has_line:
            return None
        return max(at for at in (self.next_at, self.open_at, self.updated_at) if at is not None)
