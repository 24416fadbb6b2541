"""Plans in the tenants' API: what a declaration would change, and applying it if that still holds."""

from __future__ import annotations

from typing import Any

import httpx

from http_world import Tenant

DECLARED: dict[str, Any] = {
    "schedules": {"daily": {"task_type": "report", "cron": "0 9 * * *", "jitter": "5m"}},
    "templates": {"page": {"http": "POST https://example.com/"}},
}


def send(tenant: Tenant, path: str, body: Any = None, **headers: str) -> httpx.Response:
    method = "GET" if body is None else "POST"
    return tenant.http.request(method, tenant.path(path), json=body, headers=headers)


def test_a_plan_is_applied_as_it_was_made(quiet: Tenant) -> None:
    plan = send(quiet, "plan", DECLARED).json()
    assert (plan["created"], plan["changed"], plan["removed"], plan["unchanged"]) == (2, 0, 0, 0)
    [page, daily] = plan["items"]
    assert (page["what"], page["name"], page["action"]) == ("template", "page", "created")
    assert (daily["times"]["appearing"], daily["immediate"], daily["skips"]) == (14, False, [])
    assert send(quiet, "schedules").json()["items"] == []
    known = {**DECLARED, "at": plan["at"], "token": plan["token"]}
    applied = send(quiet, "apply", known)
    assert (applied.status_code, applied.json()["items"]) == (200, plan["items"])
    assert send(quiet, "apply", known).json()["changed"] == 0, "an answer that was lost"
    assert send(quiet, "plan", DECLARED).json()["unchanged"] == 2
    assert send(quiet, "export").json() == DECLARED | {
        "calendars": {},
        "schedules": {"daily": {"task_type": "report", "cron": "0 9 * * *", "jitter": "5m"}},
        "templates": {"page": {"http": {"url": "https://example.com/", "method": "POST"}}},
    }


def test_a_plan_that_no_longer_holds_says_what_changed(quiet: Tenant) -> None:
    send(quiet, "apply", DECLARED)
    wanted = {**DECLARED, "schedules": {"daily": {"task_type": "report", "cron": "0 8 * * *"}}}
    plan = send(quiet, "plan", wanted).json()
    assert [each["name"] for each in plan["items"][0]["differences"]] == ["cron", "jitter"]
    quiet.http.patch(quiet.path("schedules/daily"), json={"description": "mine"})
    refused = send(quiet, "apply", {**wanted, "at": plan["at"], "token": plan["token"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "plan_outdated")
    assert "schedule 'daily' was updated by" in refused.json()["detail"]
    again = send(quiet, "plan", wanted).json()
    assert [each["name"] for each in again["items"][0]["kept"]] == ["description"]
    assert send(quiet, "plan", {**wanted, "force": True}).json()["items"][0]["kept"] == []


def test_what_is_refused_changes_nothing(quiet: Tenant) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"schedules": {"a": {"task_type": "t", "cron": "no"}}}, "schedule 'a': "),
        ({"schedules": {"a": {"task_type": "t"}}}, "schedule 'a': "),
        ({"templates": {"a": {"shell": "ls"}}}, "template 'a': runtime: shell commands are off"),
        ({"templates": {"a": {"runtime": "shell", "command": "ls"}}}, "template 'a': runtime: shell"),
        ({"token": "abc"}, "token: one of at and token is missing"),
        ({"colours": {}}, ""),
    ]
    for body, sentence in wrong:
        answered = send(quiet, "apply", {**DECLARED, **body})
        assert answered.status_code == 422, body
        assert answered.json()["detail"].startswith(sentence), answered.json()
    old = send(quiet, "apply", {**DECLARED, "at": "2020-01-01T00:00:00Z", "token": "x"})
    assert (old.status_code, old.json()["code"]) == (409, "plan_outdated")
    assert send(quiet, "export").json() == {"schedules": {}, "templates": {}, "calendars": {}}


def test_a_repeated_request_gets_the_same_answer(quiet: Tenant) -> None:
    first = send(quiet, "apply", DECLARED, **{"Idempotency-Key": "one"})
    again = send(quiet, "apply", DECLARED, **{"Idempotency-Key": "one"})
    assert again.headers["idempotency-replayed"] == "true"
    assert (again.json(), again.json()["created"]) == (first.json(), 2)


def test_a_calendar_and_the_schedules_that_name_it(quiet: Tenant) -> None:
    declared = {
        "calendars": {"free": {"days": ["2030-01-01"], "windows": ["22:00-06:00"]}},
        "schedules": {"s": {"task_type": "report", "cron": "0 9 * * *", "exclude": ["free"]}},
    }
    assert send(quiet, "apply", declared).json()["created"] == 2
    assert send(quiet, "export").json() == declared | {"templates": {}}
    changed = {**declared, "calendars": {"free": {"rules": ["FREQ=WEEKLY;BYDAY=SA,SU"]}}}
    [free, schedule] = send(quiet, "plan", changed).json()["items"]
    assert (free["what"], free["action"], schedule["name"]) == ("calendar", "changed", "s")
    assert schedule["times"]["vanishing"] == 4
    refused = send(quiet, "plan", {"calendars": {"free": {"days": ["soon"]}}})
    assert (refused.status_code, refused.json()["detail"][:15]) == (422, "calendar 'free'")
