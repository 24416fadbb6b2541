"""The options of a calendar, and where its days may come from, declared once as in `options`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from functools import partial
from typing import Annotated, Any, TypedDict

from ..checks import check_number, check_text
from ..errors import Invalid
from ..options import Option, check_names, options_of
from .calendars import FIELDS

YEARS = 5
MOST_YEARS = 20
MOST_ICS = 1_000_000
SOURCES = ("country", "subdivision", "ics", "years")
"""They become days before anything is stored."""


class CalendarOptions(TypedDict, total=False):
    """The options of a calendar, beside its name. Days of several sources add up."""

    days: Annotated[
        Iterable[date | str] | None, Option(help="Days, such as 2027-12-24.", check=FIELDS["days"])
    ]
    rules: Annotated[
        Iterable[str] | None,
        Option(
            help="RRULEs: the days on which they fall, such as FREQ=WEEKLY;BYDAY=SA,SU.",
            check=FIELDS["rules"],
        ),
    ]
    windows: Annotated[
        Iterable[str] | None,
        Option(help="Windows of every day, such as 22:00-06:00.", check=FIELDS["windows"]),
    ]
    country: Annotated[
        str | None,
        Option(help="The public holidays of a country, by its code, such as GB.", check=check_text),
    ]
    subdivision: Annotated[
        str | None, Option(help="With a country: those of a part of it, such as SCT.", check=check_text)
    ]
    ics: Annotated[
        str | None,
        Option(
            help="The text of an .ics file: its all-day events.",
            check=partial(check_text, most=MOST_ICS),
            most=MOST_ICS,
        ),
    ]
    years: Annotated[
        int | None,
        Option(
            help=f"How many years ahead holidays and repeated events are taken. [default: {YEARS}]",
            check=partial(check_number, least=0, most=MOST_YEARS),
            least=0,
            most=MOST_YEARS,
        ),
    ]
    timezone: Annotated[
        str | None,
        Option(
            help="Whose days and hours are meant. [default: those of each schedule]",
            check=FIELDS["timezone"],
            clearable=True,
        ),
    ]
    description: Annotated[str | None, Option(help="For people.", check=check_text)]


def sources_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Where the days come from, checked; empty if all that is given is stored as it is."""
    check_names(CalendarOptions, fields, "field of a calendar")
    given = {name: fields[name] for name in SOURCES if fields.get(name) is not None}
    if given and not given.keys() & {"country", "ics"}:
        raise Invalid(next(iter(given)), "it was given without a country or an .ics file", "give one of them")
    if "subdivision" in given and "country" not in given:
        raise Invalid("subdivision", "it was given without a country", "give both")
    options = options_of(CalendarOptions)
    return {name: options[name].check(name, value) for name, value in given.items()}
