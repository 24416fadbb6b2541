"""`test_schedule_validation` of document 004, over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from v1_world import Api

LATER = "2099-10-20T14:00:00Z"


def refused(api: Api, body: Any) -> Any:
    return api.refused("POST", f"{api.task().path}/$schedule", body)


def test_once_schedule_requires_run_at(still: Api) -> None:
    found = refused(still, {"schedule_type": "once", "enabled": True})
    assert (found["field"], found["detail"]) == ("run_at", "run_at required for 'once' schedules")


def test_interval_schedule_requires_interval_seconds(still: Api) -> None:
    found = refused(still, {"schedule_type": "interval", "interval_seconds": None})
    assert found["field"] == "interval_seconds"
    assert found["detail"] == "interval_seconds required for 'interval' schedules"


@pytest.mark.parametrize("seconds", [0, -1, 0.5, "300", True, 10**12])
def test_interval_seconds_is_a_whole_number_of_at_least_one(still: Api, seconds: Any) -> None:
    found = refused(still, {"schedule_type": "interval", "interval_seconds": seconds})
    assert found["field"] == "interval_seconds"


@pytest.mark.parametrize(
    ("kind", "name"),
    [("cron", "cron"), ("interval", "every_seconds"), ("interval", "timezone"), ("once", "runsAt")],
)
def test_an_unknown_name_is_why_another_is_missing(still: Api, kind: str, name: str) -> None:
    assert refused(still, {"schedule_type": kind, name: "0 2 * * *"})["field"] == name


def test_cron_schedule_requires_valid_cron_expression(still: Api) -> None:
    found = refused(still, {"schedule_type": "cron"})
    assert found["field"] == "cron_expression"
    assert found["detail"] == "cron_expression required for 'cron' schedules"
    made = still.task().schedule(schedule_type="cron", cron_expression="0 2 * * *")
    assert made["cron_expression"] == "0 2 * * *"


@pytest.mark.parametrize("line", ["invalid", "99 2 * * *", "0 2 * *", "0 2 * * * * * *", "", "0 0 30 2 *", 5])
def test_invalid_cron_expressions_are_rejected(still: Api, line: Any) -> None:
    found = refused(still, {"schedule_type": "cron", "cron_expression": line})
    assert found["field"] == "cron_expression"
    assert found["detail"].startswith("cron_expression")


def test_past_timestamps_are_rejected_for_once_schedules(still: Api) -> None:
    for past in ("2025-10-20T14:00:00Z", (still.now() - timedelta(seconds=1)).isoformat()):
        found = refused(still, {"schedule_type": "once", "run_at": past})
        assert (found["field"], found["detail"]) == ("run_at", "run_at must be in the future")


@pytest.mark.parametrize("when", ["tomorrow", "2099-10-20", 1760968800, "2099-13-20T14:00:00Z", True])
def test_what_is_no_time_is_rejected(still: Api, when: Any) -> None:
    assert refused(still, {"schedule_type": "once", "run_at": when})["field"] == "run_at"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"schedule_type": "once", "run_at": LATER, "interval_seconds": 60}, "interval_seconds"),
        (
            {"schedule_type": "interval", "interval_seconds": 60, "cron_expression": "@daily"},
            "cron_expression",
        ),
        ({"schedule_type": "cron", "cron_expression": "@daily", "runAt": LATER}, "run_at"),
        ({"schedule_type": "cron", "cron_expression": "@daily", "timezone": "Mars/Olympus"}, "timezone"),
        ({"schedule_type": "interval", "interval_seconds": 60, "timezone": "UTC"}, "timezone"),
        ({"schedule_type": "interval", "interval_seconds": 60, "enabled": "yes"}, "enabled"),
        ({"schedule_type": "interval", "interval_seconds": 60, "every": 60}, "every"),
        ({"schedule_type": "daily", "run_at": LATER}, "schedule_type"),
        ({"schedule_type": ["once"], "run_at": LATER}, "schedule_type"),
        ({"run_at": LATER}, "schedule_type"),
        ([], "body"),
        ("null", "body"),
    ],
)
def test_the_field_at_fault_is_named(still: Api, body: Any, field: str) -> None:
    assert refused(still, body)["field"] == field


def test_fields_of_other_types_may_be_null_and_both_cases_are_taken(still: Api) -> None:
    """As whoever sends the document's own model would."""
    task = still.task()
    made = task.schedule(
        schedule_type="cron", run_at=None, interval_seconds=None, cron_expression="@daily", enabled=True
    )
    again = task.schedule(scheduleType="cron", cronExpression="@daily")
    assert {
        **again,
        "id": made["id"],
        "created_at": made["created_at"],
        "updated_at": made["updated_at"],
    } == made


def test_a_time_without_a_zone_is_in_utc(still: Api) -> None:
    made = still.task().schedule(schedule_type="once", run_at="2099-10-20T14:00:00")
    assert made["run_at"] == made["next_run_at"] == LATER
    east = still.task().schedule(schedule_type="once", run_at="2099-10-20T16:00:00+02:00")
    assert east["run_at"] == LATER


def test_what_is_not_json_is_said_to_be_so(still: Api) -> None:
    still.refused("POST", f"{still.task().path}/$schedule", "{schedule_type", 400, "malformed")
