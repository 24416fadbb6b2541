"""Calendars in the tenants' API."""

from __future__ import annotations

from typing import Any

import httpx

from http_world import Tenant


def send(tenant: Tenant, method: str, path: str, body: Any = None) -> httpx.Response:
    return tenant.http.request(method, tenant.path(path), json=body)


def test_a_calendar_from_its_creation_to_its_end(quiet: Tenant) -> None:
    sent = send(
        quiet, "POST", "calendars", {"name": "free", "days": ["2027-12-24"], "windows": ["22:00-06:00"]}
    )
    made = sent.json()
    assert (sent.status_code, made["days"], made["version"]) == (201, ["2027-12-24"], 1)
    assert send(quiet, "POST", "calendars", {"name": "free", "days": ["2027-12-31"]}).status_code == 409
    assert send(quiet, "GET", "calendars").json()["items"] == [made]
    changed = send(quiet, "PATCH", "calendars/free", {"windows": []}).json()
    assert (changed["windows"], changed["days"], changed["version"]) == ([], ["2027-12-24"], 2)
    assert send(quiet, "PATCH", "calendars/free", {"days": [], "version": 1}).status_code in (409, 412)
    assert send(quiet, "DELETE", "calendars/free").status_code == 204
    assert send(quiet, "GET", "calendars/free").status_code == 404


def test_days_of_a_country_and_of_an_ics_file(quiet: Tenant) -> None:
    made = send(quiet, "POST", "calendars", {"name": "uk", "country": "GB", "years": 0}).json()
    assert any(day.endswith("-12-25") for day in made["days"])
    event = "BEGIN:VEVENT\r\nUID:1\r\nDTSTART;VALUE=DATE:20301224\r\nEND:VEVENT\r\n"
    text = f"BEGIN:VCALENDAR\r\n{event}END:VCALENDAR\r\n"
    assert send(quiet, "PATCH", "calendars/uk", {"ics": text}).json()["days"] == ["2030-12-24"]
    refused = send(quiet, "POST", "calendars", {"name": "team", "ics": "BEGIN:VCALENDAR"})
    assert refused.status_code == 422, refused.text
    assert "ics" in refused.json()["detail"]
