"""Timings in plain English.

Cron lines are put into words by cron-descriptor, which knows the language well and validates nothing: it only ever sees
what our parser accepted. It takes a third of a second to import, so it is imported late. RRULEs are put into words
here: `Every 2 weeks on Monday and Friday at 09:00, 10 times`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from .cron import MONTHS as CRON_MONTHS
from .cron import WEEKDAYS as CRON_WEEKDAYS
from .cron import CronLine
from .occurrences import compiled, cron_line
from .rrule.text import DateText, RuleText, parse_rule_text
from .timing import After, AfterOn, Cron, Interval, Once, RRule, Several, Simple, Timing
from .zones import zone_tzinfo

WEEKDAYS: Final = tuple(day.capitalize() for day in (*CRON_WEEKDAYS[1:], CRON_WEEKDAYS[0]))
MONTHS: Final = tuple(month.capitalize() for month in CRON_MONTHS)
_UNITS: Final = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; a long list is cut short."""
    if len(words) > 12:
        words = [*words[:10], f"{len(words) - 10} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def ordinal(number: int) -> str:
    """`1st`, `22nd`, and from the end `last`, `2nd to last`."""
    if number == -1:
        return "last"
    suffix = (
        "th" if abs(number) % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(abs(number) % 10, "th")
    )
    return f"{abs(number)}{suffix}" + (" to last" if number < 0 else "")


def every(number: int, unit: str) -> str:
    return f"Every {unit}" if number == 1 else f"Every {number:,} {unit}s"


def duration(length: timedelta) -> str:
    """`1 hour 30 minutes`."""
    rest, words = int(length.total_seconds()), []
    for size, unit in _UNITS:
        number, rest = divmod(rest, size)
        if number:
            words.append(f"{number:,} {unit}{'s' * (number != 1)}")
    if length.microseconds:
        words.append(f"{length.microseconds:,} microseconds")
    return " ".join(words)


_RULE_UNITS: Final = {
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
    words = [every(text.interval, _RULE_UNITS[text.frequency]), _dates(text, start), _times(text, start)]
    sentence = " ".join(word for word in words if word)
    if text.by_set_pos:
        places = listed([ordinal(place) for place in _sorted(text.by_set_pos)])
        sentence += f", only the {places} of these each {_RULE_UNITS[text.frequency]}"
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
            "on " + listed([_rule_weekday(nth, day) for nth, day in sorted(text.by_day, key=_weekday_order)])
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
    """The parts that the rule takes from DTSTART."""
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


def _rule_weekday(nth: int, day: int) -> str:
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


_NAMES: Final = tuple(day[:3] for day in CRON_WEEKDAYS)


@lru_cache(maxsize=10_000)
def describe(timing: Timing) -> str:
    """A timing as a sentence, without its zone; `Invalid` if the timing is not acceptable. Words are kept, since
    those of a cron line take 0.36 ms to find: all the rest of an answer over HTTP takes 0.48."""
    compiled(timing)
    match timing:
        case Once(run_at):
            return f"Once, at {_shown(run_at)}"
        case Interval(length, anchor):
            return _interval(length, anchor)
        case Cron():
            return _cron(cron_line(timing))
        case RRule(rule, dtstart, timezone):
            return describe_rule(rule, dtstart, timezone)
        case Several(timings):
            return _several(timings)
        case After(schedules, on, delay):
            return _after(schedules, on, delay)


def _several(timings: tuple[Simple, ...]) -> str:
    """Each after the other; with their zones, if these differ."""
    zones = {getattr(timing, "timezone", None) for timing in timings} - {None}
    sentences = []
    for timing in timings:
        zone = getattr(timing, "timezone", None)
        where = f" in {zone}" if zone is not None and len(zones) > 1 else ""
        sentences.append(describe(timing) + where)
    return "; and ".join([sentences[0], *(text[:1].lower() + text[1:] for text in sentences[1:])])


def _after(schedules: Sequence[str], on: AfterOn, delay: timedelta) -> str:
    verb = {AfterOn.SUCCESS: "succeeds", AfterOn.FAILURE: "fails", AfterOn.END: "ends"}[on]
    past = {AfterOn.SUCCESS: "succeeded", AfterOn.FAILURE: "failed", AfterOn.END: "ended"}[on]
    then = f"{listed(schedules)} {verb if len(schedules) == 1 else f'have each {past}'}"
    return f"{duration(delay)} after {then}" if delay else f"After {then}"


def _shown(at: datetime) -> str:
    at = at.astimezone(UTC)
    return at.strftime("%Y-%m-%d %H:%M" + (":%S" if at.second else "")) + " UTC"


def _interval(length: timedelta, anchor: datetime | None) -> str:
    number, _, unit = duration(length).partition(" ")
    text = every(1, unit) if number == "1" and " " not in unit else f"Every {duration(length)}"
    return text if anchor is None else f"{text}, from {_shown(anchor)}"


def _cron(line: CronLine) -> str:
    """Two day fields, and lists with `L`, `W` or `#`, are beyond cron-descriptor: it is shown `*`, and the words are
    ours."""
    fields = list(line.fields)
    fields[-1] = re.sub(r"^0,7$|^7,0$", "0", fields[-1])
    chosen = [
        words(fields[place])
        for place, words, field in ((-3, _days_of_month, line.of_month), (-1, _days_of_week, line.of_week))
        if not field.open
    ]
    if len(chosen) == 2 or any(_is_special(fields[place]) for place in (-3, -1)):
        fields[-3] = fields[-1] = "*"
        joined = ", and only " if line.both or line.of_month.starred or line.of_week.starred else ", or "
        return f"{_described(' '.join(fields))}, {joined.join(chosen)}{_in_years(line)}"
    return _described(" ".join(fields)) + _in_years(line)


def _is_special(field: str) -> bool:
    """Whether cron-descriptor would misread it."""
    bare = re.sub("|".join(_NAMES), "", field)
    return ("-" in bare and "W" in bare) or ("," in field and re.search(r"L|W$|W,|#", bare) is not None)


def _in_years(line: CronLine) -> str:
    """`, only in 2027 and 2030 to 2032`."""
    runs: list[list[int]] = []
    for year in line.years:
        if runs and runs[-1][-1] == year - 1:
            runs[-1].append(year)
        else:
            runs.append([year])
    spans = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return f", only in {listed(spans)}" if spans else ""


def _described(expression: str) -> str:
    from cron_descriptor import ExpressionDescriptor, Options

    options = Options(locale_code="en_US", use_24hour_time_format=True, day_of_week_start_index_zero=True)
    return str(ExpressionDescriptor(expression, options).get_description())


def _days_of_month(field: str) -> str:
    if field.startswith("*/"):
        return f"every {field[2:]} days"
    words = []
    for item in field.split(","):
        if item == "L":
            words.append("the last day")
        elif item == "LW":
            words.append("the last weekday")
        elif item.startswith("L-"):
            near = "the weekday nearest " if item.endswith("W") else ""
            words.append(f"{near}the {ordinal(-1 - int(item[2:].rstrip('W')))} day")
        elif item.endswith("W"):
            words.append(f"the weekday nearest day {item[:-1]}")
        else:
            days, _, step = item.partition("/")
            words.append(f"{'days' if '-' in item else 'day'} {days}" + (f" by {step}s" if step else ""))
    return f"on {listed(words)} of the month"


def _days_of_week(field: str) -> str:
    if field.startswith("*/"):
        return f"on every {ordinal(int(field[2:]))} day of the week"
    of_month = re.search("#|L", re.sub("|".join(_NAMES), "", field)) is not None
    words = []
    for item in field.split(","):
        day, hash_, nth = item.partition("#")
        if hash_:
            words.append(f"the {ordinal(int(nth))} {_weekday(day)}")
        elif of_month and item.endswith("L"):
            words.append(f"the last {_weekday(item[:-1])}")
        else:
            days, _, step = item.partition("/")
            named = " through ".join(_weekday(day) for day in days.split("-"))
            words.append(f"{'every ' * of_month}{named}" + (f" by {step}s" if step else ""))
    return f"on {listed(words)}" + (" of the month" if of_month else "")


def _weekday(text: str) -> str:
    number = _NAMES.index(text) if text in _NAMES else int(text) if text.isdecimal() else None
    return text if number is None else WEEKDAYS[(number - 1) % 7]
