"""Templates in the tenants' API: who may, what is refused, what a repeated Idempotency-Key gives."""

from __future__ import annotations

from typing import Any

import httpx

from http_world import Tenant

REMINDER = {"alias": "reminder", "kind": "send-reminder", "parameters": {"userId": "1"}, "timeoutSeconds": 5}


def send(tenant: Tenant, method: str, path: str, body: Any = None) -> httpx.Response:
    return tenant.http.request(method, tenant.path(path), json=body)


def test_a_template_from_its_creation_to_its_end(quiet: Tenant) -> None:
    sent = send(quiet, "POST", "templates", REMINDER)
    made = sent.json()
    assert (sent.status_code, sent.headers["etag"]) == (201, '"1"')
    assert sent.headers["location"].endswith(f"/templates/{made['id']}")
    assert {name: made[name] for name in REMINDER} == REMINDER
    assert (made["runtime"], made["command"], made["enabled"]) == ("python", "", True)
    assert send(quiet, "GET", "templates").json()["items"] == [made]
    assert send(quiet, "GET", "templates/reminder").json() == made
    task = send(quiet, "POST", "templates/reminder/execute", {"input": {"userId": "2"}})
    assert (task.status_code, task.json()["input"]) == (201, {"userId": "2"})
    changed = send(quiet, "PATCH", "templates/reminder", {"timeoutSeconds": None, "enabled": False}).json()
    assert (changed["timeoutSeconds"], changed["enabled"], changed["version"]) == (None, False, 2)
    refused = send(quiet, "POST", "templates/reminder/execute")
    assert (refused.status_code, refused.json()["code"]) == (409, "template_disabled")
    assert send(quiet, "DELETE", "templates/reminder").status_code == 204
    assert send(quiet, "GET", "templates/reminder").status_code == 404


def test_commands(quiet: Tenant) -> None:
    body = {"runtime": "http", "command": "POST https://example.com/{{input.x}}"}
    made = send(quiet, "POST", "templates", body).json()
    assert made["command"] == {"url": "https://example.com/{{input.x}}", "method": "POST"}
    assert (made["kind"], made["alias"]) == ("rota.http", body["command"])
    off = send(quiet, "POST", "templates", {"runtime": "shell", "command": "ls"})
    assert (off.status_code, off.json()["field"]) == (422, "runtime")
    assert "the workers of this server run none" in off.json()["detail"]
    assert (
        send(quiet, "PATCH", f"templates/{made['id']}", {"runtime": "shell", "command": "ls"}).status_code
        == 422
    )
    wrong = send(quiet, "POST", "templates", {"runtime": "http", "command": {"url": "ftp://x"}})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "command.url")
    wrong = send(quiet, "POST", "templates", {"runtime": "http", "command": 5})
    assert wrong.json()["detail"].startswith("command: 5 is not accepted; give a URL, or an object")
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"not": deep}
    wrong = send(quiet, "POST", "templates", {"kind": "echo", "parametersSchema": deep})
    assert wrong.json()["detail"] == "parametersSchema: it is nested too deeply; the most is 64 levels"


def test_parameters_that_do_not_fit_are_refused(quiet: Tenant) -> None:
    schema = {"required": ["userId"], "additionalProperties": False, "properties": {"userId": {}}}
    send(quiet, "POST", "templates", {"alias": "strict", "kind": "echo", "parametersSchema": schema})
    refused = send(quiet, "POST", "templates/strict/execute", {"input": {"user": 1}})
    assert (refused.status_code, refused.json()["detail"]) == (422, "input.userId: it is missing")
