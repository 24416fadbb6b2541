"""RRULE text to a `RuleText`: grammar and ranges of RFC 5545, with one sentence for whatever is refused.

Dates in the text may be local; they stay `DateText`s here, since only the caller knows the zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from ...errors import Invalid
from ..ticks import NeverFires

FREQUENCIES: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_LONGEST: Final = 10_000
_LARGEST: Final = 1_000_000_000
_PARTS: Final = {
    # part: (lowest, highest, negative values count from the end)
    "BYSECOND": (0, 60, False),
    "BYMINUTE": (0, 59, False),
    "BYHOUR": (0, 23, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYMONTH": (1, 12, False),
    "BYSETPOS": (1, 366, True),
}
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,12}")
_WEEKDAY: Final = re.compile(r"(?P<nth>[+-]?[0-9]{1,2})?(?P<day>MO|TU|WE|TH|FR|SA|SU)")
_DATE: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z)?)?")


class DateText(NamedTuple):
    """A date of the text: seconds on the clock of UTC, of the zone it names, or of the rule's own zone."""

    seconds: int
    utc: bool
    whole_day: bool
    zone: str | None = None


class RuleText(NamedTuple):
    """The parts as written, `limit` for COUNT. `by_day` is `(nth or 0, weekday from Monday = 0)`."""

    frequency: str
    interval: int = 1
    limit: int | None = None
    until: DateText | None = None
    week_start: int = 0
    by_second: frozenset[int] = frozenset()
    by_minute: frozenset[int] = frozenset()
    by_hour: frozenset[int] = frozenset()
    by_day: frozenset[tuple[int, int]] = frozenset()
    by_month_day: frozenset[int] = frozenset()
    by_year_day: frozenset[int] = frozenset()
    by_week_no: frozenset[int] = frozenset()
    by_month: frozenset[int] = frozenset()
    by_set_pos: frozenset[int] = frozenset()
    excluded: tuple[DateText, ...] = ()
    added: tuple[DateText, ...] = ()


def parse_rule_text(text: str) -> RuleText:
    """Read a rule and its EXDATE and RDATE lines; `Invalid` says what is wrong."""
    if not isinstance(text, str) or not text.strip():
        raise Invalid("rrule", "the rule is empty; accepted is for example FREQ=DAILY")
    if len(text) > _LONGEST:
        raise Invalid("rrule", f"the rule has {len(text):,} characters; accepted are up to {_LONGEST:,}")
    return _read(text)


@lru_cache(
    maxsize=1024
)  # schedules share rules and differ in DTSTART: to compile one takes 20 us instead of 70
def _read(text: str) -> RuleText:
    rule: RuleText | None = None
    dates: dict[str, list[DateText]] = {"EXDATE": [], "RDATE": []}
    for line in _lines(text):
        name = re.split("[:;=]", line, maxsplit=1)[0].upper()
        if name in dates:
            dates[name] += _parse_dates(name, line)
        elif name in ("DTSTART", "EXRULE"):
            hint = "give the start as start_at" if name == "DTSTART" else "accepted are EXDATE lines"
            raise Invalid("rrule", f"a {name} line is not accepted; {hint}")
        elif rule is not None:
            raise Invalid(
                "rrule", "there is more than one rule; accepted is one, then EXDATE and RDATE lines"
            )
        else:
            rule = _parse_parts(line.upper().removeprefix("RRULE:"))
    if rule is None:
        raise Invalid("rrule", "there is no rule; accepted is for example FREQ=DAILY")
    return rule._replace(excluded=tuple(dates["EXDATE"]), added=tuple(dates["RDATE"]))


def _lines(text: str) -> list[str]:
    """The lines of the text, with those that RFC 5545 would have folded put together again."""
    unfolded = re.sub(r"\r?\n[ \t]", "", text.strip())
    return [line.strip() for line in unfolded.splitlines() if line.strip()]


def _parse_parts(line: str) -> RuleText:
    parts: dict[str, str] = {}
    for part in line.split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise Invalid("rrule", f"part {part[:40]!r} is not understood; accepted are NAME=VALUE parts")
        if name in parts:
            raise Invalid("rrule", f"{name} is given twice; accepted is each part once")
        parts[name] = value
    frequency = parts.pop("FREQ", None)
    if frequency not in FREQUENCIES:
        found = "is missing" if frequency is None else f"{frequency[:40]!r} is not known"
        raise Invalid("rrule", f"FREQ {found}; accepted are {', '.join(FREQUENCIES)}")
    rule = RuleText(
        frequency,
        interval=_positive("INTERVAL", parts.pop("INTERVAL", "1")),
        limit=_positive("COUNT", parts.pop("COUNT")) if "COUNT" in parts else None,
        until=_parse_date("UNTIL", parts.pop("UNTIL")) if "UNTIL" in parts else None,
        week_start=_parse_week_start(parts.pop("WKST", "MO")),
        by_day=_parse_weekdays(parts.pop("BYDAY")) if "BYDAY" in parts else frozenset(),
        by_second=_seconds(_numbers("BYSECOND", parts)),
        by_minute=_numbers("BYMINUTE", parts),
        by_hour=_numbers("BYHOUR", parts),
        by_month_day=_numbers("BYMONTHDAY", parts),
        by_year_day=_numbers("BYYEARDAY", parts),
        by_week_no=_numbers("BYWEEKNO", parts),
        by_month=_numbers("BYMONTH", parts),
        by_set_pos=_numbers("BYSETPOS", parts),
    )
    for unknown in parts:
        raise Invalid("rrule", f"part {unknown[:40]!r} is not known; accepted are the parts of RFC 5545")
    return _consistent(rule)


def _consistent(rule: RuleText) -> RuleText:
    """Refuse parts that contradict one another."""
    if rule.limit is not None and rule.until is not None:
        raise Invalid("rrule", "COUNT and UNTIL are both given; accepted is one of them")
    if any(nth for nth, _ in rule.by_day):
        if rule.frequency not in ("MONTHLY", "YEARLY"):
            raise Invalid(
                "rrule",
                f"BYDAY has a numbered day with FREQ={rule.frequency}; accepted with MONTHLY and YEARLY only",
            )
        if rule.by_week_no:
            raise Invalid(
                "rrule", "BYDAY has a numbered day with BYWEEKNO; accepted are days without a number"
            )
    return rule


def _positive(name: str, text: str) -> int:
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else 0
    if not 1 <= value <= _LARGEST:
        raise Invalid("rrule", f"{name} {text[:40]!r} is out of range; accepted are 1 to {_LARGEST}")
    return value


def _numbers(name: str, parts: dict[str, str]) -> frozenset[int]:
    text = parts.pop(name, None)
    if text is None:
        return frozenset()
    low, high, negative = _PARTS[name]
    found: set[int] = set()
    for item in text.split(","):
        if not _NUMBER.fullmatch(item):
            raise Invalid(
                "rrule", f"{name} has {item[:40]!r}; accepted are whole numbers separated by commas"
            )
        value = int(item)
        if not (low <= value <= high or (negative and low <= -value <= high)):
            also = f" and -{high} to -{low}" if negative else ""
            raise Invalid("rrule", f"{name} {item} is out of range; accepted are {low} to {high}{also}")
        found.add(value)
    return frozenset(found)


def _seconds(numbers: frozenset[int]) -> frozenset[int]:
    """RFC 5545 allows the leap second 60, which no clock here ever shows."""
    if numbers == {60}:
        raise NeverFires("rrule", "BYSECOND 60 is a leap second and never fires; accepted are 0 to 59")
    return numbers - {60}


def _parse_weekdays(text: str) -> frozenset[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for item in text.split(","):
        match = _WEEKDAY.fullmatch(item)
        if match is None:
            raise Invalid("rrule", f"BYDAY has {item[:40]!r}; accepted are days such as MO, 2TU and -1FR")
        nth = int(match["nth"] or 0)
        if match["nth"] is not None and not 1 <= abs(nth) <= 53:
            raise Invalid(
                "rrule", f"BYDAY {item} is out of range; accepted are numbers from 1 to 53 and -53 to -1"
            )
        found.add((nth, WEEKDAYS.index(match["day"])))
    return frozenset(found)


def _parse_week_start(text: str) -> int:
    if text not in WEEKDAYS:
        raise Invalid("rrule", f"WKST {text[:40]!r} is not a day; accepted are {', '.join(WEEKDAYS)}")
    return WEEKDAYS.index(text)


def _parse_date(name: str, text: str) -> DateText:
    match = _DATE.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        year, month, day, hour, minute, second = (int(number or 0) for number in match.groups()[:6])
        when = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise Invalid(
            "rrule",
            f"{name} {text[:40]!r} is not a date; "
            "accepted are 20261231, 20261231T235959 and 20261231T235959Z",
        ) from None
    return DateText(int(when.timestamp()), match[7] is not None, match[4] is None)


def _parse_dates(name: str, line: str) -> list[DateText]:
    """An EXDATE or RDATE line: `NAME;TZID=zone:date,date`. Zones are the one place where case matters."""
    head, _, values = line.partition(":")
    zone: str | None = None
    for parameter in head.split(";")[1:]:
        key, _, value = parameter.partition("=")
        if key.upper() == "TZID":
            zone = value.strip('"')
        elif key.upper() != "VALUE" or value.upper() not in ("DATE", "DATE-TIME"):
            raise Invalid(
                "rrule", f"{name} has {parameter[:40]!r}; accepted are TZID and VALUE=DATE-TIME or DATE"
            )
    if not values:
        raise Invalid("rrule", f"{name} has no dates; accepted is for example {name}:20261231T090000Z")
    dates = [_parse_date(name, value)._replace(zone=zone) for value in values.upper().split(",")]
    if name == "RDATE" and any(date.whole_day for date in dates):
        raise Invalid(
            "rrule", "RDATE has a date without a time; accepted is for example RDATE:20261231T090000Z"
        )
    return dates
