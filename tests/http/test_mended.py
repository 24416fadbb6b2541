"""What once went wrong, and must not again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from http_world import Tenant, example_app, problem
from rota.surfaces.http import create_app
from served import serving

TARGET = {"type": "task", "taskKind": "echo"}
CRON = {"type": "recurring", "cron": "0 9 * * *", "timezone": "America/New_York"}


def body(name: str, timing: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "scheduleType": timing or CRON, "target": TARGET, **more}


@pytest.mark.parametrize("tenant", ["日本", "a b", "a/b", "a?b", "a#b", "a\\b", "a%b", "é", "\udcff"])
async def test_any_tenant_has_a_location(tenant: str, tmp_path: Path) -> None:
    """The header is ASCII; an answer that cannot be sent after the commit invites a second one."""
    api = create_app(f"sqlite:///{tmp_path}/rota.db")
    transport = httpx.ASGITransport(api, client=("127.0.0.1", 1), raise_app_exceptions=False)
    path = f"/api/tenants/{quote(tenant.encode(errors='surrogateescape'), safe='')}"
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for where, what in (("task-executions", {"kind": "echo"}), ("schedules", body("one"))):
            made = await client.post(f"{path}/{where}", json=what)
            assert made.status_code == 201, made.text
            assert (await client.get(made.headers["location"])).json()["id"] == made.json()["id"]
    await api.state.rota.close()


@pytest.mark.parametrize(
    "timing",
    [
        {"type": "rrule", "rule": "FREQ=DAILY;INTERVAL=3"},
        {"type": "rrule", "rule": "FREQ=WEEKLY;BYDAY=MO", "timezone": "Europe/London"},
        {"type": "interval", "everySeconds": 5400},
        {"type": "once", "runAt": "2126-01-01T00:00:00Z"},
        {"type": "after", "schedules": ["other"], "on": "end", "delaySeconds": 60},
        {**CRON, "endAt": "2126-01-01T00:00:00Z"},
        {**CRON, "dayMatch": "and", "dstGap": "skip", "dstFold": "both"},
        {"type": "several", "timings": [CRON, {"type": "interval", "everySeconds": 5400}]},
    ],
)
def test_putting_back_what_was_read_changes_nothing(quiet: Tenant, timing: Any) -> None:
    quiet.post("schedules", body("other"))
    quiet.post("schedules", body("same", timing))
    old = quiet.call(lambda queue: queue.get_schedule("same"))
    read = quiet.get("schedules/same")
    assert quiet.send("PUT", "schedules/same", 200, json=read) == read
    assert quiet.call(lambda queue: queue.get_schedule("same")) == old


def test_a_completed_schedule_can_be_put_back(quiet: Tenant) -> None:
    quiet.post("schedules", body("done"))
    quiet.call(lambda queue: queue.update_schedule("done", status="completed"))
    read = quiet.get("schedules/done")
    assert quiet.send("PUT", "schedules/done", 200, json=read) == read


def test_an_id_is_an_id_whatever_others_are_called(quiet: Tenant) -> None:
    victim = quiet.post("schedules", body("victim"))
    other = quiet.post("schedules", body(victim["id"]))
    assert quiet.get(f"schedules/{victim['id']}")["name"] == "victim"
    quiet.send("DELETE", f"schedules/{victim['id']}", 204)
    assert [each["id"] for each in quiet.get("schedules")["items"]] == [other["id"]]


def test_two_ends_must_agree(quiet: Tenant) -> None:
    quiet.post("schedules", body("bounded", endAt="2127-01-01T00:00:00Z"))
    read = quiet.get("schedules/bounded")
    for end in ("2128-01-01T00:00:00Z", None):
        answer = quiet.http.put(quiet.path("schedules/bounded"), json=read | {"endAt": end})
        assert problem(answer, 422, "invalid")["field"] == "endAt"
    del read["scheduleType"]["endAt"]
    moved = quiet.send("PUT", "schedules/bounded", 200, json=read | {"endAt": "2128-01-01T00:00:00Z"})
    assert moved["endAt"] == moved["scheduleType"]["endAt"] == "2128-01-01T00:00:00Z"


def test_of_enabled_and_status_the_one_that_was_changed_counts(quiet: Tenant) -> None:
    read = quiet.post("schedules", body("switch"))
    off = quiet.send("PUT", "schedules/switch", 200, json=read | {"enabled": False})
    assert off["status"] == "paused"
    on = quiet.send("PUT", "schedules/switch", 200, json=off | {"status": "active"})
    assert on["enabled"]
    torn = quiet.http.put(
        quiet.path("schedules/switch"), json=on | {"enabled": False, "status": "active"} | {"version": None}
    )
    assert torn.json()["status"] == "paused"


def test_put_resets_the_policy_for_missed_runs(quiet: Tenant) -> None:
    quiet.post("schedules", body("policy", missedRunPolicy="catch_up"))
    assert quiet.send("PUT", "schedules/policy", 200, json=body("policy"))["missedRunPolicy"] == "skip"
    once = body("policy", {"type": "once", "runAt": "2126-01-01T00:00:00Z"})
    assert quiet.send("PUT", "schedules/policy", 200, json=once)["missedRunPolicy"] == "execute_once"


def test_a_patch_of_the_cron_keeps_the_zone(quiet: Tenant) -> None:
    quiet.post("schedules", body("zone"))
    changed = quiet.send(
        "PATCH", "schedules/zone", 200, json={"scheduleType": {"type": "recurring", "cron": "0 8 * * *"}}
    )
    assert changed["scheduleType"]["timezone"] == "America/New_York"


def test_a_name_with_a_slash_is_reached_by_it(quiet: Tenant) -> None:
    made = quiet.post("schedules", body("a/b c"))
    assert quiet.get("schedules/a%2Fb%20c")["id"] == made["id"]
    assert quiet.post("schedules/a%2fb%20c/pause", {}, 200)["status"] == "paused"
    assert quiet.get("schedules/a%2Fb%20c/history")["items"]
    quiet.send("DELETE", "schedules/a%2Fb%20c", 204)
    quiet.get("schedules%2Fx", 404)


def test_every_name_in_an_address_may_have_a_slash(quiet: Tenant) -> None:
    template = quiet.post("templates", {"alias": "a/b", "kind": "echo"})
    assert quiet.get("templates/A%2FB")["id"] == template["id"]
    quiet.post("templates/a%2Fb/execute", {}, 201)
    quiet.post("calendars", {"name": "a/b", "days": ["2126-12-25"]})
    assert quiet.get("calendars/a%2Fb")["name"] == "a/b"
    assert quiet.send("PUT", "alarm-rules/a%2Fb", 200, json={"alarmFailures": 2})["tag"] == "a/b"
    assert quiet.send("PUT", "queues/a%2Fb/limit", 200, json={"concurrency": 2})["queue"] == "a/b"
    assert quiet.post("queues/a%2Fb/pause", {}, 200)["queue"] == "a/b"
    assert "'a/c'" in quiet.get("task-executions/a%2Fc", 404)["detail"]
    refused = quiet.get("none%2Fx", 404)
    assert refused["instance"].endswith("/none%2Fx")
    assert refused["detail"].endswith("/none%2Fx")


@pytest.mark.parametrize(("kind", "field"), [("several", "timings"), ("after", "schedules")])
def test_an_empty_list_is_told_how_many_it_needs(quiet: Tenant, kind: str, field: str) -> None:
    refused = quiet.post("schedules", body("few", {"type": kind, field: []}), 422)
    assert refused["detail"] == f"scheduleType.{field}: there are too few; the least is 1"


def test_a_cursor_can_be_pasted_into_an_address(quiet: Tenant) -> None:
    for number in range(2):
        quiet.post("schedules", body(f"s{number}"))
    cursor = quiet.get("schedules?limit=1")["nextCursor"]
    assert [each["name"] for each in quiet.get(f"schedules?limit=1&cursor={cursor}")["items"]] == ["s0"]


def test_odd_headers_are_refused_and_no_more(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/rota.db") as served:
        client = served.client()
        path = "/api/tenants/acme/schedules"
        for name, value in (("Host", "[::1"), ("Origin", "http://["), ("Host", "")):
            problem(client.get(path, headers={name: value}), 403, "local_only")
        two = [("Origin", "http://localhost"), ("Origin", "https://evil.example.com")]
        problem(client.get(path, headers=two), 403, "local_only")
        client.post(path, json=body("x"))
        answer = client.put(f"{path}/x", json=body("x"), headers={b"If-Match": b'"\xb2"'})
        problem(answer, 422, "invalid")


def test_good_keys_are_not_held_up_by_wrong_ones(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/rota.db") as served:
        good = served.key("acme", "viewer")
        wrong = served.client("rota_" + "0" * 32 + "_guess")
        codes = {wrong.get("/api/tenants/acme/schedules").status_code for _ in range(100)}
        assert codes == {401, 429}
        assert served.client(good).get("/api/tenants/acme/schedules").status_code == 200


def test_a_repeated_request_for_a_key_makes_one(quiet: Tenant) -> None:
    headers = {"Idempotency-Key": "a key"}
    first = quiet.post("keys", {"name": "ci", "role": "viewer"}, headers=headers)
    again = quiet.post("keys", {"name": "ci", "role": "viewer"}, headers=headers)
    assert first["key"]
    assert again == first | {"key": None}
    assert len([each for each in quiet.get("keys")["items"] if each["name"] == "ci"]) == 1


def test_every_post_that_changes_one_thing_is_done_once(quiet: Tenant) -> None:
    made = quiet.post("schedules", body("once"))
    task = quiet.post("task-executions", {"kind": "echo"})
    for number, path in enumerate(
        [
            "schedules/once/pause",
            "schedules/once/resume",
            f"task-executions/{task['id']}/cancel",
            f"task-executions/{task['id']}/replay",
        ]
    ):
        headers = {"Idempotency-Key": f"post {number}"}
        first = quiet.http.post(quiet.path(path), json={}, headers=headers)
        again = quiet.http.post(quiet.path(path), json={}, headers=headers)
        assert (first.status_code, again.status_code) == (200, 200), again.text
        assert first.json() == again.json(), path
        assert again.headers["idempotency-replayed"] == "true"
    assert quiet.get("schedules/once")["version"] == made["version"] + 2
    assert quiet.get(f"task-executions/{task['id']}")["version"] == task["version"] + 2


def test_all_keys_can_be_listed(quiet: Tenant) -> None:
    for number in range(3):
        quiet.post("keys", {"name": f"k{number}", "role": "viewer"})
    seen, page = [], quiet.get("keys?limit=2")
    while True:
        seen += [each["name"] for each in page["items"]]
        if page["nextCursor"] is None:
            break
        page = quiet.get(f"keys?limit=2&cursor={page['nextCursor']}")
    assert seen == ["k2", "k1", "k0", "tests"]


def test_strict_servers_know_what_can_run(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/rota.db", example_app(), strict=True) as served:
        client = served.client()
        root = "/api/tenants/acme"
        assert client.post(f"{root}/task-executions", json={"kind": "echo"}).status_code == 201
        for path, kind in (
            ("task-executions", "nope"),
            ("task-executions", "my-workflow"),
            ("workflow-executions", "echo"),
        ):
            answer = client.post(f"{root}/{path}", json={"kind": kind})
            assert "registered are: " in problem(answer, 422, "invalid")["detail"]
        bad = body("s") | {"target": {"type": "workflow", "workflowKind": "echo"}}
        answer = client.post(f"{root}/schedules", json=bad)
        assert problem(answer, 422, "invalid")["field"] == "target.workflowKind"
        assert client.post(f"{root}/schedules", json=body("s")).status_code == 201


@pytest.mark.parametrize(
    ("path", "what", "field", "said"),
    [
        ("task-executions", {"kind": "my-workflow"}, "kind", "no task is registered as 'my-workflow'"),
        ("workflow-executions", {"kind": "echo"}, "kind", "no workflow is registered as 'echo'"),
        (
            "schedules",
            body("s") | {"target": {"type": "task", "taskKind": "my-workflow"}},
            "target.taskKind",
            "no task is registered as 'my-workflow'",
        ),
        (
            "schedules",
            body("s") | {"target": {"type": "workflow", "workflowKind": "echo"}},
            "target.workflowKind",
            "no workflow is registered as 'echo'",
        ),
        ("task-executions", {"kind": "rota.shell"}, "kind", "'rota.shell' runs the commands of templates"),
        ("workflow-executions", {"kind": "rota.http"}, "kind", "'rota.http' runs the commands of templates"),
        (
            "schedules",
            body("s") | {"target": {"type": "task", "taskKind": "rota.http"}},
            "target.taskKind",
            "'rota.http' runs the commands of templates",
        ),
        (
            "schedules",
            body("s") | {"target": {"type": "workflow", "workflowKind": "rota.shell"}},
            "target.workflowKind",
            "'rota.shell' runs the commands of templates",
        ),
    ],
)
def test_a_kind_that_is_known_as_the_other_type_is_refused(
    quiet: Tenant, path: str, what: Any, field: str, said: str
) -> None:
    answer = quiet.http.post(quiet.path(path), json=what)
    told = problem(answer, 422, "invalid")
    assert told["field"] == field
    assert said in told["detail"]
    assert quiet.call(lambda queue: queue.list_schedules()) == []
    assert quiet.call(lambda queue: queue.list()) == []


@pytest.mark.parametrize("target", ["task", "workflow"])
def test_an_edit_to_a_kind_of_the_other_type_is_refused(quiet: Tenant, target: str) -> None:
    quiet.post("schedules", body("s"))
    wrong = {"type": target, f"{target}Kind": {"task": "my-workflow", "workflow": "echo"}[target]}
    for method, what in (("PUT", body("s") | {"target": wrong}), ("PATCH", {"target": wrong})):
        answer = quiet.http.request(method, quiet.path("schedules/s"), json=what)
        assert problem(answer, 422, "invalid")["field"] == f"target.{target}Kind"


def test_an_expired_task_reads_as_a_skipped_run_at_once(quiet: Tenant) -> None:
    """No engine runs here that would sweep it."""
    quiet.call(lambda queue: queue.create_schedule("s", task_type="echo", interval=3600, ttl=0.001))
    execution = quiet.post("schedules/s/trigger")
    time.sleep(0.5)  # the time of the server, as well as it is known
    (run,) = quiet.get("schedules/s/runs")["items"]
    assert (run["status"], run["reason"], run["error"]) == ("skipped", "expired", None)
    assert quiet.get("schedules/s/runs", params={"status": "running"})["items"] == []
    assert quiet.get(f"task-executions/{execution['id']}")["status"] == "expired"
