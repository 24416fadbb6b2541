"""Calendars: named sets of days and windows."""

from __future__ import annotations

from datetime import date, datetime

from ..recurrence import Covered
from .shared import Record


class Calendar(Record, frozen=True, kw_only=True, tag_field="record", tag="calendar.1"):
    """Days and windows under a name, for schedules to exclude or to require. `days` are in order. `rules` are RRULEs:
    the days on which they fall. `windows` are of every day, such as `22:00-06:00`. `timezone` is whose days and hours
    are meant; None: those of each schedule. Its id follows from tenant and name. `applied` is what a file said of it
    last (`domain/plan`); None: no file ever did."""

    name: str
    description: str = ""
    days: tuple[date, ...] = ()
    rules: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    timezone: str | None = None
    applied: dict[str, str] | None = None
    created_by: str | None = None
    updated_by: str | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def covers(self) -> Covered:
        """The part of it that schedules keep."""
        return Covered(
            name=self.name,
            days=self.days,
            rules=self.rules,
            windows=self.windows,
            timezone=self.timezone,
        )
