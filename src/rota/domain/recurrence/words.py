"""Timings in plain English.

Cron lines are put into words by cron-descriptor, which knows the language well and validates nothing: it
only ever sees what our parser accepted. It takes a third of a second to import, hence only here and late.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from rota.domain.recurrence.compiled import compiled
from rota.domain.recurrence.cron import CronLine, parse_cron
from rota.domain.recurrence.english import WEEKDAYS, duration, every, listed, ordinal
from rota.domain.recurrence.rrule_words import describe_rule
from rota.domain.recurrence.timing import Cron, Interval, Once, RRule, Timing

__all__ = ["describe"]

_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@lru_cache(maxsize=1024)
def describe(timing: Timing) -> str:
    """What a timing means, as a sentence without its zone; `ValueError` if the timing is not acceptable."""
    compiled(timing)
    match timing:
        case Once(run_at):
            return f"Once, at {_shown(run_at)}"
        case Interval(length, anchor):
            return _interval(length, anchor)
        case Cron(expression):
            return _cron(parse_cron(expression))
        case RRule(rule, dtstart, timezone):
            return describe_rule(rule, dtstart, timezone)


def _shown(at: datetime) -> str:
    at = at.astimezone(UTC)
    return at.strftime("%Y-%m-%d %H:%M" + (":%S" if at.second else "")) + " UTC"


def _interval(length: timedelta, anchor: datetime | None) -> str:
    number, _, unit = duration(length).partition(" ")
    text = every(1, unit) if number == "1" and " " not in unit else f"Every {duration(length)}"
    return text if anchor is None else f"{text}, from {_shown(anchor)}"


def _cron(line: CronLine) -> str:
    """Lists with `L`, `W` or `#` are beyond cron-descriptor: it is shown `*`, and the words are ours."""
    fields = list(line.fields)
    extra: list[str] = []
    for place, words in ((-3, _days_of_month), (-1, _days_of_week)):
        if "," in fields[place] and re.search(r"L|W$|W,|#", re.sub("|".join(_NAMES), "", fields[place])):
            extra.append(words(fields[place]))
            fields[place] = "*"
    fields[-1] = re.sub(r"^0,7$|^7,0$", "0", fields[-1])
    sentence = _described(" ".join(fields))
    if line.of_month.starred != line.of_week.starred and not (line.of_month.open or line.of_week.open):
        sentence = sentence.replace(
            ", or on", ", and only on"
        )  # a field that begins with `*` narrows the other
    return ", ".join([sentence, *([" or ".join(extra)] if extra else [])])


def _described(expression: str) -> str:
    from cron_descriptor import ExpressionDescriptor, Options

    options = Options(locale_code="en_US", use_24hour_time_format=False, day_of_week_start_index_zero=True)
    return str(ExpressionDescriptor(expression, options).get_description())


def _days_of_month(field: str) -> str:
    words = []
    for item in field.split(","):
        if item == "L":
            words.append("the last day")
        elif item == "LW":
            words.append("the last weekday")
        elif item.endswith("W"):
            words.append(f"the weekday nearest day {item[:-1]}")
        elif item.startswith("L-"):
            words.append(f"the {ordinal(-1 - int(item[2:]))} day")
        else:
            words.append(f"{'days' if '-' in item else 'day'} {item}")
    return f"on {listed(words)} of the month"


def _days_of_week(field: str) -> str:
    words = []
    for item in field.split(","):
        day, hash_, nth = item.partition("#")
        if hash_:
            words.append(f"the {ordinal(int(nth))} {_weekday(day)}")
        elif item.endswith("L"):
            words.append(f"the last {_weekday(item[:-1])}")
        else:
            words.append("every " + " to ".join(_weekday(day) for day in item.split("-")))
    return f"on {listed(words)} of the month"


def _weekday(text: str) -> str:
    number = _NAMES.index(text) if text in _NAMES else int(text) if text.isdecimal() else None
    return text if number is None else WEEKDAYS[(number - 1) % 7]
