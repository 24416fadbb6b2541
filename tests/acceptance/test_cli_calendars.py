"""Calendars on the command line."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, rota


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare_folder(monkeypatch, tmp_path)
    rota("migrate")


def test_a_calendar_governs_a_schedule() -> None:
    made = rota("calendar create weekends --rule FREQ=WEEKLY;BYDAY=SA,SU --window 22:00-06:00")
    assert made.stdout == "created weekends: 1 rule, 22:00-06:00\n"
    rota("schedule create sync -t sync --cron '0 9 * * *' --timezone UTC --exclude weekends")
    shown = document("schedule show sync")
    assert shown["exclude"] == ["weekends"]
    assert "No time in weekends counts." in shown["policies"]
    assert "named by schedule 'sync'" in complaint("calendar delete weekends", code=1)
    rota("calendar update weekends --rule FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR")
    [first] = document("schedule preview sync -n 1")
    assert datetime.fromisoformat(first["at"]).weekday() >= 5
    assert [each["name"] for each in document("calendar list")["calendars"]] == ["weekends"]
    assert "22:00-06:00" in rota("calendar show weekends").stdout
    rota("schedule update sync --clear exclude")
    rota("calendar delete weekends")
    assert "there is no calendar" in complaint("calendar show weekends", code=1)


def test_holidays_of_a_country_and_events_of_a_file(tmp_path: Path) -> None:
    made = rota("calendar create uk-holidays --country GB --subdivision ENG --years 1")
    assert made.stdout.startswith("created uk-holidays: ")
    assert document("calendar show uk-holidays")["description"] == "Public holidays of GB-ENG"
    event = "BEGIN:VEVENT\nUID:1\nDTSTART;VALUE=DATE:20301224\nEND:VEVENT\n"
    (tmp_path / "team.ics").write_text(f"BEGIN:VCALENDAR\n{event}END:VCALENDAR\n", "utf-8")
    made = rota("calendar create team --ics team.ics --day 2030-12-31")
    assert made.stdout == "created team: 2 days until 2030-12-31\n"
    assert "country: 'ZZ' is not known" in complaint("calendar update team --country ZZ")
    assert document("calendar update uk-holidays --country DE")["description"] == "Public holidays of DE"
    rota("calendar update uk-holidays --description 'the office is closed'")
    again = document("calendar update uk-holidays --country GB --subdivision ENG")
    assert again["description"] == "the office is closed"
    assert "--ics: none.ics cannot be read" in complaint("calendar update team --ics none.ics")
