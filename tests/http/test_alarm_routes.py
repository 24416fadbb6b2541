"""Alarms and their rules over HTTP."""

from __future__ import annotations

from typing import Any

from http_world import Tenant, problem
from rota.engine.commands import look_for_alarms
from rota.engine.roles.alarms import KEPT


def test_alarms_are_listed_and_their_rules_given(quiet: Tenant) -> None:
    body: dict[str, Any] = {
        "name": "soon",
        "scheduleType": {"type": "interval", "everySeconds": 3600},
        "target": {"type": "task", "taskKind": "echo", "tags": ["money"]},
        "maxRuns": 3,
    }
    assert quiet.post("schedules", body)["alarmLateSeconds"] is None
    rules = quiet.send("PUT", "alarm-rules/money", 200, json={"alarmEndingSeconds": 30 * 86400})
    assert (rules["tag"], rules["alarmEndingSeconds"]) == ("money", 30 * 86400)
    assert quiet.get("alarm-rules")["items"] == [rules]
    quiet.call(lambda queue: queue.store.transact(look_for_alarms(50, KEPT)))
    [alarm] = quiet.get("alarms?schedule=soon")["items"]
    assert (alarm["rule"], alarm["subject"], alarm["overAt"]) == ("ending", "soon", None)
    assert "ending" in quiet.http.get("/health").json()["alarms"]
    quiet.send("DELETE", "alarm-rules/money", 204)
    quiet.call(lambda queue: queue.store.transact(look_for_alarms(50, KEPT)))
    assert quiet.get("alarms")["items"] == []
    assert len(quiet.get("alarms?over=true")["items"]) == 1


def test_what_is_refused(quiet: Tenant) -> None:
    problem(quiet.http.put(quiet.path("alarm-rules/x"), json={}), 422, "invalid")
    problem(quiet.http.put(quiet.path("alarm-rules/x"), json={"alarmFailures": 0}), 422, "invalid")
    problem(quiet.http.get(quiet.path("alarms?schedule=nobody")), 404, "not_found")
