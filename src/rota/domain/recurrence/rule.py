"""A recurrence given field by field: how often, every how many, on which days, in which months.

It is a way of writing timings, not a fifth kind: `timing()` turns it into a `Once` or an `RRule`. Fields may
be given as the enums or as text (`"daily"`, `"MO"`, `"March"`, `"2025-01-01 09:00:00"`); they are read once,
on creation, and `Invalid` says which of them makes no sense.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, time
from enum import Enum, IntEnum, StrEnum
from typing import TypeVar

import msgspec

from ..errors import Invalid
from .occurrences import compiled, on_clock
from .timing import Once, RRule, Timing

Member = TypeVar("Member", bound=Enum)


class Frequency(StrEnum):
    NONE = "none"
    SECONDLY = "secondly"
    MINUTELY = "minutely"
    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    YEARLY = "yearly"


class DayOfWeek(StrEnum):
    MONDAY = "monday"
    TUESDAY = "tuesday"
    WEDNESDAY = "wednesday"
    THURSDAY = "thursday"
    FRIDAY = "friday"
    SATURDAY = "saturday"
    SUNDAY = "sunday"


class MonthOfYear(IntEnum):
    JANUARY = 1
    FEBRUARY = 2
    MARCH = 3
    APRIL = 4
    MAY = 5
    JUNE = 6
    JULY = 7
    AUGUST = 8
    SEPTEMBER = 9
    OCTOBER = 10
    NOVEMBER = 11
    DECEMBER = 12


class RecurrenceRule(msgspec.Struct, frozen=True):
    """A naive `starts_at` or `ends_at` is local time in the zone given to `timing()`; both are inclusive."""

    frequency: Frequency = Frequency.NONE
    interval: int = 1
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    days_of_week: tuple[DayOfWeek, ...] = ()
    days_of_month: tuple[int, ...] = ()
    months_of_year: tuple[MonthOfYear, ...] = ()

    def __post_init__(self) -> None:
        settle = msgspec.structs.force_setattr  # the record is frozen from here on
        settle(self, "frequency", _member(Frequency, "frequency", self.frequency))
        settle(self, "interval", _whole("interval", self.interval, 1, 1_000_000_000))
        settle(self, "starts_at", _moment("starts_at", self.starts_at, time.min))
        settle(self, "ends_at", _moment("ends_at", self.ends_at, time(23, 59, 59)))
        settle(
            self,
            "days_of_week",
            tuple(_member(DayOfWeek, "days_of_week", day) for day in _items(self.days_of_week)),
        )
        settle(self, "days_of_month", tuple(_day(day) for day in _items(self.days_of_month)))
        months = (_member(MonthOfYear, "months_of_year", month) for month in _items(self.months_of_year))
        settle(self, "months_of_year", tuple(months))

    @classmethod
    def of(
        cls,
        frequency: Frequency | str,
        *,
        interval: int = 1,
        starts_at: datetime | str | None = None,
        ends_at: datetime | str | None = None,
        days_of_week: Iterable[DayOfWeek | str] = (),
        days_of_month: Iterable[int] = (),
        months_of_year: Iterable[MonthOfYear | int | str] = (),
    ) -> RecurrenceRule:
        """The same record from text, for callers with a type checker."""
        fields = (frequency, interval, starts_at, ends_at, days_of_week, days_of_month, months_of_year)
        return cls(*fields)  # type: ignore[arg-type]  # `__post_init__` reads them

    def timing(self, now: datetime, timezone: str = "UTC") -> tuple[Timing, datetime | None, datetime | None]:
        """The timing, and the `start_at` and `end_at` that bound it; without `starts_at` it begins now."""
        start, end = _aware(self.starts_at, timezone), _aware(self.ends_at, timezone)
        if start is not None and end is not None and end < start:
            raise Invalid("recurrence_rule", "ends_at is before starts_at; accepted is a later time, or none")
        if self.frequency is not Frequency.NONE:
            timing: Timing = RRule(
                self._text(), start or now.astimezone(UTC).replace(microsecond=0), timezone
            )
        elif start is not None:
            self._refuse_details()
            timing = Once(start)
        else:
            raise Invalid(
                "recurrence_rule", "starts_at is missing; accepted is a time, since frequency is none"
            )
        compiled(timing)
        return timing, start, end

    def _text(self) -> str:
        parts = {
            "FREQ": self.frequency.upper(),
            "INTERVAL": str(self.interval) if self.interval != 1 else "",
            "BYMONTH": ",".join(str(int(month)) for month in self.months_of_year),
            "BYMONTHDAY": ",".join(str(day) for day in self.days_of_month),
            "BYDAY": ",".join(day[:2].upper() for day in self.days_of_week),
        }
        return ";".join(f"{name}={value}" for name, value in parts.items() if value)

    def _refuse_details(self) -> None:
        for field in ("days_of_week", "days_of_month", "months_of_year"):
            if getattr(self, field):
                raise Invalid(
                    "recurrence_rule", f"{field} is given; accepted only with a frequency other than none"
                )


def _member(kind: type[Member], field: str, value: object) -> Member:
    """An enum's member from itself, its value, or its name in any case, shortened to two letters or more."""
    if isinstance(value, kind):
        return value
    names = {member.name.lower(): member for member in kind}
    if isinstance(value, str):
        text = value.strip().lower()
        near = [
            member
            for name, member in names.items()
            if name == text or (len(text) > 1 and name.startswith(text))
        ]
        if len(near) == 1 and (kind is not Frequency or text in names):
            return near[0]
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else value
    for member in kind:
        if type(value) is type(member.value) and value == member.value:
            return member
    raise Invalid("recurrence_rule", f"{field} has {str(value)[:40]!r}; accepted are {', '.join(names)}")


def _items(value: object) -> Iterable[object]:
    """A list, or the one item that stands for a list of one."""
    if value is None:
        return ()
    return value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def _whole(field: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Invalid(
            "recurrence_rule",
            f"{field} is {str(value)[:40]}; accepted are whole numbers from {low} to {high}",
        )
    return value


def _day(value: object) -> int:
    if value == 0:
        raise Invalid(
            "recurrence_rule", "days_of_month has 0; accepted are 1 to 31, and -1 to -31 from the end"
        )
    return _whole("days_of_month", value, -31, 31)


def _moment(field: str, value: object, time_of_day: time) -> datetime | None:
    """A datetime, or ISO 8601 text; a date alone means `time_of_day`."""
    if value is None or isinstance(value, datetime):
        return value
    try:
        if not isinstance(value, str):
            raise ValueError(value)
        at = datetime.fromisoformat(value.strip())
    except ValueError:
        raise Invalid(
            "recurrence_rule",
            f"{field} has {str(value)[:40]!r}; accepted are times such as 2025-01-01 09:00:00",
        ) from None
    return datetime.combine(at.date(), time_of_day) if len(value.strip()) in (8, 10) else at


def _aware(at: datetime | None, timezone: str) -> datetime | None:
    if at is None:
        return None
    return at.astimezone(UTC) if at.tzinfo is not None else on_clock(at, timezone)
