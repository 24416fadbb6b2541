"""The two routes that have a quick way answer on it as they would without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from rota.surfaces.http import create_app

TASKS = "/api/tenants/acme/task-executions"
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", TASKS, {"json": {"kind": "echo", "input": {"a": [1, None]}, "maxRetries": 2}}),
    ("POST", TASKS, {"json": {"kind": "echo", "max_retries": 2, "ttl_seconds": 5}}),
    ("POST", TASKS, {"json": {"kind": "echo"}, "headers": {"Idempotency-Key": "once"}}),
    ("POST", TASKS, {"json": {"kind": "send"}, "headers": {"Idempotency-Key": "once"}}),
    ("POST", TASKS, {"json": {"kind": "echo"}, "headers": {"Idempotency-Key": "x" * 256}}),
    ("POST", TASKS, {"json": {"kind": "echo", "idempotencyKey": "a"}, "headers": {"Idempotency-Key": "b"}}),
    ("POST", TASKS, {"json": {}}),
    ("POST", TASKS, {"json": []}),
    ("POST", TASKS, {"json": {"kind": 5}}),
    ("POST", TASKS, {"json": {"kind": "echo", "priority": "1"}}),
    ("POST", TASKS, {"json": {"kind": "echo", "expiresAt": "soon"}}),
    ("POST", TASKS, {"json": {"kind": "echo", "scheduledAt": "2126-01-01T00:00:00Z"}}),
    ("POST", TASKS, {"json": {"kind": "echo", "unknown": 1}}),
    ("POST", TASKS, {"content": b"{"}),
    ("POST", TASKS, {"content": b'{"kind": "echo", "kind": "echo"}'}),
    ("POST", TASKS, {"content": b'{"kind": "echo", "input": NaN}'}),
    ("POST", TASKS + "?kind=echo", {"json": {"kind": "echo"}}),
    ("GET", "/api/tenants/acme/schedules/nightly?at=now", {}),
    ("POST", TASKS, {}),
    ("GET", "/api/tenants/acme/schedules/nightly", {}),
    ("GET", "/api/tenants/acme/schedules/missing", {}),
    ("GET", "/api/tenants/acme/schedules/" + "x" * 300, {}),
    ("HEAD", "/api/tenants/acme/schedules/nightly", {}),
    ("DELETE", TASKS, {}),
]


async def answers(folder: Path, *, fast: bool) -> list[Any]:
    api = create_app(f"sqlite:///{folder}/rota.db")
    if not fast:
        del api.router.routes[:2]
    transport = httpx.ASGITransport(api, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        timing, target = {"type": "recurring", "cron": "0 9 * * *"}, {"type": "task", "taskKind": "echo"}
        made = {"name": "nightly", "scheduleType": timing, "target": target}
        assert (await client.post("/api/tenants/acme/schedules", json=made)).status_code == 201
        found = [_seen(await client.request(method, path, **given)) for method, path, given in REQUESTS]
    await api.state.rota.close()
    return found


def _seen(answer: httpx.Response) -> Any:
    """All but ids, times and what depends on them; of problems what programs go by."""
    body = answer.json() if answer.content else None
    if answer.status_code >= 400:
        return answer.status_code, body and {name: body.get(name) for name in ("code", "field", "status")}
    return answer.status_code, body and {
        name: value for name, value in body.items() if name != "id" and not name.endswith(("At", "AtLocal"))
    }


async def test_both_ways_answer_alike(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    quick, usual = await answers(tmp_path / "a", fast=True), await answers(tmp_path / "b", fast=False)
    for request, one, other in zip(REQUESTS, quick, usual, strict=True):
        assert one == other, request
    assert {status for status, _ in quick} == {200, 201, 400, 404, 405, 409, 422}
