"""Who may do what: every route, with every role, with another tenant's key, with none."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from http_world import Shop, Tenant, described, eventually, problem
from rota.domain.model import Role
from rota.surfaces.http import create_app
from served import Served, serving

VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN
NEEDED = {
    ("get", "schedules"): VIEWER,
    ("post", "schedules"): ADMIN,
    ("post", "preview"): VIEWER,
    ("post", "plan"): VIEWER,
    ("post", "apply"): ADMIN,
    ("get", "forecast"): VIEWER,
    ("post", "spread"): ADMIN,
    ("get", "export"): VIEWER,
    ("post", "bulk/schedules/{action}"): ADMIN,
    ("get", "schedules/{id}"): VIEWER,
    ("put", "schedules/{id}"): ADMIN,
    ("patch", "schedules/{id}"): ADMIN,
    ("delete", "schedules/{id}"): ADMIN,
    ("post", "schedules/{id}/restore"): ADMIN,
    ("post", "schedules/{id}/pause"): OPERATOR,
    ("post", "schedules/{id}/resume"): OPERATOR,
    ("post", "schedules/{id}/trigger"): OPERATOR,
    ("post", "schedules/{id}/backfill"): OPERATOR,
    ("delete", "schedules/{id}/backfill"): OPERATOR,
    ("get", "schedules/{id}/runs"): VIEWER,
    ("get", "schedules/{id}/preview"): VIEWER,
    ("get", "schedules/{id}/why"): VIEWER,
    ("get", "schedules/{id}/history"): VIEWER,
    ("get", "task-executions"): VIEWER,
    ("post", "task-executions"): OPERATOR,
    ("get", "task-executions/{id}"): VIEWER,
    ("post", "task-executions/{id}/cancel"): OPERATOR,
    ("post", "task-executions/{id}/replay"): OPERATOR,
    ("get", "task-executions/{id}/attempts"): VIEWER,
    ("get", "task-executions/{id}/logs"): VIEWER,
    ("get", "task-executions/{id}/history"): VIEWER,
    ("get", "task-executions/{id}/artifacts"): VIEWER,
    ("get", "task-executions/{id}/artifacts/{name}"): VIEWER,
    ("get", "workflow-executions"): VIEWER,
    ("post", "workflow-executions"): OPERATOR,
    ("get", "workflow-executions/{id}"): VIEWER,
    ("post", "workflow-executions/{id}/cancel"): OPERATOR,
    ("post", "workflow-executions/{id}/replay"): OPERATOR,
    ("post", "workflow-executions/{id}/signal"): OPERATOR,
    ("get", "workflow-executions/{id}/steps"): VIEWER,
    ("get", "workflow-executions/{id}/attempts"): VIEWER,
    ("get", "workflow-executions/{id}/logs"): VIEWER,
    ("get", "workflow-executions/{id}/history"): VIEWER,
    ("post", "task-executions/replay"): OPERATOR,
    ("get", "nodes"): VIEWER,
    ("get", "queues"): VIEWER,
    ("post", "queues/{name}/pause"): OPERATOR,
    ("post", "queues/{name}/resume"): OPERATOR,
    ("get", "limits"): VIEWER,
    ("get", "queues/{name}/limit"): VIEWER,
    ("put", "queues/{name}/limit"): OPERATOR,
    ("get", "alarms"): VIEWER,
    ("get", "alarm-rules"): VIEWER,
    ("put", "alarm-rules/{tag}"): ADMIN,
    ("delete", "alarm-rules/{tag}"): ADMIN,
    ("get", "templates"): VIEWER,
    ("post", "templates"): ADMIN,
    ("get", "templates/{id}"): VIEWER,
    ("patch", "templates/{id}"): ADMIN,
    ("delete", "templates/{id}"): ADMIN,
    ("post", "templates/{id}/execute"): OPERATOR,
    ("get", "calendars"): VIEWER,
    ("post", "calendars"): ADMIN,
    ("get", "calendars/{name}"): VIEWER,
    ("patch", "calendars/{name}"): ADMIN,
    ("delete", "calendars/{name}"): ADMIN,
    ("get", "keys"): ADMIN,
    ("post", "keys"): ADMIN,
    ("delete", "keys/{id}"): ADMIN,
    ("get", "events"): VIEWER,
}
BODIES: dict[str, Any] = {
    "schedules": {
        "name": "made",
        "scheduleType": {"type": "recurring", "cron": "0 9 * * *"},
        "target": {"type": "task", "taskKind": "echo"},
    },
    "preview": {"scheduleType": {"type": "recurring", "cron": "0 9 * * *"}},
    "bulk/schedules/{action}": {"tag": "none"},
    "plan": {"schedules": {}},
    "apply": {"schedules": {}},
    "spread": {"dryRun": True},
    "schedules/{id}/backfill": {
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-01T00:00:01Z",
        "dryRun": True,
    },
    "task-executions": {"kind": "echo"},
    "workflow-executions": {"kind": "my-workflow"},
    "templates": {"alias": "made", "kind": "echo"},
    "templates/{id}": {"enabled": True},
    "calendars": {"name": "made", "days": ["2027-12-24"]},
    "calendars/{name}": {"days": ["2027-12-31"]},
    "keys": {"name": "made", "role": "viewer"},
    "queues/{name}/limit": {"concurrency": 10},
    "alarm-rules/{tag}": {"alarmFailures": 2},
    "task-executions/replay": {"status": "failed"},
}
BODIES["workflow-executions/{id}/signal"] = {"name": "paid", "payload": 1}
BODIES["schedules/{id}"] = BODIES["schedules"]
ROLES = list(Role)
PREFIX = "/api/tenants/{tenant}/"


def test_the_table_has_every_route() -> None:
    """A route without a line above has not been thought about."""
    paths = described()["paths"]
    found = {
        (method, path.removeprefix(PREFIX))
        for path, methods in paths.items()
        if path.startswith(PREFIX)
        for method in methods
    }
    assert found == set(NEEDED)


def send(client: httpx.Client, tenant: str, method: str, path: str, ids: dict[str, str]) -> httpx.Response:
    filled = path.replace("{id}", ids.get(path.partition("/")[0], "missing")).replace("{action}", "pause")
    filled = filled.replace("{name}", "mail").replace("{tag}", "nightly")
    options: dict[str, Any] = (
        {"json": BODIES[path]} if method in ("post", "put", "patch") and path in BODIES else {}
    )
    if path.endswith("why"):
        options["params"] = {"at": "2026-01-01T09:00:00Z"}
    with client.stream(method.upper(), f"/api/tenants/{tenant}/{filled}", **options) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer._content = b""  # it never ends by itself
        else:
            answer.read()
        return answer


@pytest.fixture
def ids(quiet: Tenant) -> dict[str, str]:
    """Something of each kind in the tenant."""
    schedule = quiet.post("schedules", BODIES["schedules"] | {"name": "there"})
    task = quiet.post("task-executions", BODIES["task-executions"])
    flow = quiet.post("workflow-executions", BODIES["workflow-executions"])
    template = quiet.post("templates", BODIES["templates"] | {"alias": "there"})
    key = quiet.post("keys", BODIES["keys"])
    return {
        "schedules": schedule["id"],
        "task-executions": task["id"],
        "templates": template["id"],
        "workflow-executions": flow["id"],
        "keys": key["id"],
    }


@pytest.mark.parametrize("role", ROLES)
def test_each_role_does_what_it_may_and_nothing_else(quiet: Tenant, ids: dict[str, str], role: Role) -> None:
    client = quiet.server.client(quiet.server.key(quiet.name, role, f"a {role}"))
    for (method, path), needed in NEEDED.items():
        answer = send(client, quiet.name, method, path, ids)
        if ROLES.index(role) < ROLES.index(needed):
            found = problem(answer, 403, "role_needed")
            assert str(needed) in found["detail"], (method, path)
        else:
            assert answer.status_code not in (401, 403, 500), (method, path, answer.text)


def test_another_tenants_things_are_not_there(quiet: Tenant, ids: dict[str, str]) -> None:
    other = Tenant(quiet.server)
    viewer = quiet.server.client(quiet.server.key(other.name, Role.VIEWER, "a viewer"))
    before = quiet.get("schedules")
    for method, path in NEEDED:
        answer = send(other.http, quiet.name, method, path, ids)
        problem(answer, 404, "not_found")
        problem(send(viewer, quiet.name, method, path, ids), 404, "not_found")  # whichever role it would need
        if "{id}" in path:  # its ids are not there either, in the other's own name
            answer = send(other.http, other.name, method, path, ids)
            assert answer.status_code == 404, (method, path, answer.text)
    assert quiet.get("schedules") == before
    assert other.get("schedules")["items"] == []


def test_without_a_good_key_nothing_is_answered(quiet: Tenant, ids: dict[str, str]) -> None:
    good = quiet.key
    bad = [
        None,
        "nonsense",
        good[:-1],
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        "rota_" + "0" * 32 + "_x",
    ]
    for key in bad:
        client = quiet.server.client(key)
        answer = client.get(quiet.path("schedules"))
        problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    client = quiet.server.client()
    for method, path in NEEDED:
        problem(send(client, quiet.name, method, path, ids), 401, "unauthorized")
    assert client.get("/health").status_code == 200
    problem(client.get("/metrics"), 401, "unauthorized")


def test_the_key_is_taken_from_either_header(quiet: Tenant) -> None:
    client = quiet.server.client()
    path = quiet.path("schedules")
    assert client.get(path, headers={"X-API-Key": quiet.key}).status_code == 200
    assert client.get(path, headers={"Authorization": f"bearer {quiet.key}"}).status_code == 200
    problem(client.get(path, headers={"Authorization": f"Basic {quiet.key}"}), 401, "unauthorized")


def test_a_key_is_shown_once_and_can_be_revoked(quiet: Tenant) -> None:
    made = quiet.post("keys", {"name": "ci", "role": "operator"})
    client = quiet.server.client(made["key"])
    assert client.get(quiet.path("schedules")).status_code == 200
    listed = quiet.get("keys")["items"]
    assert made["key"] not in str(listed)
    assert made["id"] in {each["id"] for each in listed}
    revoked = quiet.send("DELETE", f"keys/{made['id']}", 200)
    assert revoked["revokedBy"] == "key:tests"
    problem(client.get(quiet.path("schedules")), 401, "unauthorized")
    own = next(each["id"] for each in listed if each["name"] == "tests")
    problem(quiet.http.delete(quiet.path(f"keys/{own}")), 422, "invalid")


def test_a_key_revoked_elsewhere_stops_working(quiet: Tenant) -> None:
    made, shown = quiet.call(lambda queue: queue.create_key("elsewhere", "viewer"))
    client = quiet.server.client(shown)
    assert client.get(quiet.path("schedules")).status_code == 200
    quiet.call(lambda queue: queue.revoke_key(made.id))
    eventually(lambda: client.get(quiet.path("schedules")).status_code == 401)


def test_a_key_to_every_tenant(quiet: Tenant) -> None:
    client = quiet.server.client(quiet.server.key("*", "viewer", "all"))
    assert client.get(quiet.path("schedules")).status_code == 200
    assert client.get("/metrics").status_code == 200
    problem(client.post(quiet.path("task-executions"), json={"kind": "echo"}), 403, "role_needed")
    problem(quiet.http.get("/metrics"), 403, "role_needed")


def test_every_change_names_the_key(quiet: Tenant) -> None:
    client = quiet.server.client(quiet.server.key(quiet.name, "admin", "deploy"))
    made = client.post(quiet.path("schedules"), json=BODIES["schedules"]).json()
    assert (made["createdBy"], made["updatedBy"]) == ("key:deploy", "key:deploy")
    task = client.post(quiet.path("task-executions"), json={"kind": "echo"}).json()
    assert quiet.get(f"task-executions/{task['id']}/history")["items"][0]["actor"] == "key:deploy"
    quiet.post("schedules/made/pause", {}, 200)
    assert [each["actor"] for each in quiet.get("schedules/made/history")["items"]] == [
        "key:deploy",
        "key:tests",
    ]


@pytest.fixture
def open_door(tmp_path: Path) -> Any:
    with serving(f"sqlite:///{tmp_path}/rota.db") as served:
        yield served


def test_without_keys_only_this_machine_is_answered(open_door: Served) -> None:
    client = open_door.client()
    path = "/api/tenants/acme/schedules"
    assert client.get(path).status_code == 200
    for name, value in (
        ("Host", "rebound.example.com"),
        ("Origin", "https://evil.example.com"),
        ("Origin", "null"),
    ):
        found = problem(client.get(path, headers={name: value}), 403, "local_only")
        assert "rota keys create" in found["detail"]
    assert client.get(path, headers={"Origin": "http://localhost:3000"}).status_code == 200
    made = client.post("/api/tenants/acme/keys", json={"name": "first", "role": "admin"}).json()
    problem(client.get(path), 401, "unauthorized")
    assert open_door.client(made["key"]).get(path).status_code == 200


def test_the_door_stays_shut_when_all_keys_are_revoked(open_door: Served) -> None:
    made, _ = open_door.call(lambda queue: queue.create_key("only", "admin"))
    open_door.call(lambda queue: queue.revoke_key(made.id))
    client = open_door.client()
    eventually(lambda: client.get("/api/tenants/default/schedules").status_code == 401)


async def test_without_keys_a_peer_from_elsewhere_is_refused(tmp_path: Path) -> None:
    api = create_app(f"sqlite:///{tmp_path}/rota.db")
    transport = httpx.ASGITransport(api, client=("203.0.113.9", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        problem(await client.get("/api/tenants/acme/schedules"), 403, "local_only")
        assert (await client.get("/health/live")).status_code == 200
    await api.state.rota.close()


def test_a_key_that_asks_too_often_has_to_wait(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/rota.db", rate=1) as served:
        key = served.key("acme", "viewer")
        other = served.client(served.key("acme", "viewer", "other"))
        client = served.client(key)
        answers = [client.get("/api/tenants/acme/schedules") for _ in range(10)]
        refused = [each for each in answers if each.status_code != 200]
        assert refused
        problem(refused[0], 429, "rate_limited")
        assert int(refused[0].headers["retry-after"]) >= 1
        assert other.get("/api/tenants/acme/schedules").status_code == 200


def test_guessing_keys_is_slowed_down(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/rota.db") as served:
        served.key()
        client = served.client("rota_" + "0" * 32 + "_guess")
        codes = {client.get("/api/tenants/acme/schedules").status_code for _ in range(100)}
        assert codes == {401, 429}


def test_a_suspended_tenant_can_look_and_not_act(quiet: Tenant) -> None:
    quiet.post("schedules", BODIES["schedules"])
    quiet.server.call(lambda queue: queue.create_tenant(quiet.name))
    quiet.server.call(lambda queue: queue.suspend_tenant(quiet.name))
    assert len(quiet.get("schedules")["items"]) == 1
    problem(quiet.http.post(quiet.path("task-executions"), json={"kind": "echo"}), 403, "tenant_suspended")
    problem(quiet.http.post(quiet.path("schedules/made/trigger")), 403, "tenant_suspended")
    quiet.server.call(lambda queue: queue.resume_tenant(quiet.name))
    quiet.post("task-executions", {"kind": "echo"})


def test_limits_of_a_tenant(quiet: Tenant) -> None:
    quiet.server.call(
        lambda queue: queue.create_tenant(
            quiet.name, schedules=1, pending_tasks=2, minimum_interval=60, input_bytes=100
        )
    )
    quiet.post("schedules", BODIES["schedules"])
    answer = quiet.http.post(quiet.path("schedules"), json=BODIES["schedules"] | {"name": "second"})
    assert "may have 1 schedule " in problem(answer, 409, "limit_reached")["detail"]
    for _ in range(2):
        quiet.post("task-executions", {"kind": "echo"})
    answer = quiet.http.post(quiet.path("task-executions"), json={"kind": "echo"})
    assert "may have 2 pending tasks" in problem(answer, 409, "limit_reached")["detail"]
    quick = {"scheduleType": {"type": "interval", "everySeconds": 1}}
    problem(quiet.http.patch(quiet.path("schedules/made"), json=quick), 422, "invalid")
    large = {"target": {"type": "task", "taskKind": "echo", "input": "x" * 101}}
    problem(quiet.http.patch(quiet.path("schedules/made"), json=large), 422, "invalid")


def test_a_socket_is_all_it_takes(shop: Shop) -> None:
    """Not a test client: bytes over TCP."""
    served = shop.server("sqlite", engine=False)
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        received = b""
        while chunk := connection.recv(4096):
            received += chunk
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b'"status":"live"' in received
