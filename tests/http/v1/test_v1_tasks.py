"""Stored tasks: create, list, get, change, delete, execute."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from http_world import eventually
from rota.surfaces.http.v1 import answers as answers
from served import serving
from v1_world import PYTHON_TASK, Api, at, document_app, shaped


def test_create(still: Api) -> None:
    sent = still.send("POST", "tasks", PYTHON_TASK)
    made = sent.json()
    assert sent.status_code == 201
    assert sent.headers["location"] == f"/api/v1/tasks/{made['id']}"
    assert sent.headers["etag"] == '"1"'
    shaped(answers.TemplateAnswer, made)
    expected = {**PYTHON_TASK, "name": "backup_database", "parameters": {}, "enabled": True, "version": 1}
    assert {name: made[name] for name in expected} == expected
    assert still.ask("GET", f"tasks/{made['id']}") == made
    still.ask("DELETE", f"tasks/{made['id']}", status=204)
    still.refused("GET", f"tasks/{made['id']}", None, 404, "not_found")


def test_every_field(still: Api) -> None:
    fields: dict[str, Any] = {
        "name": "nightly backup",
        "parameters": {"compress": True, "deep": {"userId": [1, None]}},
        "queue": "slow",
        "max_retries": 2,
        "timeout_seconds": 30.5,
        "enabled": False,
        "tags": ["nightly"],
    }
    task = still.task(**fields)
    found = still.ask("GET", task.path)
    assert {name: found[name] for name in fields} == fields
    other = still.task(alias="by another word", maxRetries=1, timeoutSeconds=2)
    found = still.ask("GET", other.path)
    assert (found["name"], found["max_retries"], found["timeout_seconds"]) == ("by another word", 1, 2.0)


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"command": "ls -l", "task_type": "shell"}, "task_type", "the workers of this server run none"),
        ({"command": "echo", "task_type": "rust"}, "task_type", "accepted are python, shell, http"),
        ({"command": "os.system", "task_type": "python"}, "command", "backup_database, broken"),
        ({"command": "monthly_report", "task_type": "python"}, "command", "endless, health_check"),
        ({"command": "a b", "task_type": "python"}, "command", ""),
        ({"task_type": "python"}, "command", "missing"),
        ({"command": "backup_database"}, "task_type", "missing"),
        ({**PYTHON_TASK, "parameters": [1]}, "parameters", ""),
        ({**PYTHON_TASK, "parameters": None}, "parameters", ""),
        ({**PYTHON_TASK, "name": "a", "alias": "b"}, "alias", "contradicts"),
        ({**PYTHON_TASK, "name": " a"}, "name", "not a valid name"),
        ({**PYTHON_TASK, "alias": " a"}, "alias", "not a valid name"),
        ({**PYTHON_TASK, "max_retries": -1}, "max_retries", ""),
        ({**PYTHON_TASK, "timeout_seconds": 0}, "timeout_seconds", ""),
        ({**PYTHON_TASK, "schedule_at": "2099-01-01T00:00:00Z"}, "schedule_at", "no such field"),
    ],
)
def test_what_is_refused(still: Api, body: Any, field: str, words: str) -> None:
    found = still.refused("POST", "tasks", body)
    assert found["field"] == field
    assert words in found["detail"]


def test_without_an_app_any_function_may_be_named(tmp_path: Path) -> None:
    """The workers know them, and this server does not."""
    with serving(f"sqlite:///{tmp_path}/rota.db") as served:
        api = Api(served)
        assert api.ask("POST", "tasks", {"command": "elsewhere", "task_type": "python"}, 201)
        assert api.refused("POST", "tasks", {"command": "ls", "task_type": "shell"})["field"] == "task_type"


def test_a_shell_command(tmp_path: Path) -> None:
    """As the document says: stdout, stderr and the exit code are the result in its artifact; the streams are files."""
    with serving(f"sqlite:///{tmp_path}/rota.db", document_app(), engine=True, allow_shell=True) as served:
        api = Api(served)
        body: Any = {
            "command": "echo out; echo err >&2; exit $INPUT_code",
            "task_type": "shell",
            "max_retries": 0,
        }
        made = api.ask("POST", "tasks", body, 201)
        assert (made["command"], made["name"]) == (body["command"], body["command"])
        for code, status in ((0, "completed"), (3, "failed")):
            parameters = {"code": code}
            asked = {"parameters": parameters}
            job = api.ended(api.ask("POST", f"tasks/{made['id']}/$execute", asked, 202)["job_id"])
            assert job["status"] == status
            artifact = job["artifact"]
            assert artifact["result"] == {"exit_code": code, "stdout": "out\n", "stderr": "err\n"}
            snapshot = {**body, "id": made["id"], "parameters": parameters}
            del snapshot["max_retries"]
            assert artifact["task"] == snapshot
            found = api.ask("GET", f"artifacts/{job['artifact_id']}")
            assert found["data"] == artifact
            assert [(each["name"], each["size"]) for each in found["files"]] == [("stderr", 4), ("stdout", 4)]
            assert api.send("GET", f"artifacts/{job['id']}/$files/stdout").text == "out\n"
        listed: Any = {"run": ["ls", "-l"], "success_codes": [0, 2]}
        path = f"tasks/{made['id']}"
        assert api.ask("PATCH", path, {"command": listed})["command"] == listed
        assert api.ask("PATCH", path, {"command": ["ls", "-l"]})["command"] == ["ls", "-l"]
        assert api.refused("PATCH", path, {"command": {"ran": "ls"}})["field"] == "command.ran"
        assert api.ask("PATCH", path, {"task_type": "python", "command": "broken"})["task_type"] == "python"


def test_list_in_pages(still: Api) -> None:
    made = [still.task(name=f"task {number}").id for number in range(3)]
    first = still.ask("GET", "tasks?page=1&size=2")
    second = still.ask("GET", "tasks?page=2&size=2")
    assert [each["id"] for each in (*first["items"], *second["items"])][:3] == made[::-1]
    assert (first["page"], first["size"]) == (1, 2)
    assert first["pages"] == -(-first["total"] // 2)
    assert still.ask("GET", "tasks?page=100&size=100")["items"] == []
    assert still.refused("GET", "tasks?page=101&size=100")["field"] == "page"
    shaped(answers.TemplatesAnswer, first)


def test_replace(still: Api) -> None:
    task = still.task(parameters={"keep": 1}, tags=["a"], max_retries=5)
    old = still.ask("GET", task.path)
    assert still.ask("PUT", task.path, old) == old
    body = {**PYTHON_TASK, "command": "health_check", "version": 1}
    new = still.ask("PUT", task.path, body)
    assert (new["command"], new["name"], new["version"]) == ("health_check", "health_check", 2)
    assert (new["parameters"], new["tags"], new["max_retries"]) == ({}, [], None)
    stale = still.refused("PUT", task.path, body, 409, "stale_version")
    assert stale["currentVersion"] == 2
    assert still.refused("PUT", task.path, {**PYTHON_TASK, "command": "unknown"})["field"] == "command"
    assert still.refused("PUT", task.path, {"command": "health_check"})["field"] == "task_type"


def test_change(still: Api) -> None:
    task = still.task(parameters={"keep": 1}, max_retries=5)
    old = still.ask("GET", task.path)
    new = still.ask("PATCH", task.path, {"max_retries": None, "timeout_seconds": 9})
    expected = {"max_retries": None, "timeout_seconds": 9.0, "version": 2, "updated_at": new["updated_at"]}
    assert new == {**old, **expected}
    assert still.ask("PATCH", task.path, {}) == new
    answer = still.send("PATCH", task.path, {"enabled": False}, **{"If-Match": '"1"'})
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_version")
    assert still.ask("PATCH", task.path, {"enabled": False}, 200, **{"If-Match": '"2"'})["enabled"] is False
    assert still.refused("PATCH", task.path, {"command": "unknown"})["field"] == "command"
    assert still.refused("PATCH", task.path, {"task_type": "shell"})["field"] == "task_type"
    still.refused("PATCH", "tasks/none", {"enabled": True}, 404, "not_found")


def test_execute(api: Api) -> None:
    task = api.task(parameters={"keep": 3})
    sent = api.send("POST", f"{task.path}/$execute")
    assert sent.status_code == 202
    shaped(answers.StartedAnswer, sent.json())
    assert sent.headers["location"] == f"/api/v1/jobs/{sent.json()['job_id']}"
    job = api.ended(sent.json()["job_id"])
    assert job["artifact"]["result"] == {"compressed": False, "kept": 3}
    encoded = api.ask("POST", f"{task.path}/%24execute", {"parameters": {"compress": True}}, 202)
    job = api.ended(encoded["job_id"])
    assert job["artifact"]["result"] == {"compressed": True, "kept": 3}
    assert job["artifact"]["task"]["parameters"] == {"compress": True, "keep": 3}


def test_execute_refuses(still: Api) -> None:
    task = still.task(enabled=False)
    still.refused("POST", f"{task.path}/$execute", None, 409, "template_disabled")
    later = {"schedule_at": "2099-01-01T00:00:00Z"}
    still.refused("POST", f"{task.path}/$execute", later, 409, "template_disabled")
    assert still.refused("POST", f"{task.path}/$execute", {"parameters": 5})["field"] == "parameters"
    assert still.refused("POST", f"{task.path}/$execute", {"input": {}})["field"] == "input"
    still.refused("POST", "tasks/none/$execute", None, 404, "not_found")
    still.refused("POST", "tasks/none/$execute", later, 404, "not_found")


def test_execute_later(api: Api) -> None:
    """A delayed job can be listed and cancelled until it is due."""
    task = api.task(parameters={"keep": 3})
    far = task.execute({"schedule_at": "2099-01-01T00:00:00Z"})
    job = api.job(far)
    assert (job["status"], job["available_at"]) == ("pending", "2099-01-01T00:00:00Z")
    assert far in [each["id"] for each in api.jobs()]
    assert api.ask("DELETE", f"jobs/{far}")["status"] == "canceled"
    soon = api.now() + timedelta(seconds=1)
    job = api.ended(task.execute({"schedule_at": soon.isoformat(), "parameters": {"compress": True}}))
    assert (job["task_id"], job["artifact"]["result"]) == (task.id, {"compressed": True, "kept": 3})
    assert at(job["started_at"]) >= soon


def test_a_key_does_each_post_once(still: Api) -> None:
    """Also if what it was about has changed since."""
    key = {"Idempotency-Key": "once"}
    made = still.send("POST", "tasks", PYTHON_TASK, **key)
    again = still.send("POST", "tasks", PYTHON_TASK, **key)
    assert (again.status_code, again.json()) == (201, made.json())
    assert again.headers["idempotency-replayed"] == "true"
    answer = still.send("POST", "tasks", {**PYTHON_TASK, "queue": "other"}, **key)
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_reused")
    path = f"tasks/{made.json()['id']}"
    body = {"schedule_type": "once", "run_at": (still.now() + timedelta(seconds=4)).isoformat()}
    schedules = [still.ask("POST", f"{path}/$schedule", body, 201, **key)]
    jobs = [still.ask("POST", f"{path}/$execute", None, 202, **key) for _ in range(2)]
    eventually(lambda: still.now() > at(body["run_at"]))
    still.ask("DELETE", path, status=204)
    schedules.append(still.ask("POST", f"{path}/$schedule", body, 201, **key))
    assert schedules[0] == schedules[1]
    assert jobs[0] == jobs[1]
