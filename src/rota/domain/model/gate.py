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


class Moving(Value, frozen=True, kw_only=True):
    """How far tasks of a gate have got other moments: those that have one later than `after` are still to come. The
    next gets the moment `to` (None: it keeps its own), or if it `asks`, it asks for another one when it is due.
    `open_at` is that of the gate, as far as it is known."""

    after: datetime
    to: datetime | None = None
    asks: bool = False
    open_at: datetime | None = None


class Gate(Record, frozen=True, kw_only=True, tag_field="record", tag="gate.1"):
    """The state of a limit for one key. `subject` is what is limited ("kind:mail", "queue:mail"). `inside` have passed
    and not ended. `has_line`: someone may wait in its line. How many is not counted: so a gate that one leaves and
    another enters stays as it is. `next_at` is the next moment of its rate that nobody was given. `open_at` is from
    when on another may start: it counts only those that had nothing left to wait for. `others_at` is the same for those
    that another gate gave the moment to. `unused` moments were given to tasks that left before, the first of them at
    `unused_at`; `moving`: tasks behind them move up."""

    subject: str
    key: str | None = None
    limit: Limit
    inside: int = 0
    has_line: bool = False
    next_at: datetime | None = None
    open_at: datetime | None = None
    others_at: datetime | None = None
    unused: int = 0
    unused_at: datetime | None = None
    moving: Moving | None = None
    updated_at: datetime

    @property
    def idle_since(self) -> datetime | None:
        """Since when nobody needs it; None: someone does."""
        if self.inside or self.has_line:
            return None
        return max(at for at in (self.next_at, self.open_at, self.updated_at) if at is not None)
