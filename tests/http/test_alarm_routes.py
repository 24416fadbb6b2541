"""Alarms and their rules over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from http_world import Tenant, problem
from records import node
from rota.engine.commands import look_for_alarms
from rota.engine.roles.alarms import KEPT
from rota.surfaces.http import service
from served import serving
from stores import put


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


def test_health_says_what_nobody_seems_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LOOK_AGAIN", timedelta(0))
    with serving(f"sqlite:///{tmp_path}/rota.db") as served:
        client = served.client()

        def alarms() -> list[str]:
            said = client.get("/health").json()
            assert said["status"] == "ready"
            return list(said["alarms"])

        def seen(id: str, role: str, ago: timedelta = timedelta(0)) -> None:
            at = datetime.now(UTC) - ago
            state = node(id, tenant="*", roles=(role,), kinds=("note",), started_at=at, seen_at=at)
            served.call(lambda queue: put(queue.store, state))

        assert alarms() == []
        seen("w", "worker")
        served.call(lambda queue: queue.submit("note"))
        assert alarms() == []
        served.call(lambda queue: queue.submit("nope"))
        assert alarms() == ["kind_unhandled"]
        served.call(lambda queue: queue.create_schedule("s", cron="0 9 * * *", task_type="note"))
        seen("s", "scheduler", ago=timedelta(minutes=5))
        assert sorted(alarms()) == ["kind_unhandled", "scheduler_silent"]
        seen("t", "scheduler")
        assert alarms() == ["kind_unhandled"]


def test_what_is_refused(quiet: Tenant) -> None:
    problem(quiet.http.put(quiet.path("alarm-rules/x"), json={}), 422, "invalid")
    problem(quiet.http.put(quiet.path("alarm-rules/x"), json={"alarmFailures": 0}), 422, "invalid")
    problem(quiet.http.get(quiet.path("alarms?schedule=nobody")), 404, "not_found")
