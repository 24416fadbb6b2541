"""Cron expressions: five fields, six with seconds first, seven with a year last, or a macro.

`parse_cron` refuses with one sentence what is not understood, is ambiguous, or can never happen.

A field is a list of items; an item is `*`, a value, `a-b`, or one of these with `/step`. A range that runs backwards
goes on past the field's end (`22-2`, `NOV-MAR`). Names may be written out (`SEPT`, `Monday`). `plainly` writes an item
in the simplest spelling of the same, so that everything after it knows only that one. The two day fields also know `L`,
`W` and `#`: they become functions from a month's shape to a mask of its days, bit 0 for the 1st, so that a shape is
computed once. Daylight saving is in `walk`.

A line may begin with its zone, as in a crontab (`CRON_TZ=Europe/Paris 0 9 * * *`), and end with a comment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from ..errors import Invalid
from .days import DaySet, Shape, month_start
from .pattern import Pattern, TimeGrid, Within
from .ticks import DAY, NeverFires

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

    def refuse(self, text: str, reason: str) -> Invalid:
        return Invalid("cron", f"{self.name} field {shown(text)} {reason}")

    def out_of_range(self, text: str) -> Invalid:
        return self.refuse(text, f"is out of range; accepted are {self.accepted}")

    def not_understood(self, text: str) -> Invalid:
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
        raise Invalid(
            "cron", f"{field.name} field has an empty item; accepted are values separated by single commas"
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
    except Invalid:
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


def _explain(field: Field, item: str) -> Invalid:
    """The refusal that helps most: people write what other crons know."""
    if item == "H" or item.startswith(("H/", "H(")):
        return field.refuse(item, "uses H, which is Jenkins's; give a number, and a jitter on the schedule")
    return field.not_understood(item)


def shown(text: str) -> str:
    """A text as a refusal quotes it."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


_LAST: Final = re.compile(r"L(?:-(?P<before>[0-9]+))?(?P<working>W)?")
_NEAREST: Final = re.compile(r"(?P<day>[0-9]+)W")
_NTH: Final = re.compile(r"(?P<day>[A-Z0-9]+?)(?:#(?P<nth>[0-9]+)|(?P<last>L))")
_SOME_OF: Final = re.compile(r"(?P<days>[A-Z0-9]+(?:-[A-Z0-9]+)?)(?P<nth>#L|#[1-5]|L)")
_LAST_OF: Final = re.compile(r"L(?P<days>[0-7]|[A-Z]{3,})")
_DURATION: Final = re.compile(r"(?=.)(?:[0-9]{1,5}h)?(?:[0-9]{1,6}m)?(?:[0-9]{1,6}s)?")

MaskOf = Callable[[Shape], int]


class DayField(NamedTuple):
    """`starred` is cron's own test, "begins with `*`": such a field narrows the other instead of adding to
    it. `open` is a field that allows every day."""

    starred: bool
    open: bool
    mask_of: MaskOf


def parse_day_of_month(text: str) -> DayField:
    plain, special = _parse_days(DAY_OF_MONTH, text, _special_day_of_month)
    days = plain >> 1
    return _field(text, days == 0x7FFF_FFFF, lambda shape: days, special)


def parse_day_of_week(text: str) -> DayField:
    plain, special = _parse_days(DAY_OF_WEEK, text, _special_day_of_week)
    weekdays = (plain | plain >> 7) & 0x7F  # 7 is Sunday, like 0
    return _field(text, weekdays == 0x7F, lambda shape: _on_weekdays(shape, weekdays), special)


def _parse_days(
    field: Field, text: str, special_of: Callable[[str], MaskOf | None]
) -> tuple[int, list[MaskOf]]:
    """The mask of the plain items of a day field, and its special ones."""
    plain, special = 0, []
    for item in text.split(","):
        found = special_of(item)
        if found is None:
            plain |= parse_item(field, item)
        else:
            special.append(found)
    return plain, special


def day_set(months: int, of_month: DayField, of_week: DayField, *, both: bool) -> DaySet:
    """The days of the given months that the two fields allow. Where both restrict, either may match, or must `both`."""
    if both or of_month.starred or of_week.starred:

        def mask_of(shape: Shape) -> int:
            return of_month.mask_of(shape) & of_week.mask_of(shape)
    else:

        def mask_of(shape: Shape) -> int:
            return of_month.mask_of(shape) | of_week.mask_of(shape)

    every = months == 0xFFF and of_month.open and of_week.open
    return DaySet(mask_of, months, every=every)


def _field(text: str, full: bool, plain: MaskOf, special: list[MaskOf]) -> DayField:
    def mask_of(shape: Shape) -> int:
        mask = plain(shape) & _whole_month(shape)
        for one in special:
            mask |= one(shape)
        return mask

    return DayField(text.startswith("*"), full, mask_of)


def _special_day_of_month(item: str) -> MaskOf | None:
    """`L`, `L-n`, `LW`, `L-nW`, `nW`; None for anything that is no such thing."""
    if match := _NEAREST.fullmatch(item):
        day = parse_value(DAY_OF_MONTH, match["day"], item)
        return lambda shape: _nearest_working_day(shape, day)
    if match := _LAST.fullmatch(item):
        before = int(match["before"][:4]) if match["before"] is not None else 0
        if match["before"] is not None and not 1 <= before <= 30:
            raise DAY_OF_MONTH.refuse(item, "is out of range; accepted are L-1 to L-30")
        if match["working"]:
            return lambda shape: _nearest_working_day(shape, shape.length - before)
        return lambda shape: 1 << shape.length - 1 >> before
    if item.startswith("L") or (item.endswith("W") and item[:-1] != ""):
        raise DAY_OF_MONTH.refuse(
            item, "is not understood; accepted with L and W are L, L-n, LW, L-nW and nW, n being a day"
        )
    return None


def _special_day_of_week(item: str) -> MaskOf | None:
    """`dL`, `d#k`; None for anything that is no such thing."""
    if item == "L":
        raise DAY_OF_WEEK.refuse(
            item,
            "does not say which day; write 'SAT' for every Saturday, as Quartz reads it, or 'SATL' for the last of the"
            " month",
        )
    match = _NTH.fullmatch(item)
    if match is None:
        if "#" in item:
            raise DAY_OF_WEEK.refuse(
                item, "is not understood; accepted is a day, '#' and 1 to 5, such as MON#2"
            )
        return None
    weekday = (parse_value(DAY_OF_WEEK, match["day"], item) - 1) % 7  # shapes count from Monday
    if match["last"]:
        return lambda shape: _last_weekday(shape, weekday)
    nth = int(match["nth"][:4])
    if not 1 <= nth <= 5:
        raise DAY_OF_WEEK.refuse(item, "is out of range; accepted after '#' are 1 to 5")
    return lambda shape: 1 << (weekday - shape.weekday) % 7 + 7 * (nth - 1) & _whole_month(shape)


def _whole_month(shape: Shape) -> int:
    return (1 << shape.length) - 1


def _on_weekdays(shape: Shape, weekdays: int) -> int:
    """All days of the month on the given weekdays, bit 0 for Sunday."""
    week = sum(1 << place for place in range(7) if weekdays >> (shape.weekday + 1 + place) % 7 & 1)
    return week * 0x1020_4081 & 0x7FFF_FFFF  # seven days, repeated


def _last_weekday(shape: Shape, weekday: int) -> int:
    last = (shape.weekday + shape.length - 1) % 7
    return 1 << shape.length - 1 - (last - weekday) % 7


def _nearest_working_day(shape: Shape, day: int) -> int:
    """Monday to Friday nearest to `day`, without leaving the month."""
    if not 1 <= day <= shape.length:
        return 0
    weekday = (shape.weekday + day - 1) % 7
    if weekday == 5:
        day += 2 if day == 1 else -1
    elif weekday == 6:
        day -= 2 if day == shape.length else -1
    return 1 << day - 1


MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST: Final = 1_000
_FROM_STEP: Final = re.compile(r"[0-9]+/")
_ZONE: Final = re.compile(
    r"(?:CRON_TZ|TZ)=(?P<quote>[\"']?)(?P<zone>[^\s\"']*)(?P=quote)(?:\s+|$)", re.IGNORECASE
)
_COMMENT: Final = re.compile(r"[ \t]+#.*")
_ACCEPTED: Final = "accepted are 5 fields, 6 with seconds first, 7 with a year last"


class CronLine(NamedTuple):
    """A parsed expression. `fields` are five or six, in capitals and plainly spelled, and `years` those of a seventh.
    `repeats` is true for expressions that repeat within the day and keep their real-time rhythm through clock
    changes. `both`: a day must match both day fields."""

    fields: tuple[str, ...]
    years: tuple[int, ...]
    repeats: bool
    of_month: DayField
    of_week: DayField
    both: bool
    pattern: Pattern | Within


def split_zone(expression: str) -> tuple[str | None, str]:
    """The zone that a line begins with (`CRON_TZ=` or `TZ=`), if it does, and the line without it."""
    match = _ZONE.match(expression.strip())
    if match is None:
        return None, expression
    if not match["zone"]:
        raise Invalid("cron", "the zone in front is empty; accepted is for example CRON_TZ=Europe/Paris")
    return match["zone"], expression.strip()[match.end() :]


@lru_cache(maxsize=4096)
def parse_cron(expression: str, *, both: bool = False) -> CronLine:
    """Read an expression without its zone; `Invalid` says what is wrong with it. `both`: where both day fields
    restrict, a day must match both."""
    written, year = _split(expression)
    second, minute, hour, day, month, weekday = fields = _plain(("0", *written)[-6:])
    grid = TimeGrid(parse_field(HOUR, hour), parse_field(MINUTE, minute), parse_field(SECOND, second))
    of_month, of_week = parse_day_of_month(day), parse_day_of_week(weekday)
    days = day_set(parse_field(MONTH, month) >> 1, of_month, of_week, both=both)
    years = _years(year)
    pattern = Pattern(days, grid)
    within = Within(pattern, _spans(years)) if years else None
    if not (days.possible() if within is None else within.any()):
        raise NeverFires("cron", _impossible(day, month, weekday, year, of_week))
    repeats = any(_is_wildcard(field) for field in (second, minute, hour))
    return CronLine(fields[-len(written) :], years, repeats, of_month, of_week, both, within or pattern)


def _impossible(day: str, month: str, weekday: str, year: str | None, of_week: DayField) -> str:
    also = "" if of_week.open else f" on day-of-week field {shown(weekday)}"
    when = "" if year is None else f" in year field {shown(year)}"
    return (
        f"day-of-month field {shown(day)} never occurs in month field {shown(month)}{also}{when}; "
        "accepted are dates that some year has"
    )


def _split(expression: str) -> tuple[tuple[str, ...], str | None]:
    """Five or six fields, in capitals and with macros replaced, and the year if there is one."""
    if not isinstance(expression, str) or not expression.strip():
        raise Invalid("cron", f"the expression is empty; {_ACCEPTED}, or a macro")
    if len(expression) > _LONGEST:
        raise Invalid(
            "cron", f"the expression has {len(expression):,} characters; accepted are up to {_LONGEST:,}"
        )
    text = expression.strip()
    if text.startswith("@"):
        text = _macro(_COMMENT.sub("", text))
    fields = tuple(field for field in re.split(r"[ \t]+", text.upper()) if field)
    comment = next(
        (place for place, field in enumerate(fields) if place >= 5 and field.startswith("#")), None
    )
    fields = fields[:comment]
    if len(fields) == 7:
        return fields[:6], fields[6]
    if len(fields) not in (5, 6):
        raise Invalid(
            "cron", f"the expression has {len(fields)} field{'s' * (len(fields) != 1)}; {_ACCEPTED}"
        )
    return fields, None


def _plain(fields: tuple[str, ...]) -> tuple[str, ...]:
    second, minute, hour, day, month, weekday = ("*" if field == "?" else field for field in fields)
    others = ((SECOND, second), (MINUTE, minute), (HOUR, hour), (DAY_OF_MONTH, day), (MONTH, month))
    return (*(_plain_list(field, text) for field, text in others), _plain_weekdays(weekday))


def _plain_list(field: Field, text: str) -> str:
    return ",".join(plainly(field, item) for item in text.split(","))


def _plain_weekdays(text: str) -> str:
    """`FRI#L`, `L5` and `FRIDAYL` are `FRIL` or `5L`; `MON-WED#1` is `MON#1,TUE#1,WED#1`."""
    items = []
    for item in text.split(","):
        match = _SOME_OF.fullmatch(item) or _LAST_OF.fullmatch(item)
        days = "" if match is None else plainly(DAY_OF_WEEK, match["days"])
        if match is None or days == match["days"] == "":
            items.append(plainly(DAY_OF_WEEK, item))
            continue
        nth = match.groupdict().get("nth") or "L"
        suffix = "L" if nth in ("L", "#L") else nth
        items += [f"{day}{suffix}" for day in _each_weekday(days)]
    return ",".join(items)


def _each_weekday(days: str) -> list[str]:
    """The days of a range, each by itself."""
    each: list[str] = []
    for part in days.split(","):
        first, dash, last = part.partition("-")
        if dash and first in "01234567" and last in "01234567":
            each += [str(day % 7) for day in range(int(first), int(last) + 1)]
        else:
            each.append(part)
    return each


def _years(text: str | None) -> tuple[int, ...]:
    """The years of a seventh field; none for one that allows every year."""
    if text in (None, "*", "?"):
        return ()
    mask = parse_field(YEAR, _plain_list(YEAR, text))
    return tuple(year for year in range(YEAR.low, YEAR.high + 1) if mask >> year & 1)


def _spans(years: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The years as ranges of local seconds."""
    return tuple((month_start(year * 12) * DAY, month_start(year * 12 + 12) * DAY - 1) for year in years)


def _macro(text: str) -> str:
    line = MACROS.get(text.lower())
    if line is not None:
        return line
    if text.lower().startswith("@every"):
        given = text[len("@every") :].strip().lower()
        hint = repr(given) if _DURATION.fullmatch(given) and given.strip("0hms") else "such as '5m'"
        raise Invalid("cron", f"'@every' is not accepted; write it as an interval, {hint}")
    if text.lower() == "@reboot":
        raise Invalid("cron", "'@reboot' is not accepted, since a schedule outlives the machine; give a time")
    raise Invalid("cron", f"macro {text[:40]!r} is not known; accepted are {', '.join(MACROS)}")


def _is_wildcard(field: str) -> bool:
    """Debian cron's test, begins with `*`; `n/step` reads as `*/step` from n and counts too."""
    return field.startswith("*") or _FROM_STEP.match(field) is not None
