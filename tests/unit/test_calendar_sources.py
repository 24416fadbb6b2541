"""Days of calendars that come from a country or an `.ics` file."""

from __future__ import annotations

import sys
from datetime import date
from typing import Any

import pytest

from rota.domain.errors import Invalid
from rota.domain.schedule.calendar_options import sources_in
from rota.surfaces.calendar_sources import days_of

TODAY = date(2026, 11, 17)


def ics(*events: str) -> str:
    body = "".join(
        f"BEGIN:VEVENT\nUID:{number // 10}\n{event}\nEND:VEVENT\n" for number, event in enumerate(events)
    )
    return f"BEGIN:VCALENDAR\n{body}END:VCALENDAR\n".replace("\n", "\r\n")


def test_holidays_of_a_country_and_of_a_part_of_it() -> None:
    found = days_of({"country": "GB", "subdivision": "SCT", "years": 1}, TODAY)
    assert {date(2026, 12, 25), date(2027, 1, 2 + 2)} <= found
    assert {day.year for day in found} == {2026, 2027}
    assert date(2026, 11, 30) in found - days_of({"country": "GB", "subdivision": "ENG"}, TODAY)


@pytest.mark.parametrize(
    ("events", "days"),
    [
        (["DTSTART;VALUE=DATE:20261224"], ["2026-12-24"]),
        (
            ["DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227"],
            ["2026-12-24", "2026-12-25", "2026-12-26"],
        ),
        (["DTSTART;VALUE=DATE:20261224\nDURATION:P2D"], ["2026-12-24", "2026-12-25"]),
        (
            ["DTSTART;VALUE=DATE:20200501\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20270501"],
            ["2020-05-01", "2026-05-01", "2028-05-01"],
        ),
        (
            ["DTSTART;VALUE=DATE:20261201\nRRULE:FREQ=WEEKLY;INTERVAL=2;COUNT=3\nRDATE;VALUE=DATE:20261203"],
            ["2026-12-01", "2026-12-03", "2026-12-15", "2026-12-29"],
        ),
        (
            [
                "DTSTART;VALUE=DATE:20261201\nRRULE:FREQ=DAILY;UNTIL=20261203",
                "RECURRENCE-ID;VALUE=DATE:20261202\nDTSTART;VALUE=DATE:20261210",
            ],
            ["2026-12-01", "2026-12-03", "2026-12-10"],
        ),
        (["DTSTART;VALUE=DATE:20261224", "DTSTART:20261225T090000Z"], ["2026-12-24"]),
        (["DTSTART;VALUE=DATE:20261224", "DTSTART;VALUE=DATE:20261225\nSTATUS:CANCELLED"], ["2026-12-24"]),
    ],
)
def test_all_day_events(events: list[str], days: list[str]) -> None:
    assert [str(day) for day in sorted(days_of({"ics": ics(*events), "years": 2}, TODAY))] == days


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"country": "XX"}, "country: 'XX' is not known; give a code of ISO 3166, such as GB, DE or US"),
        ({"country": "gb"}, "country: 'gb' is not known; give a code of ISO 3166, such as GB"),
        ({"country": "GB", "subdivision": "QQ"}, "subdivision: 'QQ' is not known; accepted are ENG, NIR"),
        ({"subdivision": "SCT"}, "it was given without a country"),
        ({"years": 3}, "years: it was given without a country or an .ics file"),
        ({"country": "GB", "years": 100}, "years: 100 is not accepted; give a whole number from 0 to 20"),
        ({"county": "GB"}, "county: there is no such field of a calendar"),
        ({"ics": "nonsense"}, "ics: it is not the text of an .ics file"),
        ({"ics": ics("DTSTART:20261225T090000Z")}, "ics: it has no all-day events"),
        ({"ics": ics("SUMMARY:Off\nDTSTART;VALUE=DATE:x")}, "ics: DTSTART of the event 'Off' cannot be read"),
        ({"ics": ics("SUMMARY:Off")}, "ics: the event 'Off' has no DTSTART"),
        ({"ics": ics("DTSTART;VALUE=DATE:20200101\nDTEND;VALUE=DATE:20990101")}, "is too long"),
        ({"ics": ics("DTSTART;VALUE=DATE:20200101\nRRULE:FREQ=DAILY"), "years": 20}, "too many days"),
    ],
)
def test_what_is_refused(sources: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid) as refused:
        days_of(sources_in(sources), TODAY)
    assert words in str(refused.value)


@pytest.mark.parametrize(("library", "source"), [("holidays", "country"), ("icalendar", "ics")])
def test_a_library_that_is_not_installed(library: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Invalid, match=rf"needs the library {library}; .*rota\[calendars\]"):
        days_of({source: "GB"}, TODAY)
