"""Durations in bodies: a number of seconds or a text such as 5m, under the name with its unit or without."""

from __future__ import annotations

from typing import Any

import pytest

from http_world import Tenant, described
from rota.domain.options import AlarmOptions, Duration, PolicyOptions, TaskOptions, options_of, value_type
from rota.surfaces.http.fields import camel
from rota.surfaces.http.v1 import schemas as v1

PYTHON_TASK = {"command": "echo", "task_type": "python"}

OF_TASKS = [name for name in options_of(TaskOptions) if value_type(TaskOptions, name) == Duration]
OF_SCHEDULES = [
    name
    for name in ("misfire_grace", "catch_up_window", "offset", "jitter", *options_of(AlarmOptions))
    if value_type(PolicyOptions, name) == Duration
]
FORMS: list[tuple[str, Any]] = [
    ("Seconds", 300),
    ("Seconds", "5m"),
    ("", "5m"),
    ("", 300),
    ("_seconds", "5m"),
]


def schedule(**more: Any) -> dict[str, Any]:
    when = more.pop("scheduleType", {"type": "interval", "every": "1h"})
    target = {"type": "task", "taskKind": "echo", **more.pop("target", {})}
    return {"name": "s", "scheduleType": when, "target": target, **more}


def named(option: str, suffix: str) -> str:
    return f"{option}_seconds" if suffix == "_seconds" else f"{camel(option)}{suffix}"


@pytest.mark.parametrize(("suffix", "given"), FORMS)
def test_every_duration_of_a_schedule_and_of_its_target(quiet: Tenant, suffix: str, given: object) -> None:
    options = {named(option, suffix): given for option in OF_SCHEDULES}
    target = {named(option, suffix): given for option in OF_TASKS}
    sent = quiet.http.post(quiet.path("schedules"), json=schedule(**options, target=target))
    assert sent.status_code == 201, sent.text
    made = sent.json()
    assert {option: made[f"{camel(option)}Seconds"] for option in OF_SCHEDULES} == dict.fromkeys(
        OF_SCHEDULES, 300
    )
    assert {option: made["target"][f"{camel(option)}Seconds"] for option in OF_TASKS} == dict.fromkeys(
        OF_TASKS, 300
    )
    assert made["scheduleType"]["everySeconds"] == 3600


@pytest.mark.parametrize(("suffix", "given"), FORMS)
def test_the_durations_of_a_submission(quiet: Tenant, suffix: str, given: object) -> None:
    body = {named(option, suffix): given for option in ("timeout", "ttl", "unique_for")}
    policy = {"retryPolicy": {named("initial", suffix): given, named("maximum", suffix): "1h"}}
    sent = quiet.http.post(
        quiet.path("task-executions"), json={"kind": "echo", "input": {}, **body, **policy}
    )
    assert sent.status_code == 201, sent.text
    made = sent.json()
    assert made["timeoutSeconds"] == 300
    assert (made["retryPolicy"]["initialSeconds"], made["retryPolicy"]["maximumSeconds"]) == (300, 3600)


def test_null_leaves_a_part_of_a_retry_policy_as_it_is_by_default(quiet: Tenant) -> None:
    policy = {"initialSeconds": None, "maximumSeconds": None, "multiplier": None, "jitter": 0.5}
    sent = quiet.http.post(quiet.path("task-executions"), json={"kind": "echo", "retryPolicy": policy})
    assert sent.status_code == 201, sent.text
    default = {"initialSeconds": 1, "multiplier": 2, "maximumSeconds": 60}
    assert sent.json()["retryPolicy"] == {**default, "jitter": 0.5}
    snake = {"initial_seconds": None, "maximum_seconds": None}
    made = quiet.http.post("/api/v1/tasks", json={**PYTHON_TASK, "retry_policy": snake})
    assert made.status_code == 201, made.text
    assert made.json()["retry_policy"]["initial_seconds"] == 1


@pytest.mark.parametrize("name", ["timeout_seconds", "timeoutSeconds", "timeout"])
def test_the_durations_of_a_stored_task_and_its_interval(quiet: Tenant, name: str) -> None:
    body = v1.TemplateBody.model_validate({**PYTHON_TASK, name: "5m", "ttl": "90s"})
    assert (body.timeout_seconds, body.ttl_seconds) == (300, 90)  # type: ignore[attr-defined]  # made from the table
    sent = quiet.http.post("/api/v1/tasks", json={**PYTHON_TASK, name: "5m"})
    assert sent.status_code == 201, sent.text
    assert sent.json()["timeout_seconds"] == 300
    address = f"/api/v1/tasks/{sent.json()['id']}/$schedule"
    for field, value, seconds in (
        ("interval_seconds", "2h", 7200),
        ("interval", 60, 60),
        ("interval", "90s", 90),
    ):
        planned = quiet.http.post(address, json={"schedule_type": "interval", field: value})
        assert planned.json()["interval_seconds"] == seconds, planned.text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("5x", "'5x' is not a duration; accepted are whole numbers with ms, s, m, h, d or w"),
        ("300", "'300' is not a duration"),
        ("-5m", "'-5m' is not a duration"),
        ("", "'' is not a duration"),
        ("9999999w", "is too large; the most is 3,153,600,000"),
        ("0s", "is too small; the least is 0.001"),
        (True, "true is not a duration; give a number of seconds, or a text such as 5m"),
        ([5], "[5] is not a duration; give a number of seconds"),
        ({}, "{} is not a duration"),
    ],
)
def test_what_is_no_duration_gets_one_sentence(quiet: Tenant, given: object, words: str) -> None:
    sent = quiet.http.post(quiet.path("task-executions"), json={"kind": "echo", "timeoutSeconds": given})
    assert sent.status_code == 422
    assert sent.json()["detail"].startswith("timeoutSeconds: ")
    assert words in sent.json()["detail"]
    stored = quiet.http.post("/api/v1/tasks", json={**PYTHON_TASK, "timeout_seconds": given})
    assert stored.json()["detail"].startswith("timeout_seconds: ")
    assert words in stored.json()["detail"]


def test_a_duration_that_is_given_twice_is_refused(quiet: Tenant) -> None:
    body = {"kind": "echo", "timeout": "5m", "timeoutSeconds": 300}
    sent = quiet.http.post(quiet.path("task-executions"), json=body)
    assert sent.json()["detail"] == "timeout: it is given twice, once in seconds; give it once"


def test_the_description_says_both_for_every_duration_of_every_body() -> None:
    bodies = {
        body["schema"]["$ref"].rpartition("/")[2]
        for path in described()["paths"].values()
        for operation in path.values()
        for body in operation.get("requestBody", {}).get("content", {}).values()
        if "$ref" in body["schema"]
    }
    assert {"ScheduleBody", "ExecutionBody", "TemplateBody", "ReplayBody"} <= bodies
    found = 0
    for shape, schema in described()["components"]["schemas"].items():
        if not shape.endswith(("Body", "V1", "Patch", "Every", "AfterOthers", "Put")):
            continue
        for name, field in schema.get("properties", {}).items():
            if (
                name.endswith(("Seconds", "_seconds"))
                and field.get("type") != "null"
                and not field.get("readOnly")
            ):
                types = {each.get("type") for each in field["anyOf"]} - {"null"}
                assert types in ({"number", "string"}, {"integer", "string"}), (shape, name)
                found += 1
    assert found > 30
