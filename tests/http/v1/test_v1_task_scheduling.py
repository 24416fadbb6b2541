"""`test_task_scheduling` of document 004, over HTTP, with the engine running."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from http_world import eventually, problem
from rota import Queue, Schedule, TemplateTarget
from rota.surfaces.http.v1 import answers as answers
from v1_world import Api, at, shaped


def test_create_schedule(still: Api) -> None:
    task = still.task()
    sent = still.send(
        "POST", f"{task.path}/$schedule", {"schedule_type": "cron", "cron_expression": "0 2 * * *"}
    )
    made = sent.json()
    assert sent.status_code == 201
    assert sent.headers["location"] == f"/api/v1/{task.path}/$schedules/{made['id']}"
    assert made["task_id"] == task.id
    shaped(answers.TaskScheduleAnswer, made)
    assert still.http.get(sent.headers["location"]).json() == made
    assert still.http.get(sent.headers["location"].replace("$", "%24")).json() == made


def test_a_schedule_has_the_defaults_of_the_operation_and_a_readable_name(still: Api) -> None:
    made = still.task(name="nightly backup").schedule(schedule_type="interval", interval_seconds=60)
    record = still.served.call(lambda queue: queue.get_schedule(made["id"]))
    assert (record.missed_run_policy, record.overlap_policy) == ("execute_once", "allow")
    assert record.key.startswith("nightly backup-interval-")


def test_a_schedule_has_parameters_of_its_own_which_must_fit(api: Api) -> None:
    schema = {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]}
    task = api.task(parameters_schema=schema)
    path, hourly = f"{task.path}/$schedule", {"schedule_type": "interval", "interval_seconds": 3600}
    assert api.refused("POST", path, hourly)["detail"] == "parameters.day: it is missing"
    wrong = api.refused("POST", path, hourly | {"parameters": {"day": "one"}})
    assert wrong["detail"] == "parameters.day: expected integer, got 'one'"
    made = task.schedule(**hourly, parameters={"day": 1})
    assert made["parameters"] == {"day": 1}
    assert task.look(made) == made
    target = api.served.call(lambda queue: queue.get_schedule(made["id"])).target
    assert target == TemplateTarget(template_id=task.id, input={"day": 1})


def test_parameters_that_the_function_cannot_take_are_refused(still: Api) -> None:
    task = still.task()
    wrong = {"parameters": {"keep": "long"}}
    later = {"schedule_at": "2099-01-01T00:00:00Z", **wrong}
    hourly = {"schedule_type": "interval", "interval_seconds": 3600, **wrong}
    for path, body in (("$execute", wrong), ("$execute", later), ("$schedule", hourly)):
        refused = still.refused("POST", f"{task.path}/{path}", body)
        assert refused["detail"] == "parameters.keep: expected a whole number, got 'long'"


def test_list_schedules_for_task(still: Api) -> None:
    task, other = still.task(), still.task()
    assert task.schedules() == []
    first = task.schedule(schedule_type="interval", interval_seconds=3600)
    second = task.schedule(schedule_type="once", run_at="2099-01-01T00:00:00Z")
    other.schedule(schedule_type="interval", interval_seconds=3600)
    assert task.schedules() == [second, first]


def test_update_schedule_enable_disable(still: Api) -> None:
    task = still.task()
    made = task.schedule(schedule_type="interval", interval_seconds=3600)
    off = task.change(made, enabled=False)
    assert off == {**made, "enabled": False, "next_run_at": None, "updated_at": off["updated_at"]}
    assert task.change(made, enabled=False) == off
    assert task.look(made) == off
    on = task.change(made, enabled=True)
    assert on["enabled"]
    assert at(on["next_run_at"]) > at(on["updated_at"])
    assert task.change(made, enabled=True) == on
    assert task.change(made) == on


def test_a_schedule_can_begin_disabled(still: Api) -> None:
    made = still.task().schedule(schedule_type="interval", interval_seconds=3600, enabled=False)
    assert (made["enabled"], made["next_run_at"]) == (False, None)


def test_update_schedule_to_another_time(still: Api) -> None:
    task = still.task()
    made = task.schedule(schedule_type="interval", interval_seconds=3600)
    assert task.change(made, interval_seconds=60)["interval_seconds"] == 60
    path = f"{task.path}/$schedules/{made['id']}"
    assert still.refused("PATCH", path, {"cron_expression": "@daily"})["field"] == "cron_expression"
    assert still.refused("PATCH", path, {"schedule_type": "cron"})["field"] == "cron_expression"
    assert still.refused("PATCH", path, {"timezone": "Europe/Oslo"})["field"] == "timezone"
    past = {"schedule_type": "once", "run_at": "2025-10-20T14:00:00Z"}
    assert still.refused("PATCH", path, past)["detail"] == "run_at must be in the future"
    daily = task.change(made, schedule_type="cron", cron_expression="0 2 * * *", timezone="Asia/Kolkata")
    assert daily["next_run_at"].endswith("T20:30:00Z")
    assert "interval_seconds" not in daily
    off = task.change(made, cron_expression="0 3 * * *", enabled=False)
    assert (off["cron_expression"], off["timezone"], off["enabled"]) == ("0 3 * * *", "Asia/Kolkata", False)


def test_delete_schedule(still: Api) -> None:
    task = still.task()
    made = task.schedule(schedule_type="interval", interval_seconds=3600)
    path = f"{task.path}/$schedules/{made['id']}"
    assert still.send("DELETE", path).content == b""
    assert task.schedules() == []
    for method in ("GET", "DELETE", "PATCH"):
        still.refused(method, path, {} if method == "PATCH" else None, 404, "not_found")


def test_a_schedule_of_another_task_is_not_there(still: Api) -> None:
    task, other = still.task(), still.task()
    made = task.schedule(schedule_type="interval", interval_seconds=3600)
    path = f"{other.path}/$schedules/{made['id']}"
    still.refused("GET", path, None, 404, "not_found")
    still.refused("PATCH", path, {"enabled": False}, 404, "not_found")
    still.refused("DELETE", path, None, 404, "not_found")
    assert task.look(made) == made
    still.refused("GET", f"tasks/{made['id']}/$schedules", None, 404, "not_found")
    still.refused(
        "POST",
        "tasks/none/$schedule",
        {"schedule_type": "cron", "cron_expression": "@daily"},
        404,
        "not_found",
    )


def test_deleting_the_task_deletes_its_schedules(still: Api) -> None:
    task = still.task()
    made = task.schedule(schedule_type="interval", interval_seconds=3600)
    still.ask("DELETE", task.path, status=204)
    still.refused("GET", f"{task.path}/$schedules", None, 404, "not_found")
    still.refused("GET", f"{task.path}/$schedules/{made['id']}", None, 404, "not_found")
    path = f"/api/tenants/default/schedules/{made['id']}"
    problem(still.http.get(path), 404, "not_found")


def test_scheduled_execution_occurs(api: Api) -> None:
    task = api.task("health_check")
    made = task.schedule(schedule_type="once", run_at=(api.now() + timedelta(seconds=3)).isoformat())
    job = api.ended(eventually(lambda: task.jobs(made))[0]["id"])
    assert (job["status"], job["task_id"], job["schedule_id"]) == ("completed", task.id, made["id"])
    assert job["artifact"]["result"]["memory_percent"] == 40.0
    assert at(job["started_at"]) >= at(made["run_at"])


def test_once_schedule_disables_after_execution(api: Api) -> None:
    task = api.task()
    made = task.schedule(schedule_type="once", run_at=(api.now() + timedelta(seconds=3)).isoformat())
    ran = eventually(lambda: (seen := task.look(made))["last_run_at"] and seen)
    assert (ran["enabled"], ran["next_run_at"]) == (False, None)
    assert at(ran["last_run_at"]) >= at(made["run_at"])
    path = f"{task.path}/$schedules/{made['id']}"
    found = api.refused("PATCH", path, {"enabled": True}, 409, "completed_schedule")
    assert "new time" in found["detail"]
    assert task.change(made, enabled=False) == ran
    again = task.change(made, enabled=True, run_at="2099-01-01T00:00:00Z")
    assert (again["enabled"], again["next_run_at"]) == (True, "2099-01-01T00:00:00Z")


def test_interval_schedule_calculates_next_run_correctly(api: Api) -> None:
    task = api.task()
    made = task.schedule(schedule_type="interval", interval_seconds=2)
    ran = eventually(lambda: (seen := task.look(made))["last_run_at"] and seen)
    first = at(made["next_run_at"])
    steps, rest = divmod(at(ran["next_run_at"]) - first, timedelta(seconds=2))
    assert steps >= 1
    assert not rest
    assert ran["enabled"]


@pytest.mark.parametrize(
    ("type", "timing"),
    [
        ("once", {"run_at": datetime(2099, 1, 1, tzinfo=UTC)}),
        ("interval", {"interval": 3600}),
        ("cron", {"cron": "0 2 * * *"}),
        ("rrule", {"rrule": "FREQ=DAILY"}),
        ("several", {"timings": ["0 2 * * *", "1h"]}),
        ("after", {"after": ["before"]}),
    ],
)
def test_a_schedule_that_was_made_elsewhere_names_its_type(still: Api, type: str, timing: Any) -> None:
    task = still.task()
    target = TemplateTarget(template_id=task.id)

    async def make(queue: Queue) -> Schedule:
        if type == "after":
            await queue.create_schedule("before", interval=3600, target=target)
        return await queue.create_schedule(f"a {type} one", target=target, **timing)

    made = {"id": still.served.call(make).id}
    shaped(answers.TaskScheduleAnswer, task.look(made))
    assert task.look(made)["schedule_type"] == type
    path = f"{task.path}/$schedules/{made['id']}"
    if type == "cron":
        assert task.change(made, timezone="Asia/Tokyo")["timezone"] == "Asia/Tokyo"
    else:
        found = still.refused("PATCH", path, {"timezone": "Asia/Tokyo"})
        assert f"this one is of type '{type}'" in found["detail"]
