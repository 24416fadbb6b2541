"""What is refused, route by route: the field at fault, and one sentence in the words of the API that was asked."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from http_world import described, problem
from rota import App, MissedRunPolicy, OverlapPolicy, Queue
from rota.domain.errors import Corrupt, Unavailable
from rota.engine.clock import Clock, SystemClock
from rota.stores.sqlite.store import SqliteStore
from rota.surfaces.http import create_app

CRON = {"type": "recurring", "cron": "0 9 * * *"}
TARGET = {"type": "task", "taskKind": "echo"}
BODY: dict[str, Any] = {"name": "new", "scheduleType": CRON, "target": TARGET}
ROOT = "/api/tenants/acme"
SCHEDULES, TASKS, WORKFLOWS = f"{ROOT}/schedules", f"{ROOT}/task-executions", f"{ROOT}/workflow-executions"
V1 = "/api/v1/tasks/{task}/$schedule"


def timing(**fields: Any) -> dict[str, Any]:
    return {**BODY, "scheduleType": fields}


def preview(**fields: Any) -> dict[str, Any]:
    return {"scheduleType": fields}


def target(**fields: Any) -> dict[str, Any]:
    return {**BODY, "target": {**TARGET, **fields}}


Row = tuple[str, str, Any, str, str]
NAME = "accepted are 1 to 255 letters, digits and _ . : / @ -, beginning with a letter, a digit or _"
PARTS = "accepted are once, recurring, cron, interval and rrule"
TYPES = "accepted are once, recurring, cron, interval, rrule, several and after"
WRONG: list[Row] = [
    # names of fields that are names of variants elsewhere
    ("POST", SCHEDULES, {**BODY, "cron": "x"}, "cron", "there is no such field"),
    ("POST", SCHEDULES, {**BODY, "interval": 5}, "interval", "there is no such field"),
    ("POST", SCHEDULES, {**BODY, "task": 5}, "task", "there is no such field"),
    (
        "POST",
        SCHEDULES,
        timing(type="recurring", cron=5),
        "scheduleType.cron",
        "5 is not accepted; give a text",
    ),
    (
        "POST",
        SCHEDULES,
        timing(type="cron", cron=None),
        "scheduleType.cron",
        "null is not accepted; give a text",
    ),
    ("POST", SCHEDULES, timing(type="recurring"), "scheduleType.cron", "it is missing"),
    (
        "POST",
        SCHEDULES,
        timing(type="interval", interval=5),
        "scheduleType.interval",
        "there is no such field",
    ),
    (
        "POST",
        SCHEDULES,
        timing(type="interval", everySeconds=5, cron="x"),
        "scheduleType.cron",
        "no such field",
    ),
    ("POST", SCHEDULES, timing(type="rrule", rrule="x"), "scheduleType.rrule", "there is no such field"),
    ("POST", SCHEDULES, target(task=1), "target.task", "there is no such field"),
    ("POST", SCHEDULES, target(template=1), "target.template", "there is no such field"),
    ("POST", f"{ROOT}/preview", {"cron": "0 9 * * *"}, "cron", "there is no such field"),
    (
        "PATCH",
        f"{SCHEDULES}/there",
        {"scheduleType": {"type": "cron", "cron": 7}},
        "scheduleType.cron",
        "a text",
    ),
    ("POST", f"{SCHEDULES}/there/trigger", {"task": 5}, "task", "there is no such field"),
    ("GET", f"{ROOT}/events?task={'x' * 300}", None, "task", "300 characters are too many; the most is 255"),
    (
        "POST",
        "/api/v1/tasks",
        {"command": "x", "task_type": "python", "cron": 1},
        "cron",
        "there is no such field",
    ),
    ("POST", V1, {"schedule_type": "cron", "cron_expression": 5}, "cron_expression", "5 is not accepted"),
    (
        "POST",
        V1,
        {"schedule_type": "cron", "cron_expression": "@daily", "cron": 5},
        "cron",
        "there is no such field",
    ),
    (
        "POST",
        V1,
        {"schedule_type": "interval", "interval_seconds": 9, "interval": 5},
        "interval",
        "it is given twice",
    ),
    ("POST", V1, [], "body", "[] is not accepted; give an object"),
    ("POST", V1, {"schedule_type": True}, "schedule_type", "true is not known"),
    # what is said in JSON's words, whoever says it
    (
        "POST",
        SCHEDULES,
        {**BODY, "pauseOnFailure": "often"},
        "pauseOnFailure",
        'pauseOnFailure: "often" is not accepted; give true, false or a whole number from 0 to 100',
    ),
    ("POST", SCHEDULES, {**BODY, "pauseOnFailure": 101}, "pauseOnFailure", "101 is not accepted"),
    ("POST", SCHEDULES, {**BODY, "jitterSeconds": [None]}, "jitterSeconds", "[null] is not a duration"),
    ("POST", f"{ROOT}/templates", {"kind": "echo", "enabled": None}, "enabled", "give true or false"),
    ("POST", f"{ROOT}/templates", {"kind": "echo", "queue": None}, "queue", "null is not a text"),
    # which of several shapes it is
    ("POST", SCHEDULES, timing(type="hourly"), "scheduleType.type", f'"hourly" is not known; {TYPES}'),
    ("POST", SCHEDULES, timing(cron="0 9 * * *"), "scheduleType.type", f"it is missing; {TYPES}"),
    (
        "POST",
        SCHEDULES,
        timing(type="several", timings=[{"type": "hourly"}]),
        "scheduleType.timings.0.type",
        f'"hourly" is not known; {PARTS}',
    ),
    ("POST", SCHEDULES, timing(type="several", timings=[{}]), "scheduleType.timings.0.type", PARTS),
    (
        "POST",
        SCHEDULES,
        timing(type="several", timings=[5]),
        "scheduleType.timings.0",
        "5 is not accepted; give an object",
    ),
    *(
        ("POST", path, shape(type="several", timings=[CRON, part]), f"scheduleType.timings.1.{at}", said)
        for path, shape in [(SCHEDULES, timing), (f"{ROOT}/preview", preview)]
        for part, at, said in [
            ({"type": "recurring", "cron": "* * *"}, "cron", "the expression has 3 fields"),
            (
                {"type": "recurring", "cron": "@daily", "timezone": "Mars"},
                "timezone",
                "'Mars' is not a known",
            ),
            ({"type": "rrule", "rule": "FREQ=ZZ"}, "rule", "FREQ 'ZZ' is not known"),
            ({"type": "once", "runAt": "2020-01-01T00:00:00Z"}, "runAt", "has passed"),
            (
                {"type": "rrule", "rule": "FREQ=DAILY", "endAt": "2099-01-01T00:00:00Z"},
                "endAt",
                "beside them",
            ),
        ]
    ),
    # inside an input the names are the caller's
    (
        "POST",
        f"{ROOT}/templates/typed/execute",
        {"input": {"customer_id": "x"}},
        "input.customer_id",
        "expected integer",
    ),
    (
        "POST",
        SCHEDULES,
        {**BODY, "target": {"type": "template", "templateId": "typed", "input": {"customer_id": "x"}}},
        "target.input.customer_id",
        "expected integer",
    ),
    (
        "POST",
        "/api/v1/tasks/{typed}/$execute",
        {"parameters": {"customer_id": "x"}},
        "parameters.customer_id",
        "expected integer",
    ),
    ("PUT", f"{ROOT}/queues/mail/limit", {"rate": "x"}, "rate", "'x' is not a rate"),
    ("PUT", f"{ROOT}/queues/mail/limit", {"concurrency": 0}, "concurrency", "0 is not accepted"),
    (
        "POST",
        SCHEDULES,
        timing(type="several", timings=[{"type": "cron", "cron": 5}]),
        "scheduleType.timings.0.cron",
        "5 is not accepted; give a text",
    ),
    (
        "POST",
        SCHEDULES,
        timing(type="several", timings=[{"type": "interval", "everySeconds": 60, "cron": "x"}]),
        "scheduleType.timings.0.cron",
        "there is no such field",
    ),
    (
        "POST",
        SCHEDULES,
        {**BODY, "scheduleType": "daily"},
        "scheduleType",
        '"daily" is not accepted; give an object',
    ),
    ("POST", SCHEDULES, target(type="flow"), "target.type", "accepted are task, workflow and template"),
    ("PATCH", f"{SCHEDULES}/there", {"target": {"taskKind": "x"}}, "target.type", "it is missing"),
    # names, without the expression that they must match
    ("POST", SCHEDULES, target(taskKind="a b"), "target.taskKind", f'"a b" is not a valid name; {NAME}'),
    ("POST", SCHEDULES, target(queue="a b"), "target.queue", NAME),
    ("POST", SCHEDULES, target(tags=["ok", "a b"]), "target.tags.1", NAME),
    ("POST", TASKS, {"kind": "a b"}, "kind", NAME),
    ("POST", WORKFLOWS, {"kind": "a b"}, "kind", NAME),
    ("POST", f"{ROOT}/bulk/schedules/pause", {"target": "a b"}, "target", NAME),
    ("POST", "/api/v1/tasks", {"command": "a b", "task_type": "python"}, "command", NAME),
    # zones
    ("POST", SCHEDULES, timing(**CRON, timezone=""), "scheduleType.timezone", "'' is not a known time zone"),
    (
        "POST",
        SCHEDULES,
        timing(**CRON, timezone="posixrules"),
        "scheduleType.timezone",
        "not a known time zone",
    ),
    ("POST", SCHEDULES, timing(type="rrule", rule="FREQ=DAILY", timezone=""), "scheduleType.timezone", "''"),
    (
        "PATCH",
        f"{SCHEDULES}/there",
        {"scheduleType": {**CRON, "timezone": ""}},
        "scheduleType.timezone",
        "''",
    ),
    ("POST", f"{ROOT}/preview", {"scheduleType": {**CRON, "timezone": ""}}, "scheduleType.timezone", "''"),
    ("POST", V1, {"schedule_type": "cron", "cron_expression": "@daily", "timezone": ""}, "timezone", "''"),
    (
        "POST",
        V1,
        {"schedule_type": "cron", "cron_expression": "@daily", "timezone": "posixrules"},
        "timezone",
        "not a known time zone",
    ),
    # fields of the domain, where this API keeps them
    ("POST", SCHEDULES, target(input=2**70), "target.input", "does not fit 64 bits"),
    (
        "POST",
        SCHEDULES,
        target(timeoutSeconds=0),
        "target.timeoutSeconds",
        "0 is too small; the least is 0.001",
    ),
    ("POST", SCHEDULES, target(metadata={"a": {"b": {"c": {}}}}), "target.metadata", "4 levels deep"),
    (
        "POST",
        SCHEDULES,
        timing(type="once", runAt="2020-01-01T00:00:00Z"),
        "scheduleType.runAt",
        "has passed",
    ),
    (
        "POST",
        SCHEDULES,
        timing(type="recurring", cron="x"),
        "scheduleType.cron",
        "the expression has 1 field",
    ),
    (
        "POST",
        SCHEDULES,
        {**BODY, "startAt": "2130-01-02T00:00:00Z", "endAt": "2130-01-01T00:00:00Z"},
        "endAt",
        "is before startAt; give a time after startAt",
    ),
    ("POST", SCHEDULES, {**BODY, "name": " x"}, "name", "is not a valid name"),
    ("POST", f"{SCHEDULES}/there/trigger", {"input": 2**70}, "input", "does not fit 64 bits"),
    (
        "POST",
        TASKS,
        {"kind": "echo", "ttlSeconds": 1, "expiresAt": "2130-01-01T00:00:00Z"},
        "expiresAt",
        "it was given together with ttlSeconds; give one of them",
    ),
    ("GET", f"{SCHEDULES}?cursor=x", None, "cursor", "'x' is not a cursor; give the nextCursor of a page"),
    (
        "POST",
        V1,
        {"schedule_type": "cron", "cron_expression": "x"},
        "cron_expression",
        "the expression has 1 field",
    ),
    # values
    ("POST", SCHEDULES, {**BODY, "maxRuns": 0}, "maxRuns", "0 is too small; the least is 1"),
    ("POST", SCHEDULES, {**BODY, "enabled": "yes"}, "enabled", '"yes" is not accepted; give true or false'),
    ("POST", SCHEDULES, {**BODY, "overlapPolicy": "x"}, "overlapPolicy", "and terminate_previous"),
    ("POST", SCHEDULES, {**BODY, "name": ""}, "name", "it is too short; the least is 1 character"),
    ("POST", SCHEDULES, {**BODY, "metadata": 5}, "metadata", "5 is not accepted; give an object"),
    ("POST", SCHEDULES, target(tags="a"), "target.tags", '"a" is not accepted; give a list'),
    ("POST", SCHEDULES, target(priority=1.5), "target.priority", "1.5 is not accepted; give a whole number"),
    (
        "POST",
        f"{ROOT}/keys",
        {"name": "x", "role": "boss"},
        "role",
        "accepted are viewer, operator and admin",
    ),
    ("POST", f"{ROOT}/bulk/schedules/stop", {"all": True}, "action", "accepted are pause, resume and delete"),
    ("GET", f"{SCHEDULES}?limit=x", None, "limit", '"x" is not accepted; give a whole number'),
    ("GET", f"{SCHEDULES}/there/runs?since=x", None, "since", "it is not a time"),
    # said twice
    ("POST", SCHEDULES, {**BODY, "maxRuns": 1, "max_runs": 2}, "maxRuns", "it is given twice"),
    ("POST", SCHEDULES, target(maxRetries=1, max_retries=1), "target.maxRetries", "it is given twice"),
    ("POST", TASKS, {"kind": "echo", "ttlSeconds": 1, "ttl_seconds": 1}, "ttlSeconds", "it is given twice"),
    ("POST", TASKS, b'{"kind": "echo", "kind": "echo"}', "kind", "it is given twice; give it once"),
    ("POST", TASKS, b'{"kind": "echo", "input": [1, {"a": 1, "a": 2}]}', "input.1.a", "it is given twice"),
    ("GET", f"{SCHEDULES}?limit=1&limit=2", None, "limit", "it is given 2 times; give it once"),
]
LEAKS = re.compile(r"\[A-Z|\{0,|\^|discriminator|[Ii]nput should|tag using")
VALUES = {str(choice) for policy in (OverlapPolicy, MissedRunPolicy) for choice in policy} | {"customer_id"}
"""What is written so in every API."""


@asynccontextmanager
async def client_of(api: Any, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(api, client=("127.0.0.1", 1), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", **options) as client:
        yield client
    await api.state.rota.close()


async def send(client: httpx.AsyncClient, method: str, path: str, body: Any) -> httpx.Response:
    if body is None:
        return await client.request(method, path)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    return await client.request(method, path, content=content, headers=headers)


async def test_the_field_at_fault_and_one_sentence(tmp_path: Path) -> None:
    async with client_of(create_app(f"sqlite:///{tmp_path}/rota.db")) as client:
        assert (await client.post(SCHEDULES, json={**BODY, "name": "there"})).status_code == 201
        made = await client.post("/api/v1/tasks", json={"command": "x", "task_type": "python"})
        typed = {"type": "object", "properties": {"customer_id": {"type": "integer"}}}
        for tenant in ("acme", "default"):
            template = {"alias": "typed", "kind": "x", "parametersSchema": typed}
            saved = await client.post(f"/api/tenants/{tenant}/templates", json=template)
        for method, path, body, field, sentence in WRONG:
            answer = await send(
                client,
                method,
                path.replace("{task}", made.json()["id"]).replace("{typed}", saved.json()["id"]),
                body,
            )
            found = problem(answer, 422, "invalid")
            row = (method, path, body, found)
            assert found["field"] == field, row
            assert found["detail"].startswith(f"{field}: "), row
            assert sentence in found["detail"], row
            said = [found["detail"], *(each["detail"] for each in found.get("errors", []))]
            assert not any(LEAKS.search(each) for each in said), row
            if "/v1/" not in path:
                snakes = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", " ".join(said))) - VALUES
                assert not snakes, row
        assert [each["name"] for each in (await client.get(SCHEDULES)).json()["items"]] == ["there"]
        assert (await client.get(TASKS)).json()["items"] == []


async def test_sentences_about_the_state_of_things_name_fields_as_this_api_does(tmp_path: Path) -> None:
    api = create_app(f"sqlite:///{tmp_path}/rota.db")
    async with client_of(api) as client:
        for name in ("nightly", "start_at"):
            await client.post(SCHEDULES, json={**BODY, "name": name})
            queue = api.state.rota.queue.for_tenant("acme")
            await queue.update_schedule(name, status="completed")
            answer = await client.post(f"{SCHEDULES}/{name}/resume")
            found = problem(answer, 409, "completed_schedule")["detail"]
            assert found.startswith(f"schedule {name} is completed; "), "its own name stays"
            assert "a higher maxRuns to activate it" in found


# Every route


def routes() -> list[tuple[str, str, Any]]:
    return [
        (method.upper(), path, operation)
        for path, methods in described()["paths"].items()
        for method, operation in methods.items()
    ]


async def filled(client: httpx.AsyncClient) -> dict[str, str]:
    """By the beginning of a path, what its `{id}` is to be."""
    schedule = await client.post(SCHEDULES, json=BODY)
    task = await client.post(TASKS, json={"kind": "echo"})
    flow = await client.post(WORKFLOWS, json={"kind": "echo"})
    template = await client.post("/api/tenants/acme/templates", json={"alias": "made", "kind": "echo"})
    stored = await client.post("/api/v1/tasks", json={"command": "echo", "task_type": "python"})
    once = {"schedule_type": "interval", "interval_seconds": 3600}
    inner = await client.post(f"/api/v1/tasks/{stored.json()['id']}/$schedule", json=once)
    job = await client.post(f"/api/v1/tasks/{stored.json()['id']}/$execute")
    return {
        "{tenant}": "acme",
        "{action}": "pause",
        "{schedule_id}": inner.json()["id"],
        "schedules/{id}": f"schedules/{schedule.json()['id']}",
        "task-executions/{id}": f"task-executions/{task.json()['id']}",
        "workflow-executions/{id}": f"workflow-executions/{flow.json()['id']}",
        "templates/{id}": f"templates/{template.json()['id']}",
        "tasks/{id}": f"tasks/{stored.json()['id']}",
        "jobs/{id}": f"jobs/{job.json()['job_id']}",
        "artifacts/{id}": f"artifacts/{job.json()['job_id']}",
        "{name}": "result",
        "{tag}": "nightly",
        "keys/{id}": "keys/none",
    }


def at(path: str, ids: dict[str, str]) -> str:
    for name, id in ids.items():
        path = path.replace(name, id)
    assert "{" not in path
    return path


async def test_every_route_refuses_a_query_parameter_that_it_does_not_know(tmp_path: Path) -> None:
    api = create_app(f"sqlite:///{tmp_path}/rota.db")
    async with client_of(api) as client:
        ids = await filled(client)
        for method, path, operation in routes():
            answer = await client.request(method, at(path, ids), params={"no_such": "1"})
            if path.startswith("/health"):  # whoever checks that may add parameters of their own
                assert answer.status_code == 200
                continue
            found = problem(answer, 422, "invalid")
            assert found["field"] == "no_such"
            known = sorted(each["name"] for each in operation.get("parameters", []) if each["in"] == "query")
            assert (", ".join(known) or "none are accepted") in found["detail"], (method, path)


async def test_every_route_refuses_a_name_that_is_given_twice(tmp_path: Path) -> None:
    api = create_app(f"sqlite:///{tmp_path}/rota.db")
    seen = 0
    async with client_of(api) as client:
        ids = await filled(client)
        for method, path, operation in routes():
            if "requestBody" in operation:
                answer = await send(client, method, at(path, ids), b'{"a": {"b": 1, "b": 1}}')
                assert problem(answer, 422, "invalid")["field"] == "a.b", (method, path)
                seen += 1
    assert seen > 15


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"kind": NaN}', b"{", b"[" * 100_000, b"\xff", b"[1" + b"0" * 5000 + b"]"),
        *(b'"\\ud800"', b'{"kind": ["a\\udfffb"]}', b'{"\\uD800": 1}'),
    ],
)
async def test_what_is_not_json_is_malformed_on_every_route(tmp_path: Path, body: bytes) -> None:
    async with client_of(create_app(f"sqlite:///{tmp_path}/rota.db")) as client:
        for path in (SCHEDULES, TASKS, WORKFLOWS, "/api/v1/tasks"):
            found = problem(await send(client, "POST", path, body), 400, "malformed")
            assert found["detail"].startswith("the body is not valid JSON"), path


async def test_a_query_of_other_bytes_than_ascii_is_malformed(tmp_path: Path) -> None:
    api = create_app(f"sqlite:///{tmp_path}/rota.db")

    async def with_bytes(scope: Any, receive: Any, send: Any) -> None:
        await api({**scope, "query_string": b"q=\xff"}, receive, send)

    transport = httpx.ASGITransport(with_bytes, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        found = problem(await client.get(SCHEDULES), 400, "malformed")
        assert found["detail"] == "the query has bytes outside ASCII; write each of them as %XX"


WRONG_CALLS: list[tuple[str, Any, str]] = [
    ("submit", {"kind": ["echo"]}, "kind: ['echo'] is not a text"),
    ("start_workflow", {"kind": {"a": 1}}, "kind: {'a': 1} is not a text"),
    ("submit_many", {"tasks": [[{"a": "echo"}, {}]]}, "kind: {'a': 'echo'} is not a text"),
    ("create_schedules", {"schedules": {"a": 0}}, "schedule 'a': options: 0 is not a dict"),
    ("export", {"schedules": 5}, "schedules: 5 names no schedule"),
    ("export", {"schedules": [5]}, "schedule_id: 5 is not a text"),
    ("apply", {"source": {}, "plan": "today"}, "plan: 'today' is not a plan"),
    ("apply", {"source": {}, "plan": [1, "x"]}, "plan: 1 is not a time"),
]


@pytest.mark.parametrize(("name", "given", "said"), WRONG_CALLS, ids=str)
async def test_a_wrong_argument_of_a_call_is_named(tmp_path: Path, name: str, given: Any, said: str) -> None:
    async with client_of(create_app(f"sqlite:///{tmp_path}/rota.db", app=App())) as client:
        answer = await client.post(f"{ROOT}/calls/{name}", json=given)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(said)


async def test_head_is_get_without_the_body(tmp_path: Path) -> None:
    api = create_app(f"sqlite:///{tmp_path}/rota.db")
    async with client_of(api) as client:
        ids = await filled(client)
        paths = [path for method, path, _ in routes() if method == "GET"]
        assert len(paths) > 20
        for path in [*paths, "/docs", "/docs/swagger-ui.css", "/openapi.json"]:
            params = {"at": "2030-01-01T09:00:00Z"} if path.endswith("/why") else {}
            async with asyncio.timeout(60):
                head = await client.head(at(path, ids), params=params)
            is_missing = (
                "artifacts/{" in path or "calendars/{" in path
            )  # nothing runs here, so nothing is left
            status = 404 if is_missing else 200
            assert (head.status_code, head.content) == (status, b""), (path, head.headers)
            if path.endswith(("/events", "$stream")):
                assert head.headers["content-type"].startswith("text/event-stream")
                continue
            got = await client.get(at(path, ids), params=params)
            if not path.endswith(("/metrics", "/queues")):  # these say how long something has been
                assert head.headers == got.headers, path
        assert (await client.head(f"{SCHEDULES}/missing")).status_code == 404
        refused = await client.head(f"{SCHEDULES}/{ids['{schedule_id}']}/pause")
        assert refused.status_code == 405
        assert (await client.delete(SCHEDULES)).headers["allow"] == "GET, HEAD, POST"
        assert (await client.put(f"{TASKS}/replay")).headers["allow"] == "POST"
        counted = (await client.get("/metrics")).text
        assert 'method="HEAD",route="/api/tenants/{tenant}/schedules/{id}",status="200"' in counted


# The store is away

SECRET = re.compile(r"db\.internal|shop_production|5432|/srv|rota\.db|disk")


class AwayStore(SqliteStore):
    """Once `away` is set, fails as a store does that cannot be reached."""

    away: Exception | None = None

    async def transact(self, work: Any, /, *options: Any) -> Any:
        return await self._answer(super().transact, work, *options)

    async def read(self, work: Any, /) -> Any:
        return await self._answer(super().read, work)

    async def now(self) -> Any:
        return await self._answer(super().now)

    async def _answer(self, ask: Any, *given: Any) -> Any:
        if self.away is not None:
            raise self.away.with_traceback(
                None
            )  # raised a thousand times, it must not keep a thousand traces
        return await ask(*given)


GONE = Unavailable("PostgreSQL (db.internal:5432/shop_production) cannot be reached", is_final=True)
TORN = Corrupt("/srv/rota.db: the row of a task cannot be read: disk image is malformed")


class Ahead(SystemClock):
    """Its stopwatch can be moved on."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@asynccontextmanager
async def away(
    tmp_path: Path, clock: Clock | None = None
) -> AsyncIterator[tuple[httpx.AsyncClient, AwayStore, str]]:
    """A client, a store that can be set away, and the key to every tenant."""
    store = AwayStore(tmp_path / "rota.db", SystemClock())
    await store.open()
    _, key = await Queue(store).create_key("all", "admin", every_tenant=True)
    async with client_of(create_app(store, clock=clock)) as client:
        yield client, store, key
    await store.close()


@pytest.mark.parametrize(
    "error", [GONE, TORN, OSError("/srv/rota.db: disk I/O error")], ids=["away", "torn", "odd"]
)
async def test_nobody_learns_where_the_store_is(tmp_path: Path, error: Exception) -> None:
    async with away(tmp_path) as (client, store, key):
        ids = {
            "{tenant}": "acme",
            "{action}": "pause",
            "{schedule_id}": "none",
            "{id}": "none",
            "{name}": "x",
            "{tag}": "x",
        }
        unknown = "rota_" + "0" * 32 + "_guess"
        store.away = error
        for given in (None, "nonsense", unknown, key):
            headers = {} if given is None else {"Authorization": f"Bearer {given}"}
            for method, path, _ in routes()[:: 1 if given == key else 7]:
                params = {"at": "2030-01-01T09:00:00Z"} if path.endswith("/why") else {}
                answer = await client.request(method, at(path, ids), headers=headers, params=params)
                shown = f"{answer.headers} {answer.text}"
                assert not SECRET.search(shown), (given, method, path, shown)
                assert answer.status_code in (200, 401, 422, 429, 500, 503), (method, path, answer.text)


async def test_metrics_say_that_the_store_is_away(tmp_path: Path) -> None:
    clock = Ahead()
    async with away(tmp_path, clock) as (client, store, key):
        known = {"Authorization": f"Bearer {key}"}
        assert "rota_store_readable 1.0" in (await client.get("/metrics", headers=known)).text
        store.away = GONE
        clock.ahead += 3  # what was read of a key is believed for two seconds anyway
        answer = await client.get("/metrics", headers=known)
        assert answer.status_code == 200
        assert "rota_store_readable 0.0" in answer.text
        assert "rota_http_requests_total" in answer.text, "a key that was good before still is"
        stranger = await client.get("/metrics", headers={"X-API-Key": "rota_" + "0" * 32 + "_guess"})
        assert stranger.status_code == 200
        lines = [line for line in stranger.text.splitlines() if not line.startswith("#")]
        assert lines == ["rota_store_readable 0.0"], "and nothing else for someone who is not known"
        problem(await client.get("/metrics", headers={"X-API-Key": "nonsense"}), 401, "unauthorized")
        store.away = None
        problem(await client.get("/metrics"), 401, "unauthorized")


async def test_metrics_answer_before_the_store_was_ever_there(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    async with client_of(create_app(f"sqlite:///{tmp_path}/folder")) as client:
        answer = await client.get("/metrics")
        assert (answer.status_code, "rota_store_readable 0.0" in answer.text) == (200, True), answer.text
        assert str(tmp_path) not in (await client.get("/health")).text


# Repeats


async def test_one_idempotency_key_on_two_paths_is_two_requests(tmp_path: Path) -> None:
    async with client_of(create_app(f"sqlite:///{tmp_path}/rota.db")) as client:
        for name in ("a", "b"):
            await client.post(SCHEDULES, json={**BODY, "name": name})
        key = {"Idempotency-Key": "the same"}
        paths = [
            f"{SCHEDULES}/a/pause",
            f"{SCHEDULES}/b/pause",
            f"{SCHEDULES}/a/trigger",
            f"{SCHEDULES}/b/trigger",
        ]
        asked: list[tuple[str, dict[str, str]]] = [(path, {}) for path in paths]
        asked += [(path, {"kind": "echo"}) for path in (TASKS, WORKFLOWS)]
        asked += [(path.replace("acme", "other"), {"kind": "echo"}) for path in (TASKS, WORKFLOWS)]
        first = [await client.post(path, json=body, headers=key) for path, body in asked]
        assert {each.status_code for each in first} == {200, 201}, [each.text for each in first]
        assert not any("idempotency-replayed" in each.headers for each in first)
        made = [each.json()["id"] for each in first]
        assert len(set(made)) == len(asked), "each has made or changed something of its own"
        assert {(await client.get(f"{SCHEDULES}/{name}")).json()["status"] for name in "ab"} == {"paused"}
        again = [await client.post(path, json=body, headers=key) for path, body in asked]
        assert [each.json()["id"] for each in again] == made
