"""Nodes, queues, bulk replay and what a task waits for, over HTTP."""

from __future__ import annotations

from typing import Any

from http_world import Tenant, eventually, problem


def test_a_queue_is_paused_listed_and_resumed(quiet: Tenant) -> None:
    task = quiet.post("task-executions", {"kind": "send", "queue": "mail"})
    paused = quiet.post("queues/mail/pause", {"note": "moving"}, 200)
    assert (paused["queue"], paused["note"]) == ("mail", "moving")
    [queue] = quiet.get("queues")["items"]
    assert (queue["name"], queue["pending"], queue["running"], queue["workers"]) == ("mail", 1, 0, 0)
    assert queue["paused"] == paused
    assert queue["oldestSeconds"] >= 0
    assert quiet.get(f"task-executions/{task['id']}")["waiting"]["reason"] == "queue_paused"
    assert quiet.post("queues/mail/resume", None, 200) == {"queue": "mail", "wasPaused": True}
    assert quiet.post("queues/mail/resume", None, 200) == {"queue": "mail", "wasPaused": False}
    waiting = quiet.get(f"task-executions/{task['id']}")["waiting"]
    assert waiting["reason"] == "no_worker"
    assert "no worker is known" in waiting["explanation"]


def test_a_queue_is_limited_and_its_tasks_say_so(quiet: Tenant) -> None:
    none = {"queue": "mail", "concurrency": None, "rate": None}
    limit = {"queue": "mail", "concurrency": 1, "rate": "50/s"}
    assert quiet.get("queues/mail/limit") == none
    assert quiet.send("PUT", "queues/mail/limit", 200, json={"concurrency": 1, "rate": "50/s"}) == limit
    tasks = [quiet.post("task-executions", {"kind": "send", "queue": "mail"}) for _ in range(2)]
    waiting = quiet.get(f"task-executions/{tasks[1]['id']}")["waiting"]
    assert waiting == {
        "reason": "limited",
        "explanation": "it is the next of queue mail (at most 1 at once)",
    }
    bad = quiet.http.put(quiet.path("queues/mail/limit"), json={"rate": "often"})
    assert "'often' is not a rate" in problem(bad, 422, "invalid")["detail"]
    assert quiet.get("queues/mail/limit") == limit
    assert quiet.get("limits") == {"items": [limit | {"kind": None, "key": None, "declared": False}]}
    assert quiet.send("PUT", "queues/mail/limit", 200, json={}) == none
    assert quiet.get(f"task-executions/{tasks[1]['id']}")["waiting"]["reason"] == "no_worker"


def test_a_pause_with_a_key_is_done_once(quiet: Tenant) -> None:
    again: Any = {"headers": {"Idempotency-Key": "k"}}
    first = quiet.post("queues/mail/pause", {"note": "a"}, 200, **again)
    quiet.post("queues/mail/resume", None, 200)
    assert quiet.post("queues/mail/pause", {"note": "a"}, 200, **again) == first
    assert quiet.get("queues")["items"] == []


def test_failed_tasks_are_replayed_in_bulk(quiet: Tenant) -> None:
    for _ in range(3):
        task = quiet.post("task-executions", {"kind": "send"})
        quiet.post(f"task-executions/{task['id']}/cancel", None, 200)
    asked = {"status": "cancelled", "kind": "send", "sinceSeconds": 3600}
    path = "task-executions/replay"
    assert quiet.post(path, {**asked, "dryRun": True}, 200) == {"matching": 3, "replayed": 0}
    assert quiet.post(path, {**asked, "kind": "other"}, 200) == {"matching": 0, "replayed": 0}
    assert quiet.post(path, asked, 200) == {"matching": 3, "replayed": 3}
    assert quiet.post(path, asked, 200) == {"matching": 0, "replayed": 0}
    problem(quiet.http.post(quiet.path(path), json={"status": "pending"}), 422, "invalid")


def test_the_nodes_of_all_tenants_are_seen_without_what_they_run(tenant: Tenant) -> None:
    [node] = eventually(lambda: tenant.get("nodes")["items"])
    assert node["alive"]
    assert node["tenant"] in ("*", "default")
    assert "worker" in node["roles"]
    assert "echo" in node["kinds"]
    assert node["running"] is None
    called = tenant.post("calls/nodes", {"dead": True}, 200)["answer"]
    assert [each.get("running", {}) for each in called] == [None]
