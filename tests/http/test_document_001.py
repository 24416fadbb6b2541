"""Document 001: its example bodies, sent as printed and answered as printed (times aside), and every test that it
names, over HTTP."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from http_world import Tenant, eventually, problem

ONE_TIME: dict[str, Any] = {
    "name": "year-end-report",
    "description": "Generate year-end financial report",
    "scheduleType": {"type": "once", "runAt": "2026-12-31T23:59:00Z"},
    "target": {
        "type": "workflow",
        "workflowKind": "generate-report",
        "input": {"reportType": "annual", "year": 2026},
    },
}
RECURRING: dict[str, Any] = {
    "name": "daily-report",
    "description": "Generate daily sales report at 9 AM Eastern",
    "scheduleType": {"type": "recurring", "cron": "0 9 * * *", "timezone": "America/New_York"},
    "target": {
        "type": "workflow",
        "workflowKind": "generate-sales-report",
        "input": {"reportType": "daily"},
    },
}
PRINTED = [
    "id",
    "name",
    "description",
    "scheduleType",
    "target",
    "enabled",
    "nextRunAt",
    "nextRunAtLocal",
    "lastRunAt",
    "runCount",
    "createdBy",
    "createdAt",
    "updatedAt",
]


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def soon(seconds: float = 1) -> str:
    return iso(datetime.now(UTC) + timedelta(seconds=seconds))


def cron(expression: str, timezone: str = "UTC", **more: Any) -> dict[str, Any]:
    return {"type": "recurring", "cron": expression, "timezone": timezone, **more}


def task(kind: str = "echo", **more: Any) -> dict[str, Any]:
    return {"type": "task", "taskKind": kind, **more}


EVERY_SECOND = cron("* * * * * *")


def create(tenant: Tenant, name: str, timing: Any, target: Any = None, **more: Any) -> Any:
    body = {"name": name, "scheduleType": timing, "target": target or task(), **more}
    return tenant.post("schedules", body)


def preview(tenant: Tenant, timing: Any, n: int = 1, **more: Any) -> list[str]:
    answer = tenant.post("preview", {"scheduleType": timing, "n": n, **more}, 200)
    return [each["at"] for each in answer["times"]]


def test_the_examples_as_printed(quiet: Tenant) -> None:
    once = ONE_TIME | {"scheduleType": {"type": "once", "runAt": "2126-12-31T23:59:00Z"}}
    for body in (once, RECURRING):
        answer = quiet.post("schedules", body)
        assert [name for name in answer if name in PRINTED] == PRINTED
        assert body["scheduleType"].items() <= answer["scheduleType"].items()
        assert answer["target"] == body["target"]
        assert (answer["name"], answer["description"]) == (body["name"], body["description"])
        assert (answer["enabled"], answer["lastRunAt"], answer["runCount"]) == (True, None, 0)
        assert answer["createdBy"] == "key:tests"
        assert quiet.get(f"schedules/{answer['id']}") == answer
        assert quiet.get(f"schedules/{answer['name']}") == answer


def test_the_local_time_is_on_the_clock_of_the_zone(quiet: Tenant) -> None:
    answer = quiet.post("schedules", RECURRING)
    assert answer["nextRunAtLocal"].endswith("T09:00:00")
    assert answer["nextRunAt"].endswith(("T13:00:00Z", "T14:00:00Z"))
    assert answer["scheduleType"]["description"] == "At 09:00"


def test_scheduled_at_is_refused_and_points_to_schedules(quiet: Tenant) -> None:
    body = {"kind": "send-reminder", "input": {"userId": "123"}, "scheduledAt": "2026-01-15T10:00:00Z"}
    answer = quiet.http.post(quiet.path("task-executions"), json=body)
    found = problem(answer, 422, "invalid")
    assert found["field"] == "scheduledAt"
    assert "schedule" in found["detail"]
    started = quiet.http.post(
        quiet.path("workflow-executions"), json={"kind": "my-workflow", "input": {}, "scheduledAt": soon(60)}
    )
    assert problem(started, 422, "invalid")["field"] == "scheduledAt"


def test_the_managed_way_of_the_migration(quiet: Tenant) -> None:
    body = {
        "name": "reminder-user-123",
        "scheduleType": {"type": "once", "runAt": "2126-01-15T10:00:00Z"},
        "target": {"type": "task", "taskKind": "send-reminder", "input": {"userId": "123"}},
    }
    answer = quiet.post("schedules", body)
    assert answer["nextRunAt"] == "2126-01-15T10:00:00Z"
    assert answer["target"] == body["target"]


@pytest.mark.parametrize(
    "expression", ["0 * * * *", "*/15 * * * *", "0 9 * * 1-5", "0 0 1 * *", "30 4 * * *", "*/10 * * * * *"]
)
def test_cron_parsing_valid_expressions(quiet: Tenant, expression: str) -> None:
    answer = create(quiet, "valid", cron(expression))
    assert answer["scheduleType"]["cron"] == expression
    assert answer["nextRunAt"] is not None


@pytest.mark.parametrize("expression", ["", "not a cron", "61 * * * *", "* * * *", "0 0 30 2 *"])
def test_cron_parsing_invalid_expressions(quiet: Tenant, expression: str) -> None:
    body = {"name": "invalid", "scheduleType": cron(expression), "target": task()}
    found = problem(quiet.http.post(quiet.path("schedules"), json=body), 422, "invalid")
    assert found["field"] == "scheduleType.cron"
    assert quiet.get("schedules")["items"] == []


def test_a_preview_may_also_be_asked_for_among_the_schedules(quiet: Tenant) -> None:
    create(quiet, "preview", EVERY_SECOND)
    assert quiet.post("schedules/preview", {"scheduleType": EVERY_SECOND}, 200)["times"]
    assert quiet.get("schedules/preview")["name"] == "preview"


def test_next_run_calculation_once(quiet: Tenant) -> None:
    when = "2126-05-01T12:00:00Z"
    assert create(quiet, "later", {"type": "once", "runAt": when})["nextRunAt"] == when
    past = {
        "name": "past",
        "scheduleType": {"type": "once", "runAt": "2020-01-01T00:00:00Z"},
        "target": task(),
    }
    found = problem(quiet.http.post(quiet.path("schedules"), json=past), 422, "invalid")
    assert found["field"] == "scheduleType.runAt"


def test_next_run_calculation_recurring(quiet: Tenant) -> None:
    times = preview(quiet, cron("*/15 * * * *"), 3, startAt="2126-01-01T00:01:00Z")
    assert times == ["2126-01-01T00:15:00Z", "2126-01-01T00:30:00Z", "2126-01-01T00:45:00Z"]


def test_next_run_with_end_at(quiet: Tenant) -> None:
    within = cron("0 0 * * *", endAt="2126-01-03T00:00:00Z")
    assert len(preview(quiet, within, 10, startAt="2126-01-01T00:00:00Z")) == 3
    answer = create(quiet, "bounded", within)
    assert answer["endAt"] == answer["scheduleType"]["endAt"] == "2126-01-03T00:00:00Z"


def test_next_run_with_timezone(quiet: Tenant) -> None:
    for zone, hour in (("America/New_York", "14:00"), ("Europe/London", "09:00"), ("Asia/Tokyo", "00:00")):
        assert preview(quiet, cron("0 9 * * *", zone), startAt="2127-01-04T00:00:00Z") == [
            f"2127-01-04T{hour}:00Z"
        ]


def test_next_run_dst_spring_forward(quiet: Tenant) -> None:
    """On 14 March 2027 there is no 02:00 in New York: it runs at 03:00, once."""
    timing = cron("0 2 * * *", "America/New_York")
    body = {"scheduleType": timing, "n": 2, "startAt": "2027-03-14T05:00:00Z"}
    first, second = quiet.post("preview", body, 200)["times"]
    assert (first["local"], first["dst"]) == ("2027-03-14T03:00:00", "moved")
    assert second["local"] == "2027-03-15T02:00:00"


def test_next_run_dst_fall_back(quiet: Tenant) -> None:
    """On 7 November 2027 01:30 comes twice in New York: it runs at the first."""
    times = preview(quiet, cron("30 1 * * *", "America/New_York"), 2, startAt="2027-11-07T04:00:00Z")
    assert times == ["2027-11-07T05:30:00Z", "2027-11-08T06:30:00Z"]


def test_timezone_validation(quiet: Tenant) -> None:
    for zone in ("America/New_York", "Europe/London"):
        assert preview(quiet, cron("0 9 * * *", zone))
    body = {"name": "bad", "scheduleType": cron("0 9 * * *", "America/Nowhere"), "target": task()}
    found = problem(quiet.http.post(quiet.path("schedules"), json=body), 422, "invalid")
    assert found["field"] == "scheduleType.timezone"


def test_schedule_target_serialization(quiet: Tenant) -> None:
    targets = [
        {"type": "workflow", "workflowKind": "w", "queue": "q", "input": [1, None], "metadata": {"a": "b"}},
        {
            "type": "task",
            "taskKind": "t",
            "queue": "q",
            "input": {"a": 1},
            "maxRetries": 5,
            "metadata": {"a": "b"},
        },
        {
            "type": "task",
            "taskKind": "t",
            "priority": 3,
            "ttlSeconds": 60.0,
            "tags": ["x"],
            "timeoutSeconds": 1.5,
        },
        {"type": "task", "taskKind": "t"},
    ]
    for number, target in enumerate(targets):
        assert create(quiet, f"target-{number}", EVERY_SECOND, target)["target"] == target


def test_create_one_time_schedule(quiet: Tenant) -> None:
    when = soon(3600)
    answer = create(quiet, "one-time", {"type": "once", "runAt": when})
    assert answer["nextRunAt"] == when
    assert answer["missedRunPolicy"] == "execute_once"
    taken = quiet.http.post(
        quiet.path("schedules"),
        json={"name": "one-time", "scheduleType": EVERY_SECOND, "target": task()},
    )
    problem(taken, 409, "key_taken")


def test_create_recurring_schedule(quiet: Tenant) -> None:
    answer = create(quiet, "recurring", EVERY_SECOND)
    assert (answer["missedRunPolicy"], answer["overlapPolicy"]) == ("skip", "skip")
    assert quiet.get("schedules")["items"] == [answer]


def runs(tenant: Tenant, name: str, **filters: Any) -> Any:
    return tenant.get(f"schedules/{name}/runs", params=filters)["items"]


def test_schedule_fires_at_correct_time(tenant: Tenant) -> None:
    when = soon(1)
    create(tenant, "punctual", {"type": "once", "runAt": when})
    (run,) = eventually(lambda: runs(tenant, "punctual"))
    assert run["scheduledAt"] == when
    assert at(run["startedAt"]) >= at(when)


def test_schedule_creates_workflow(tenant: Tenant) -> None:
    target = {
        "type": "workflow",
        "workflowKind": "my-workflow",
        "input": {"a": 1},
        "metadata": {"team": "sales"},
    }
    create(tenant, "flow", {"type": "once", "runAt": soon()}, target)
    (run,) = eventually(lambda: runs(tenant, "flow", status="completed"))
    assert run["targetType"] == "workflow"
    started = tenant.get(f"workflow-executions/{run['targetId']}")
    assert (started["kind"], started["status"], started["output"]) == ("my-workflow", "completed", {"a": 1})
    assert started["metadata"] == {"team": "sales"}
    assert [each["id"] for each in tenant.get("workflow-executions")["items"]] == [started["id"]]
    assert tenant.get("task-executions")["items"] == []


def test_schedule_creates_task(tenant: Tenant) -> None:
    target = task("send-reminder", input={"userId": "123"}, metadata={"team": "sales"})
    create(tenant, "task", {"type": "once", "runAt": soon()}, target)
    (run,) = eventually(lambda: runs(tenant, "task", status="completed"))
    started = tenant.get(f"task-executions/{run['targetId']}")
    assert (started["status"], started["output"]) == ("completed", {"reminded": "123"})
    assert (started["metadata"], started["scheduledAt"]) == ({"team": "sales"}, run["scheduledAt"])
    assert [each["status"] for each in tenant.get(f"task-executions/{started['id']}/history")["items"]] == [
        "pending",
        "running",
        "completed",
    ]
    (attempt,) = tenant.get(f"task-executions/{started['id']}/attempts")["items"]
    assert (attempt["attempt"], attempt["status"]) == (1, "completed")


def test_pause_resume_schedule(quiet: Tenant) -> None:
    create(quiet, "pausing", EVERY_SECOND)
    paused = quiet.post("schedules/pausing/pause", {"note": "the warehouse is down"}, 200)
    assert (paused["enabled"], paused["status"], paused["nextRunAt"]) == (False, "paused", None)
    assert paused["pauseNote"] == "the warehouse is down"
    assert quiet.get("schedules", params={"status": "inactive"})["items"] == [paused]
    resumed = quiet.post("schedules/pausing/resume", None, 200)
    assert (resumed["enabled"], resumed["status"], resumed["pauseNote"]) == (True, "active", None)
    assert resumed["nextRunAt"] is not None
    actions = [each["action"] for each in quiet.get("schedules/pausing/history")["items"]]
    assert actions == ["created", "paused", "resumed"]
    assert {each["actor"] for each in quiet.get("schedules/pausing/history")["items"]} == {"key:tests"}


def test_trigger_immediately(tenant: Tenant) -> None:
    made = create(tenant, "by-hand", {"type": "once", "runAt": soon(3600)}, task(input={"a": 1}))
    started = tenant.post("schedules/by-hand/trigger", {})
    ended = eventually(lambda: _ended(tenant, started["id"]))
    assert ended["output"] == {"a": 1}
    other = tenant.post("schedules/by-hand/trigger", {"input": {"a": 2}})
    assert other["input"] == {"a": 2}
    after = tenant.get("schedules/by-hand")
    assert (after["nextRunAt"], after["runCount"]) == (made["nextRunAt"], 0)
    assert {run["trigger"] for run in runs(tenant, "by-hand")} == {"manual"}


def _ended(tenant: Tenant, id: str) -> Any:
    found = tenant.get(f"task-executions/{id}")
    return found if found["completedAt"] else None


def test_schedule_run_history(tenant: Tenant) -> None:
    create(tenant, "often", EVERY_SECOND, maxRuns=2)
    eventually(lambda: len(runs(tenant, "often", status="completed")) == 2)
    times = [run["scheduledAt"] for run in runs(tenant, "often")]
    assert times == sorted(times, reverse=True)
    page = tenant.get("schedules/often/runs", params={"limit": 1})
    rest = tenant.get("schedules/often/runs", params={"limit": 1, "cursor": page["nextCursor"]})
    assert [run["scheduledAt"] for run in page["items"] + rest["items"]] == times[:2]
    why = tenant.get("schedules/often/why", params={"at": times[0]})
    assert (why["status"], why["run"]["scheduledAt"]) == ("completed", times[0])


def test_recurring_schedule_calculates_next_run(tenant: Tenant) -> None:
    first = create(tenant, "goes-on", EVERY_SECOND)
    after = eventually(lambda: (found := tenant.get("schedules/goes-on"))["runCount"] >= 1 and found)
    assert at(after["nextRunAt"]) > at(after["lastRunAt"]) >= at(first["nextRunAt"])


def test_one_time_schedule_clears_after_execution(tenant: Tenant) -> None:
    create(tenant, "just-once", {"type": "once", "runAt": soon()})
    after = eventually(lambda: (found := tenant.get("schedules/just-once"))["runCount"] == 1 and found)
    assert (after["nextRunAt"], after["enabled"], after["status"]) == (None, False, "completed")
    enabled = tenant.http.post(tenant.path("schedules/just-once/resume"))
    problem(enabled, 409, "completed_schedule")


def overdue(quiet: Tenant, name: str, times: int) -> None:
    """Wait until so many times of the schedule have passed with nobody there to fire them."""
    first = datetime.fromisoformat(quiet.get(f"schedules/{name}")["nextRunAt"])
    until = first + timedelta(seconds=times - 1, milliseconds=10)
    eventually(lambda: quiet.call(lambda queue: queue.now()) > until)


def tick(quiet: Tenant) -> None:
    quiet.call(lambda queue: queue.run_due())


def on_time(quiet: Tenant, name: str) -> list[dict[str, Any]]:
    """The runs of the times that a tick came for before the next one was due: on a busy machine not all of them."""
    return [run for run in runs(quiet, name) if run["reason"] != "missed"]


def test_overlap_policy_skip(quiet: Tenant) -> None:
    """Nobody works here, so what is fired first stays pending and the next time overlaps it."""
    create(quiet, "overlapping", EVERY_SECOND)
    overdue(quiet, "overlapping", 1)
    tick(quiet)
    overdue(quiet, "overlapping", 1)
    tick(quiet)
    assert {(run["status"], run["reason"]) for run in on_time(quiet, "overlapping")} == {
        ("running", None),
        ("skipped", "overlap"),
    }
    assert quiet.get("schedules/overlapping")["runCount"] == 1


def test_overlap_policy_allow(quiet: Tenant) -> None:
    create(quiet, "allowed", EVERY_SECOND, overlapPolicy="allow")
    for _ in range(2):
        overdue(quiet, "allowed", 1)
        tick(quiet)
    assert [run["status"] for run in on_time(quiet, "allowed")][:2] == ["running", "running"]


def test_overlap_policy_cancel_previous(quiet: Tenant) -> None:
    create(quiet, "replacing", EVERY_SECOND, overlapPolicy="cancel_previous")
    for _ in range(2):
        overdue(quiet, "replacing", 1)
        tick(quiet)
    latest, *earlier = on_time(quiet, "replacing")
    assert latest["status"] == "running"
    assert {run["status"] for run in earlier} == {"cancelled"}
    assert quiet.get(f"task-executions/{earlier[0]['targetId']}")["status"] == "cancelled"


def test_missed_run_policy_skip(quiet: Tenant) -> None:
    create(quiet, "missed", EVERY_SECOND, misfireGraceSeconds=0, missedRunPolicy="skip")
    overdue(quiet, "missed", 2)
    tick(quiet)
    assert {(run["status"], run["reason"]) for run in runs(quiet, "missed")} == {("skipped", "missed")}
    assert quiet.get("schedules/missed")["runCount"] == 0


def test_missed_run_policy_execute_once(quiet: Tenant) -> None:
    create(quiet, "made-up-for", EVERY_SECOND, misfireGraceSeconds=0, missedRunPolicy="execute_once")
    overdue(quiet, "made-up-for", 3)
    tick(quiet)
    assert [run["status"] for run in runs(quiet, "made-up-for")].count("running") == 1
    assert quiet.get("schedules/made-up-for")["runCount"] == 1


def test_concurrent_schedulers_no_duplicate_execution(quiet: Tenant) -> None:
    create(quiet, "contended", EVERY_SECOND, overlapPolicy="allow", misfireGraceSeconds=3600)
    overdue(quiet, "contended", 1)

    async def at_once(queue: Any) -> None:
        await asyncio.gather(*(queue.run_due() for _ in range(8)))

    quiet.call(at_once)
    times = [run["scheduledAt"] for run in runs(quiet, "contended")]
    assert len(times) == len(set(times)) >= 1
    tasks = quiet.get("task-executions", params={"schedule": "contended"})["items"]
    assert sorted(task["scheduledAt"] for task in tasks) == sorted(times)
