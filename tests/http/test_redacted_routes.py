"""Hidden fields are hidden on every route and every page, and an edit of what was shown loses nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from http_world import described, eventually, example_app
from rota.surfaces.dashboard.site import PAGES
from served import Served, serving

SECRET = "s3cret"
GIVEN = {"userId": "ada", "auth": {"token": SECRET}}
HIDDEN = {"userId": "ada", "auth": {"token": "[hidden]"}}
HERE = {"Sec-Fetch-Site": "same-origin"}
_MONTHLY = "0 6 1 * *"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """On SQLite, which runs works in a thread of its own."""
    address = f"sqlite:///{tmp_path_factory.mktemp('redaction')}/rota.db"
    with serving(address, example_app(), engine=True, rate=100_000, redact=["token"]) as served:
        yield served


@pytest.fixture(scope="module")
def made(served: Served) -> dict[str, str]:
    """The ids of what holds the secret."""

    async def make(queue: Any) -> dict[str, str]:
        task = await queue.submit("echo", GIVEN, metadata=GIVEN)
        workflow = await queue.start_workflow("generate-report", GIVEN)
        template = await queue.create_template("mail", "echo", parameters=GIVEN)
        await queue.create_schedule("report", task_type="echo", cron=_MONTHLY, input=GIVEN, metadata=GIVEN)
        await queue.update_schedule("report", input={**GIVEN, "n": 1})
        await queue.create_schedule("mail", cron=_MONTHLY, target=template_target(template.id))
        return {"task": task.id, "workflow": workflow.id, "template": template.id}

    found: dict[str, str] = served.call(make)
    for name in ("task", "workflow"):
        eventually(partial(has_completed, served, found[name]))
    return found


def has_completed(served: Served, id: str) -> bool:
    return bool(served.call(lambda queue: queue.get(id)).status == "completed")


def template_target(id: str) -> Any:
    from rota import TemplateTarget

    return TemplateTarget(template_id=id, input=GIVEN)


def test_no_route_shows_what_is_hidden(served: Served, made: dict[str, str]) -> None:
    client, said = served.client(), 0
    for path, methods in described()["paths"].items():
        if "get" not in methods or path.endswith("/events"):
            continue
        id = "report"
        for part, of in (("task", "workflow"), ("task", "task"), ("workflow", "workflow"), ("template",) * 2):
            if f"/{part}-executions" in path or f"/{part}s/" in path:
                id = made[of]
        if "/jobs" in path or "/artifacts/" in path:
            id = made["task"]
        place = path.format(tenant="default", id=id, name="result", schedule_id="none")
        if "/v1/tasks/" in path:
            place = path.format(id=made["template"], schedule_id="none")
        text = client.get(place, params={"at": "2026-03-01T06:00:00Z"} if path.endswith("/why") else {}).text
        assert SECRET not in text, path
        said += "[hidden]" in text
    assert said >= 15


def test_no_page_shows_what_is_hidden(served: Served, made: dict[str, str]) -> None:
    client, said = served.client(), 0
    for method, place, _, _ in PAGES:
        for action in ("trigger", "replay") if "{action}" in place else ("",):
            for id in (made["task"], made["workflow"]) if "{id}" in place else ("",):
                path = place.format(key="report", id=id, action=action, name="default")
                if method == "GET":
                    query = "?from=1&to=2&version=1" if "version" in place or "put-back" in place else ""
                    text = client.get(f"/ui/default{path}{query}").text
                    assert SECRET not in text, path
                    said += "[hidden]" in text
    assert said >= 5


@pytest.mark.parametrize("headers", [{}, {"Rota-Progress": "lines"}], ids=["at once", "behind its steps"])
def test_no_call_answers_what_is_hidden(
    served: Served, made: dict[str, str], headers: dict[str, str]
) -> None:
    declared = {"report": {"task_type": "echo", "cron": "0 7 1 * *", "input": HIDDEN, "metadata": HIDDEN}}
    for name, given in (
        ("get", {"task_id": made["task"]}),
        ("get_schedule", {"schedule_id": "report"}),
        ("plan", {"source": {"schedules": declared}}),
        ("export", {}),
    ):
        answer = served.client().post(f"/api/tenants/default/calls/{name}", json=given, headers=headers)
        assert answer.status_code == 200
        assert ("Rota-Progress" in answer.headers) is (bool(headers) and name == "plan")
        assert SECRET not in answer.text
        assert "[hidden]" in answer.text


def test_no_event_tells_what_is_hidden(served: Served) -> None:
    client = served.client()
    with client.stream(
        "GET", "/api/tenants/default/events", headers={"Accept": "text/event-stream"}
    ) as stream:
        lines = stream.iter_lines()
        next(line for line in lines if line.startswith("id:"))
        served.call(lambda queue: queue.submit("echo", GIVEN))
        heard: list[str] = []
        while not any('"status":"completed"' in line for line in heard):
            heard.append(next(lines))
    assert SECRET not in "".join(heard)
    assert '"token":"[hidden]"' in "".join(heard)


def test_an_edit_of_what_was_shown_keeps_what_is_hidden(served: Served, made: dict[str, str]) -> None:
    client = served.client()
    client.headers.update(HERE)
    shown = client.get("/api/tenants/default/schedules/report").json()["target"]
    assert shown["input"] == {**HIDDEN, "n": 1}
    shown["input"]["n"] = 2
    assert client.patch("/api/tenants/default/schedules/report", json={"target": shown}).status_code == 200
    assert stored(served) == {**GIVEN, "n": 2}
    page = html.unescape(client.get("/ui/default/schedules/report/edit").text)
    assert '"token": "[hidden]"' in page
    form = {"type": "cron", "when": _MONTHLY, "timezone": "UTC", "task_type": "echo"}
    form["input"] = json.dumps({**HIDDEN, "n": 3})
    assert client.post("/ui/default/schedules/report/edit", data=form).status_code == 303
    assert stored(served) == {**GIVEN, "n": 3}
    ran = client.post("/ui/default/schedules/report/trigger", data={"input": json.dumps(HIDDEN)})
    id = ran.headers["location"].rpartition("/")[2]
    assert served.call(lambda queue: queue.get(id)).input == GIVEN
    refused = client.post("/api/tenants/default/task-executions", json={"kind": "echo", "input": HIDDEN})
    assert (refused.status_code, refused.json()["field"]) == (422, "input.auth.token")


def stored(served: Served) -> Any:
    return served.call(lambda queue: queue.get_schedule("report")).target.input
