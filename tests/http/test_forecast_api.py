"""The forecast in the tenants' API, and spreading what comes all at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from http_world import Tenant


def test_a_peak_is_seen_and_spread(quiet: Tenant) -> None:
    hour = (datetime.now(UTC) + timedelta(hours=6)).hour
    timing = {"type": "recurring", "cron": f"0 {hour} * * *"}
    body = {"scheduleType": timing, "target": {"type": "task", "taskKind": "report"}}
    for number in range(12):
        made = quiet.http.post(quiet.path("schedules"), json={**body, "name": f"s{number}"})
        assert made.status_code == 201, made.text
    found = quiet.http.get(quiet.path("forecast")).json()
    assert (found["runs"], found["schedules"], found["unknown"], found["following"]) == (12, 12, 12, 0)
    assert sum(span["runs"] for span in found["spans"]) == 12
    [busy] = found["busiest"]
    assert (busy["runs"], busy["schedules"], len(busy["ids"])) == (12, 12, 12)
    assert busy["spread"]["sentence"].startswith(
        f"12 schedules fire at {hour:02}:00 UTC; spreading 11 of them over "
    )
    wanted = {"at": busy["at"], "overSeconds": busy["spread"]["overSeconds"]}
    dry = quiet.http.post(quiet.path("spread"), json={**wanted, "dryRun": True}).json()
    assert (dry["moving"], dry["after"], len(dry["moves"])) == (11, busy["spread"]["after"], 11)
    other = quiet.http.post(quiet.path("spread"), json={**wanted, "token": "other"})
    assert (other.status_code, other.json()["code"]) == (409, "plan_outdated")
    done = quiet.http.post(quiet.path("spread"), json={**wanted, "token": dry["token"]})
    assert (done.status_code, done.json()) == (200, dry)
    again = quiet.http.post(quiet.path("spread"), json=wanted)
    assert (again.status_code, again.json()["code"]) == (409, "nothing_to_spread")


def test_what_is_refused(quiet: Tenant) -> None:
    for query, words in (("by=week", "by"), ("start=2026-01-01T00:00:00Z&end=2026-03-01T00:00:00Z", "end")):
        refused = quiet.http.get(quiet.path(f"forecast?{query}"))
        assert (refused.status_code, refused.json()["field"]) == (422, words)
    refused = quiet.http.post(quiet.path("spread"), json={"overSeconds": 30})
    assert (refused.status_code, refused.json()["field"]) == (422, "overSeconds")
