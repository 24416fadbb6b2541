"""The fields of a cron line: what may be written in one, and the mask of its values.

A field is a list of items; an item is `*`, a value, `a-b`, or one of these with `/step`. A range that runs backwards
goes on past the field's end (`22-2`, `NOV-MAR`). Names may be written out (`SEPT`, `Monday`). `plainly` writes an item
in the simplest spelling of the same, so that everything after it knows only that one.
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
    "WEEKDAYS",
    "YEAR",
    "Field",
    "parse_field",
    "parse_item",
    "parse_value",
    "plainly",
    "shown",
]

MONTHS: Final = (
    "JANUARY",
    "FEBRUARY",
    "MARCH",
    "APRIL",
    "MAY",
    "JUNE",
    "JULY",
    "AUGUST",
    "SEPTEMBER",
    "OCTOBER",
    "NOVEMBER",
    "DECEMBER",
)
WEEKDAYS: Final = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")
_SHORTEST_NAME: Final = 3
_LISTED: Final = 12
"""A range past the field's end with more values than this is written as two ranges, for the sake of the words."""
_ITEM: Final = re.compile(r"(?P<first>\*|[A-Z0-9]+)(?:-(?P<last>[A-Z0-9]+))?(?:/(?P<step>[0-9]+))?")


class Field(NamedTuple):
    """`high` is the largest value one may write, `top` the last that `*` and `a/step` reach. `names` are in full; three
    letters of one are enough."""

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
        names = f" and {self.names[0][:3]}-{self.names[-1][:3]}" if self.names else ""
        return f"{self.low}-{self.high}{names}"

    def named(self, text: str) -> int | None:
        """The value with this name, or with a name that begins so."""
        if len(text) < _SHORTEST_NAME:
            return None
        places = (place for place, name in enumerate(self.names) if name.startswith(text))
        return next((self.low + place for place in places), None)

    def around(self, first: int, last: int, step: int) -> list[int]:
        """The values of a range that runs backwards, in the order of the clock: on past the end of the field."""
        count = self.top - self.low + 1
        return [
            self.low + (value - self.low) % count
            for value in range(first, first + (last - first) % count + 1, step)
        ]

    @property
    def size(self) -> int:
        return self.high - self.low + 1


SECOND: Final = Field("second", 0, 59, 59)
MINUTE: Final = Field("minute", 0, 59, 59)
HOUR: Final = Field("hour", 0, 23, 23)
DAY_OF_MONTH: Final = Field("day-of-month", 1, 31, 31)
MONTH: Final = Field("month", 1, 12, 12, MONTHS)
DAY_OF_WEEK: Final = Field("day-of-week", 0, 7, 6, WEEKDAYS)
YEAR: Final = Field("year", 1970, 2099, 2099)


def parse_field(field: Field, text: str) -> int:
    """The mask of a field that has no special items."""
    mask = 0
    for item in text.split(","):
        mask |= parse_item(field, item)
    return mask


def parse_item(field: Field, item: str) -> int:
    """The mask of one item of the list, plainly spelled. In day-of-week bit 7 may be set: Sunday, like bit 0."""
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
            raise field.refuse(item, "runs backwards; accepted are ranges from the earlier to the later")
        return _mask(first, last, step)
    return _mask(first, max(field.top, first), step) if match["step"] is not None else 1 << first


def parse_value(field: Field, text: str, item: str) -> int:
    """A number, or a name in the fields that have names."""
    if (named := field.named(text)) is not None:
        return named
    if not text.isdecimal():
        raise _explain(field, item)
    value = int(text) if len(text) <= 4 else field.high + 1
    if not field.low <= value <= field.high:
        raise field.out_of_range(item)
    return value


def plainly(field: Field, item: str) -> str:
    """The item in the simplest spelling of the same: names as three letters, ranges forwards. What is not understood
    stays as it is, to be refused in the words of who wrote it."""
    match = _ITEM.fullmatch(item)
    if match is None or match["first"] == "*":
        return item
    step = f"/{match['step']}" if match["step"] is not None else ""
    if match["last"] is None:
        return _short(field, match["first"]) + step
    first, last = (_known(field, match[end]) for end in ("first", "last"))
    if field is DAY_OF_WEEK and last == 0 and first:
        last = 7  # a week may end with its Sunday
    if first is None or last is None or step == "/0" or (last < first and field is YEAR):
        return item
    if first == last:
        return str(first)
    if last < first:
        return _forwards(field, first, last, int(match["step"] or 1))
    return f"{first}-{last}{step}"


def _forwards(field: Field, first: int, last: int, step: int) -> str:
    values = field.around(first, last, step)
    if step == 1 and len(values) > _LISTED:
        return f"{first}-{field.top},{field.low}-{last}"
    return ",".join(str(value) for value in values)


def _known(field: Field, text: str) -> int | None:
    try:
        return parse_value(field, text, text)
    except ValueError:
        return None


def _short(field: Field, text: str) -> str:
    named = field.named(text)
    return text if named is None else field.names[named - field.low][:_SHORTEST_NAME]


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
    return field.not_understood(item)


def shown(text: str) -> str:
    """A text as a refusal quotes it."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
