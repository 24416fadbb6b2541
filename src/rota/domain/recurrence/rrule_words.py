"""RRULEs in plain English: `Every 2 weeks on Monday and Friday at 09:00, 10 times`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from rota.domain.recurrence.english import MONTHS, WEEKDAYS, every, listed, ordinal
from rota.domain.recurrence.rrule_text import DateText, RuleText, parse_rule_text
from rota.domain.recurrence.zones import zone_tzinfo

__all__ = ["describe_rule"]

_UNITS: Final = {
    "YEARLY": "year",
    "MONTHLY": "month",
    "WEEKLY": "week",
    "DAILY": "day",
    "HOURLY": "hour",
    "MINUTELY": "minute",
    "SECONDLY": "second",
}


def describe_rule(rule: str, dtstart: datetime, timezone: str) -> str:
    """A sentence for a rule that is known to be valid."""
    text = parse_rule_text(rule)
    start = dtstart.astimezone(zone_tzinfo(timezone))
    words = [every(text.interval, _UNITS[text.frequency]), _dates(text, start), _times(text, start)]
    sentence = " ".join(word for word in words if word)
    if text.by_set_pos:
        places = listed([ordinal(place) for place in _sorted(text.by_set_pos)])
        sentence += f", only the {places} of these each {_UNITS[text.frequency]}"
    if text.limit is not None:
        sentence += ", once" if text.limit == 1 else f", {text.limit:,} times"
    if text.until is not None:
        sentence += f", until {_date(text.until)}"
    if text.added:
        sentence += f", also at {listed([_date(date) for date in text.added])}"
    if text.excluded:
        sentence += f", except {listed([_date(date) for date in text.excluded])}"
    return sentence


def _dates(text: RuleText, start: datetime) -> str:
    words = []
    if text.by_day:
        words.append(
            "on " + listed([_weekday(nth, day) for nth, day in sorted(text.by_day, key=_weekday_order)])
        )
    if text.by_month_day:
        words.append(f"on the {_ordinals(text.by_month_day)} day of the month")
    if text.by_year_day:
        words.append(f"on the {_ordinals(text.by_year_day)} day of the year")
    if text.by_week_no:
        words.append(f"in week {listed([str(week) for week in _sorted(text.by_week_no)])}")
    if text.by_month:
        words.append(f"in {listed([MONTHS[month - 1] for month in sorted(text.by_month)])}")
    if not (text.by_day or text.by_month_day or text.by_year_day or text.by_week_no):
        words[:0] = _implied(text, start)
    return " ".join(words)


def _implied(text: RuleText, start: datetime) -> list[str]:
    """What the rule takes from DTSTART."""
    if text.frequency == "WEEKLY":
        return [f"on {WEEKDAYS[start.weekday()]}"]
    if text.frequency == "MONTHLY" or (text.frequency == "YEARLY" and text.by_month):
        return [f"on the {ordinal(start.day)}"]
    return [f"on {start.day} {MONTHS[start.month - 1]}"] if text.frequency == "YEARLY" else []


def _times(text: RuleText, start: datetime) -> str:
    if text.frequency in ("HOURLY", "MINUTELY", "SECONDLY"):
        parts = (("hour", text.by_hour), ("minute", text.by_minute), ("second", text.by_second))
        words = [
            f"{name} {listed([str(value) for value in sorted(values)])}" for name, values in parts if values
        ]
        return f"in {', '.join(words)}" if words else ""
    times = [
        f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")
        for hour in sorted(text.by_hour or {start.hour})
        for minute in sorted(text.by_minute or {start.minute})
        for second in sorted(text.by_second or {start.second})
    ]
    return f"at {listed(times)}"


def _weekday(nth: int, day: int) -> str:
    return f"the {ordinal(nth)} {WEEKDAYS[day]}" if nth else WEEKDAYS[day]


def _weekday_order(item: tuple[int, int]) -> tuple[bool, int, int]:
    nth, day = item
    return nth < 0, nth, day


def _ordinals(numbers: Iterable[int]) -> str:
    return listed([ordinal(number) for number in _sorted(numbers)])


def _sorted(numbers: Iterable[int]) -> list[int]:
    """Ascending, those from the end last."""
    return sorted(numbers, key=lambda number: (number < 0, number))


def _date(date: DateText) -> str:
    at = datetime.fromtimestamp(date.seconds, UTC)
    if date.whole_day:
        return at.strftime("%Y-%m-%d")
    return at.strftime("%Y-%m-%d %H:%M" + (":%S" if at.second else "")) + (" UTC" if date.utc else "")
