"""Every example of document 004: sent as printed, answered as printed."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from http_world import eventually
from v1_world import Api, Clock

ONCE = """{
  "schedule_type": "once",
  "run_at": "2025-10-20T14:00:00Z",
  "enabled": true
}"""
INTERVAL = """{
  "schedule_type": "interval",
  "interval_seconds": 3600,
  "enabled": true
}"""
CRON = """{
  "schedule_type": "cron",
  "cron_expression": "0 2 * * *",
  "enabled": true
}"""
PYTHON = '{"command": "backup_database", "task_type": "python"}'
MONITOR = '{"command": "health_check", "task_type": "python"}'
ANSWERED = {
    "cron_expression": "0 2 * * *",
    "enabled": True,
    "next_run_at": "2025-10-18T02:00:00Z",
    "last_run_at": None,
    "created_at": "2025-10-17T10:00:00Z",
    "updated_at": "2025-10-17T10:00:00Z",
}


def made(api: Api, body: str) -> str:
    return str(api.ask("POST", "tasks", body, 201)["id"])


def scheduled(api: Api, task: str, body: str) -> Any:
    return api.ask("POST", f"tasks/{task}/$schedule", body, 201)


def test_requests_and_answers_at_the_time_of_the_document(then: Api) -> None:
    """To the letter, and in its order: at that time the printed times are right, too."""
    task = made(then, PYTHON)
    cron = scheduled(then, task, CRON)
    expected = {"id": cron["id"], "task_id": task, "schedule_type": "cron", **ANSWERED}
    assert list(cron.items()) == list(expected.items())
    once = scheduled(then, task, ONCE)
    assert once["run_at"] == once["next_run_at"] == "2025-10-20T14:00:00Z"
    every = scheduled(then, task, INTERVAL)
    assert (every["interval_seconds"], every["next_run_at"]) == (3600, "2025-10-17T11:00:00Z")


def test_the_list_at_the_time_of_the_document(then: Api, clock: Clock) -> None:
    clock.set("2025-10-17T09:00:00Z")
    task = made(then, PYTHON)
    id = scheduled(then, task, INTERVAL)["id"]
    clock.set("2025-10-17T10:00:00Z")
    then.served.call(lambda queue: queue.run_due())
    (found,) = then.ask("GET", f"tasks/{task}/$schedules")
    printed = {
        "id": id,
        "task_id": task,
        "schedule_type": "interval",
        "interval_seconds": 3600,
        "enabled": True,
        "next_run_at": "2025-10-17T11:00:00Z",
        "last_run_at": "2025-10-17T10:00:00Z",
        "created_at": "2025-10-17T09:00:00Z",
        "updated_at": "2025-10-17T10:00:00Z",
    }
    assert {**found, "updated_at": None} == {**printed, "updated_at": None}
    assert list(found) == list(printed)


@pytest.mark.parametrize("body", [CRON, INTERVAL, ONCE.replace("2025", "2099")])
def test_requests_on_every_store(still: Api, body: str) -> None:
    task = still.task()
    answer = scheduled(still, task.id, body)
    timing = {"cron": "cron_expression", "interval": "interval_seconds", "once": "run_at"}
    field = timing[answer["schedule_type"]]
    order = ["id", "task_id", "schedule_type", field, "enabled", "next_run_at", "last_run_at", "created_at"]
    assert list(answer) == [*order, "updated_at"]
    changed = still.ask("PATCH", f"{task.path}/$schedules/{answer['id']}", '{\n  "enabled": false\n}')
    assert (changed["id"], changed["enabled"]) == (answer["id"], False)
    gone = still.send("DELETE", f"{task.path}/$schedules/{answer['id']}")
    assert (gone.status_code, gone.content) == (204, b"")


def test_the_one_off_request_is_in_the_past_by_now(still: Api) -> None:
    found = still.refused("POST", f"{still.task().path}/$schedule", ONCE)
    assert found["detail"] == "run_at must be in the future"


EXAMPLE_1 = r"""
# Create task (shell or python)
TASK_ID=$(curl -s -X POST http://localhost:8000/api/v1/tasks \
  -d '{"command": "backup_database", "task_type": "python"}' | jq -r '.id')

# Schedule to run daily at 2 AM
SCHEDULE_ID=$(curl -s -X POST http://localhost:8000/api/v1/tasks/$TASK_ID/\$schedule \
  -d '{
    "schedule_type": "cron",
    "cron_expression": "0 2 * * *"
  }' | jq -r '.id')

# List all schedules for task
curl http://localhost:8000/api/v1/tasks/$TASK_ID/\$schedules

# Disable schedule temporarily
curl -X PATCH http://localhost:8000/api/v1/tasks/$TASK_ID/\$schedules/$SCHEDULE_ID \
  -d '{"enabled": false}'

# Re-enable
curl -X PATCH http://localhost:8000/api/v1/tasks/$TASK_ID/\$schedules/$SCHEDULE_ID \
  -d '{"enabled": true}'

# Delete schedule
curl -X DELETE http://localhost:8000/api/v1/tasks/$TASK_ID/\$schedules/$SCHEDULE_ID
curl -s -X DELETE http://localhost:8000/api/v1/tasks/$TASK_ID
"""
needs_curl = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="the commands are those of the document"
)


@needs_curl
def test_example_1_as_commands(still: Api) -> None:
    """Verbatim, but for the port and the last line, which tidies up."""
    port = still.served.url.rpartition(":")[2]
    script = EXAMPLE_1.replace(":8000", f":{port}").replace("localhost", "127.0.0.1")
    ran = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True, timeout=60)
    listed, off, on = ran.stdout.replace("}{", "}\n{").replace("]{", "]\n{").split("\n")
    assert '"cron_expression":"0 2 * * *"' in listed
    assert '"enabled":false' in off
    assert '"enabled":true' in on


def test_example_1_as_requests(api: Api) -> None:
    task = api.task()
    schedule = scheduled(
        api, task.id, '{\n    "schedule_type": "cron",\n    "cron_expression": "0 2 * * *"\n  }'
    )
    assert task.schedules() == [schedule]
    assert task.change(schedule, enabled=False)["enabled"] is False
    assert task.change(schedule, enabled=True)["enabled"] is True
    api.ask("DELETE", f"{task.path}/$schedules/{schedule['id']}", status=204)


def test_example_2_monitoring(api: Api) -> None:
    """Every 5 minutes as printed; then every second, so that a test can see it."""
    id = made(api, MONITOR)
    printed = scheduled(api, id, '{\n    "schedule_type": "interval",\n    "interval_seconds": 300\n  }')
    assert printed["interval_seconds"] == 300
    scheduled(api, id, '{"schedule_type": "interval", "interval_seconds": 1}')

    def monitored() -> Any:
        page = api.ask("GET", "jobs?page=1&size=20")
        assert (page["page"], page["size"]) == (1, 20)
        return [job for job in page["items"] if job["task_id"] == id and job["status"] == "completed"]

    job = eventually(monitored)[0]
    assert job["artifact"]["result"] == {"cpu_percent": 1.5, "memory_percent": 40.0, "disk_percent": 60.0}
    api.ask("DELETE", f"tasks/{id}", status=204)
