"""One cron field at a time: text to bit mask, refusing with a sentence that names the field.

A field is a list of items; an item is `*`, a value, `a-b` or one of these with `/step`. What the two day
fields know besides (`L`, `W`, `#`) is in `days`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = [
    "DAY_OF_MONTH",
    "DAY_OF_WEEK",
    "HOUR",
    "MINUTE",
    "MONTH",
    "SECOND",
    "Field",
    "parse_field",
    "parse_item",
    "parse_value",
    "shown",
]

_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FULL_NAME: Final = re.compile(
    r"(?:SUN|MON|TUES|WEDNES|THURS|FRI|SATUR)DAY|(?:[A-Z]{3,}(?:UARY|CH|IL|E|Y|UST|BER))"
)
_ITEM: Final = re.compile(r"(?P<first>\*|[A-Z0-9]+)(?:-(?P<last>[A-Z0-9]+))?(?:/(?P<step>[0-9]+))?")


class Field(NamedTuple):
    """`high` is the largest value one may write, `top` the last that `*` and `a/step` reach."""

    name: str
    low: int
    high: int
    top: int
    names: tuple[str, ...] = ()

    def refuse(self, text: str, reason: str) -> ValueError:
        return ValueError(f"cron: {self.name} field {shown(text)} {reason}")

    def out_of_range(self, text: str) -> ValueError:
        return self.refuse(text, f"is out of range; accepted are {self.accepted}")

    def not_understood(self, text: str) -> ValueError:
        return self.refuse(
            text, f"is not understood; accepted are {self.accepted}, '*', ranges, steps and lists"
        )

    @property
    def accepted(self) -> str:
        names = f" and {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"{self.low}-{self.high}{names}"

    def forwards(self, first: int, last: int) -> str:
        """What someone who wrote a range that runs backwards may have meant."""
        if self is DAY_OF_WEEK and last == 0:
            return f"{first}-7"
        return f"{first}-{self.top},{self.low}-{last}"

    @property
    def size(self) -> int:
        return self.high - self.low + 1


SECOND: Final = Field("second", 0, 59, 59)
MINUTE: Final = Field("minute", 0, 59, 59)
HOUR: Final = Field("hour", 0, 23, 23)
DAY_OF_MONTH: Final = Field("day-of-month", 1, 31, 31)
MONTH: Final = Field("month", 1, 12, 12, _MONTHS)
DAY_OF_WEEK: Final = Field("day-of-week", 0, 7, 6, _WEEKDAYS)


def parse_field(field: Field, text: str) -> int:
    """The mask of a field that has no special items."""
    mask = 0
    for item in text.split(","):
        mask |= parse_item(field, item)
    return mask


def parse_item(field: Field, item: str) -> int:
    """The mask of one item of the list; in day-of-week bit 7 may be set, and means Sunday like bit 0."""
    if not item:
        raise ValueError(
            f"cron: {field.name} field has an empty item; accepted are values separated by single commas"
        )
    match = _ITEM.fullmatch(item)
    if match is None or (match["first"] == "*" and match["last"] is not None):
        raise _explain(field, item)
    step = _step(field, item, match["step"], bounded=match["last"] is not None)
    if match["first"] == "*":
        return _mask(field.low, field.top, step)
    first = parse_value(field, match["first"], item)
    if match["last"] is not None:
        last = parse_value(field, match["last"], item)
        if last < first:
            raise field.refuse(item, f"runs backwards; accepted is for example {field.forwards(first, last)}")
        return _mask(first, last, step)
    return _mask(first, max(field.top, first), step) if match["step"] is not None else 1 << first


def parse_value(field: Field, text: str, item: str) -> int:
    """A number, or a name in the fields that have names."""
    if text in field.names:
        return field.low + field.names.index(text)
    if not text.isdecimal():
        raise _explain(field, item)
    value = int(text) if len(text) <= 4 else field.high + 1
    if not field.low <= value <= field.high:
        raise field.out_of_range(item)
    return value


def _step(field: Field, item: str, text: str | None, *, bounded: bool) -> int:
    """A step of 0 never ends; one beyond the whole field is surely meant otherwise (`*/100`)."""
    if text is None:
        return 1
    step = int(text) if len(text) <= 4 else 10_000
    if step < 1:
        raise field.refuse(item, "has a step of 0; accepted are steps from 1")
    if step > field.size and not bounded:
        raise field.refuse(item, f"has a step beyond the field; accepted are steps from 1 to {field.size}")
    return step


def _mask(first: int, last: int, step: int) -> int:
    mask = 0
    for value in range(first, last + 1, step):
        mask |= 1 << value
    return mask


def _explain(field: Field, item: str) -> ValueError:
    """The refusal that helps most: people write what other crons know."""
    if item == "H" or item.startswith(("H/", "H(")):
        return field.refuse(item, "uses H, which is Jenkins's; give a number, and a jitter on the schedule")
    if item == "?":
        return field.refuse(item, "is for the day fields only; write '*'")
    if field.names and _FULL_NAME.fullmatch(item):
        return field.refuse(item, f"is a full name; write the first three letters, {item[:3]}")
    return field.not_understood(item)


def shown(text: str) -> str:
    """A text as a refusal quotes it."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
