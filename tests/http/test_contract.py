"""How the API answers: versions, repeats, filters, pages, both cases, bad input."""

from __future__ import annotations

from typing import Any

import pytest

from http_world import Tenant, problem
from rota.domain.model import RunStatus
from rota.surfaces.http.tenants.schemas import ScheduleBody

CRON = {"type": "recurring", "cron": "0 9 * * *", "timezone": "UTC"}
TARGET = {"type": "task", "taskKind": "echo"}
BODY = {"name": "nightly", "scheduleType": CRON, "target": TARGET}


def test_a_lost_update_is_refused(quiet: Tenant) -> None:
    made = quiet.http.post(quiet.path("schedules"), json=BODY)
    assert made.headers["etag"] == '"1"'
    assert made.headers["location"] == quiet.path(f"schedules/{made.json()['id']}")
    path = quiet.path("schedules/nightly")
    first = quiet.http.put(path, json=BODY | {"description": "mine"}, headers={"If-Match": '"1"'})
    assert (first.status_code, first.headers["etag"], first.json()["version"]) == (200, '"2"', 2)
    for second in (
        quiet.http.put(path, json=BODY | {"description": "theirs"}, headers={"If-Match": '"1"'}),
        quiet.http.put(path, json=BODY | {"description": "theirs", "version": 1}),
        quiet.http.patch(path, json={"description": "theirs", "version": 1}),
    ):
        assert problem(second, 409, "stale_version")["currentVersion"] == 2
    assert quiet.get("schedules/nightly")["description"] == "mine"
    assert quiet.http.put(path, json=BODY, headers={"If-Match": "*"}).status_code == 200
    problem(quiet.http.put(path, json=BODY, headers={"If-Match": "soon"}), 422, "invalid")


def test_what_was_read_can_be_put_back(quiet: Tenant) -> None:
    fields = {"maxRuns": 5, "jitterSeconds": 3, "metadata": {"a": 1}, "exclude": ["22:00-06:00"]}
    made = quiet.post("schedules", BODY | fields)
    assert quiet.send("PUT", "schedules/nightly", 200, json=made) == made
    assert made.items() >= fields.items()
    assert ScheduleBody.model_json_schema()["properties"].keys() <= made.keys(), "nothing is lost by it"


def test_put_replaces_and_patch_changes(quiet: Tenant) -> None:
    quiet.post("schedules", BODY | {"description": "old", "maxRuns": 5, "overlapPolicy": "allow"})
    patched = quiet.send("PATCH", "schedules/nightly", 200, json={"description": "new"})
    assert (patched["description"], patched["maxRuns"], patched["overlapPolicy"]) == ("new", 5, "allow")
    put = quiet.send("PUT", "schedules/nightly", 200, json=BODY | {"name": "renamed"})
    assert (put["description"], put["maxRuns"], put["overlapPolicy"]) == (None, None, "skip")
    assert quiet.get("schedules/renamed")["id"] == put["id"]
    quiet.get("schedules/nightly", 404)
    off = quiet.send("PATCH", "schedules/renamed", 200, json={"enabled": False})
    assert (off["enabled"], off["status"]) == (False, "paused")
    unbounded = quiet.send("PATCH", "schedules/renamed", 200, json={"maxRuns": 9})
    assert quiet.send("PATCH", "schedules/renamed", 200, json={"maxRuns": None})["maxRuns"] is None
    assert unbounded["maxRuns"] == 9


def test_the_ledger_is_asked_for_every_status(quiet: Tenant) -> None:
    quiet.post("schedules", BODY)
    quiet.post("schedules/nightly/trigger", {})
    found = {
        str(status): len(quiet.get("schedules/nightly/runs", params={"status": str(status)})["items"])
        for status in RunStatus
    }
    assert found == {str(status): int(status is RunStatus.RUNNING) for status in RunStatus}


def test_a_repeated_post_is_done_once(quiet: Tenant) -> None:
    headers = {"Idempotency-Key": "again"}
    for path, body in (
        ("schedules", BODY),
        ("schedules/nightly/trigger", {"input": 1}),
        ("task-executions", {"kind": "echo", "input": 1}),
        ("workflow-executions", {"kind": "my-workflow"}),
    ):
        key = {"Idempotency-Key": f"again {path}"}
        answers = [quiet.http.post(quiet.path(path), json=body, headers=key) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {201}, answers[0].text
        assert len({answer.json()["id"] for answer in answers}) == 1, path
    assert len(quiet.get("schedules")["items"]) == 1
    assert len(quiet.get("schedules/nightly/runs")["items"]) == 1
    quiet.post("schedules", BODY | {"name": "other"}, headers=headers)
    other = quiet.http.post(quiet.path("schedules"), json=BODY | {"name": "third"}, headers=headers)
    problem(other, 409, "idempotency_reused")
    elsewhere = quiet.http.post(
        quiet.path("task-executions"),
        json={"kind": "echo", "input": 2},
        headers={"Idempotency-Key": "again task-executions"},
    )
    problem(elsewhere, 409, "idempotency_conflict")


def test_what_was_refused_may_be_tried_again_with_the_same_key(quiet: Tenant) -> None:
    headers = {"Idempotency-Key": "k"}
    answer = quiet.http.post(quiet.path("schedules/nightly/trigger"), headers=headers)
    problem(answer, 404, "not_found")
    quiet.post("schedules", BODY)
    quiet.post("schedules/nightly/trigger", headers=headers)


def test_filters_and_pages(quiet: Tenant) -> None:
    for number in range(5):
        tags = ["even"] if number % 2 == 0 else ["odd"]
        target = {"type": "task", "taskKind": f"kind-{number}", "tags": tags}
        quiet.post("schedules", {"name": f"Report {number}", "scheduleType": CRON, "target": target})
    quiet.post("schedules/Report 3/pause", {}, 200)

    def names(**filters: Any) -> list[str]:
        return [each["name"] for each in quiet.get("schedules", params=filters)["items"]]

    assert names(tag="even") == ["Report 4", "Report 2", "Report 0"]
    assert names(target="kind-1") == ["Report 1"]
    assert names(status="paused") == ["Report 3"]
    assert names(q="rEPORT 2") == ["Report 2"]
    seen, cursor = [], None
    while True:
        page = quiet.get("schedules", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        seen += [each["name"] for each in page["items"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert seen == [f"Report {number}" for number in reversed(range(5))]


def test_schedules_are_found_and_changed_by_their_template_and_zone(quiet: Tenant) -> None:
    template = quiet.post("templates", {"alias": "ping", "kind": "ping"})["id"]
    target = {"type": "template", "templateId": template}
    quiet.post("schedules", {"name": "pings", "scheduleType": CRON, "target": target})
    paris = {**CRON, "timezone": "Europe/Paris"}
    quiet.post("schedules", {"name": "paris", "scheduleType": paris, "target": TARGET})

    def names(**filters: Any) -> list[str]:
        return [each["name"] for each in quiet.get("schedules", params=filters)["items"]]

    assert names(templateId=template) == names(templateId="ping") == ["pings"]
    assert names(templateId="other") == names(templateId="ping", timezone="Europe/Paris") == []
    long = quiet.http.get(quiet.path("schedules"), params={"templateId": "x" * 256})
    assert problem(long, 422, "invalid")["field"] == "templateId"
    assert quiet.post("bulk/schedules/pause", {"templateId": "ping"}, 200) == {"changed": 1, "left": 0}
    assert names(status="paused") == ["pings"]
    bulk = {"timezone": "Europe/Paris"}
    assert quiet.post("bulk/schedules/delete", bulk, 200) == {"changed": 1, "left": 0}
    assert names() == ["pings"]


def test_workflows_are_found_by_queue_tag_and_schedule(quiet: Tenant) -> None:
    flow = {"type": "workflow", "workflowKind": "my-workflow"}
    quiet.post("schedules", {"name": "flows", "scheduleType": CRON, "target": flow})
    started = quiet.post("schedules/flows/trigger", {})["id"]
    tagged = quiet.post("workflow-executions", {"kind": "my-workflow", "queue": "slow", "tags": ["a"]})["id"]
    quiet.post("task-executions", {"kind": "echo", "queue": "slow", "tags": ["a"]})

    def ids(**filters: Any) -> list[str]:
        return [each["id"] for each in quiet.get("workflow-executions", params=filters)["items"]]

    assert ids(queue="slow") == ids(tag="a") == [tagged]
    assert ids(schedule="flows") == [started]
    assert ids(schedule="flows", tag="a") == []
    wrong = quiet.http.get(quiet.path("workflow-executions"), params={"status": "odd"})
    assert problem(wrong, 422, "invalid")["field"] == "status"


def test_bulk_changes(quiet: Tenant) -> None:
    for number in range(3):
        target = {**TARGET, "tags": ["nightly"] if number else []}
        quiet.post("schedules", {"name": f"s{number}", "scheduleType": CRON, "target": target})
    assert quiet.post("bulk/schedules/pause", {"tag": "nightly", "note": "move"}, 200) == {
        "changed": 2,
        "left": 0,
    }
    assert quiet.get("schedules/s1")["pauseNote"] == "move"
    assert quiet.get("schedules/s0")["enabled"]
    assert quiet.post("bulk/schedules/resume", {"status": "paused"}, 200) == {"changed": 2, "left": 0}
    problem(quiet.http.post(quiet.path("bulk/schedules/delete"), json={}), 422, "invalid")
    assert quiet.post("bulk/schedules/delete", {"all": True}, 200) == {"changed": 3, "left": 0}
    assert quiet.get("schedules")["items"] == []
    assert len(quiet.get("schedules", params={"deleted": True})["items"]) == 3


def test_delete_hides_restore_brings_back_hard_removes(quiet: Tenant) -> None:
    made = quiet.post("schedules", BODY)
    quiet.send("DELETE", "schedules/nightly", 204)
    for name in ("nightly", made["id"]):
        quiet.get(f"schedules/{name}", 404)
        assert quiet.get(f"schedules/{name}/runs")["items"] == []
    assert quiet.post("schedules/nightly/restore", None, 200)["id"] == made["id"]
    quiet.send("DELETE", "schedules/nightly?hard=true", 204)
    problem(quiet.http.post(quiet.path("schedules/nightly/restore")), 404, "not_found")


def test_snake_case_is_accepted_and_camel_case_answered(quiet: Tenant) -> None:
    body = {
        "name": "snake",
        "schedule_type": {"type": "once", "run_at": "2126-01-01T00:00:00"},
        "target": {"type": "task", "task_kind": "echo", "max_retries": 2},
        "missed_run_policy": "skip",
        "misfire_grace_seconds": 5,
    }
    made = quiet.post("schedules", body)
    assert made["scheduleType"]["runAt"] == "2126-01-01T00:00:00Z"
    assert made["target"] == {"type": "task", "taskKind": "echo", "maxRetries": 2}
    assert (made["missedRunPolicy"], made["misfireGraceSeconds"]) == ("skip", 5)


def test_a_grace_that_nobody_gave_is_null(quiet: Tenant) -> None:
    body = {
        "name": "graceful",
        "scheduleType": {"type": "once", "runAt": "2126-01-01T00:00:00Z"},
        "target": {"type": "task", "taskKind": "echo"},
    }
    made = quiet.post("schedules", body)
    assert made["misfireGraceSeconds"] is None
    given = quiet.send("PATCH", "schedules/graceful", 200, json={"misfireGraceSeconds": 60})
    assert given["misfireGraceSeconds"] == 60
    kept = quiet.send("PATCH", "schedules/graceful", 200, json={"description": "other"})
    assert kept["misfireGraceSeconds"] == 60, "what is not named is not changed"
    taken = quiet.send("PATCH", "schedules/graceful", 200, json={"misfireGraceSeconds": None})
    assert taken["misfireGraceSeconds"] is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"misfireGrace": "-3s"}, "misfireGrace"),
        ({"misfire_grace": -3}, "misfire_grace"),
        ({"misfireGraceSeconds": -3}, "misfireGraceSeconds"),
        ({"misfire_grace_seconds": "x"}, "misfire_grace_seconds"),
        ({"scheduleType": {"type": "interval", "every": "-1h"}}, "scheduleType.every"),
        ({"target": {"type": "task", "taskKind": "echo", "timeout": -1}}, "target.timeout"),
        (
            {"scheduleType": {"type": "several", "timings": [{"type": "interval", "every": 0}]}},
            "scheduleType.timings.0.every",
        ),
    ],
)
def test_a_wrong_duration_is_named_as_it_was_given(quiet: Tenant, given: dict[str, Any], field: str) -> None:
    body = {
        "name": "timed",
        "scheduleType": {"type": "interval", "every": "1h"},
        "target": {"type": "task", "taskKind": "echo"},
    }
    refused = quiet.send("POST", "schedules", 422, json=body | given)
    assert refused["field"] == field
    assert refused["detail"].startswith(f"{field}: ")


def test_a_wrong_duration_of_a_task_is_named_as_it_was_given(quiet: Tenant) -> None:
    for name in ("timeout", "timeoutSeconds"):
        refused = quiet.send("POST", "task-executions", 422, json={"kind": "echo", name: -1})
        assert refused["field"] == name


def test_an_input_is_kept_as_it_is(quiet: Tenant) -> None:
    """Names inside inputs and metadata are the user's own."""
    given = {"snake_case": {"camelCase": [1, 2.5, None, "ä\u0000\U0001f600"]}, "max_runs": 1}
    made = quiet.post("task-executions", {"kind": "echo", "input": given, "metadata": {"some_key": "v"}})
    assert (made["input"], made["metadata"]) == (given, {"some_key": "v"})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nmae": "x"}, "nmae"),
        ({"name": ""}, "name"),
        ({"name": 5}, "name"),
        ({"maxRuns": "3"}, "maxRuns"),
        ({"maxRuns": 0}, "maxRuns"),
        ({"enabled": "yes"}, "enabled"),
        ({"overlapPolicy": "sometimes"}, "overlapPolicy"),
        ({"startAt": "tomorrow"}, "startAt"),
        ({"startAt": 1700000000}, "startAt"),
        ({"jitterSeconds": -1}, "jitterSeconds"),
        ({"status": "completed"}, "status"),
        ({"enabled": True, "status": "paused"}, "enabled"),
        ({"scheduleType": {"type": "hourly"}}, "scheduleType.type"),
        ({"scheduleType": {"type": "once"}}, "scheduleType.runAt"),
        ({"scheduleType": {**CRON, "every": 5}}, "scheduleType.every"),
        ({"scheduleType": {"type": "interval", "everySeconds": 0.5}}, "scheduleType.everySeconds"),
        ({"scheduleType": {"type": "after", "schedules": ["nobody"]}}, "scheduleType.schedules"),
        ({"scheduleType": {"type": "rrule", "rule": "FREQ=NEVER"}}, "scheduleType.rule"),
        ({"target": {"type": "task"}}, "target.taskKind"),
        ({"target": {"type": "task", "taskKind": "a b"}}, "target.taskKind"),
        ({"target": {**TARGET, "maxRetries": -1}}, "target.maxRetries"),
        ({"target": {**TARGET, "metadata": {"a": {"b": {"c": {"d": 1}}}}}}, "target.metadata"),
        ({"metadata": {str(n): n for n in range(101)}}, "metadata"),
    ],
)
def test_bad_input_gets_one_clear_sentence_and_changes_nothing(
    quiet: Tenant, change: Any, field: str
) -> None:
    answer = quiet.http.post(quiet.path("schedules"), json=BODY | change)
    found = problem(answer, 422, "invalid")
    assert found["field"] == field
    assert found["detail"].startswith(f"{field}: ")
    assert quiet.get("schedules")["items"] == []


def test_bodies_that_are_no_bodies(quiet: Tenant) -> None:
    path = quiet.path("schedules")
    problem(quiet.http.post(path, content=b"{"), 400, "malformed")
    problem(quiet.http.post(path, content=b"\xff\xfe"), 400, "malformed")
    problem(quiet.http.post(path, content=b"[" * 100_000), 400, "malformed")
    problem(quiet.http.post(path), 422, "invalid")
    problem(quiet.http.post(path, json=[BODY]), 422, "invalid")
    problem(quiet.http.post(path, content=b"<a/>", headers={"Content-Type": "text/xml"}), 415, "not_json")
    problem(quiet.http.post(path, content=b" " * (2 * 1024 * 1024 + 1)), 413, "body_too_large")
    problem(quiet.http.post(path, content=iter([b" " * 1024] * 3000)), 413, "body_too_large")
    problem(quiet.http.get(path, params={"q": "x" * 9000}), 414, "query_too_long")
    problem(quiet.http.get(path, headers={"X-Large": "x" * 40_000}), 431, "headers_too_large")


def test_addresses_that_are_not_there(quiet: Tenant) -> None:
    problem(quiet.http.get("/api/tenants"), 404, "not_found")
    problem(quiet.http.get(quiet.path("schedules/x/y/z")), 404, "not_found")
    answer = quiet.http.delete(quiet.path("schedules"))
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"]


def test_what_curl_sends_by_default_is_read_as_json(quiet: Tenant) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    made = quiet.http.post(quiet.path("task-executions"), content=b'{"kind": "echo"}', headers=headers)
    assert made.status_code == 201


def test_executions(quiet: Tenant) -> None:
    first = quiet.post("task-executions", {"kind": "echo", "queue": "mail", "tags": ["a"], "ttlSeconds": 60})
    second = quiet.post("task-executions", {"kind": "fail"})
    ids = [each["id"] for each in quiet.get("task-executions")["items"]]
    assert ids == [second["id"], first["id"]]
    for filters in ({"queue": "mail"}, {"tag": "a"}, {"kind": "echo"}):
        assert [each["id"] for each in quiet.get("task-executions", params=filters)["items"]] == [first["id"]]
    cancelled = quiet.post(f"task-executions/{first['id']}/cancel", {"reason": "not needed"}, 200)
    assert (cancelled["status"], cancelled["cancelReason"]) == ("cancelled", "not needed")
    assert (cancelled["cancelledBy"]) == "key:tests"
    problem(quiet.http.post(quiet.path(f"task-executions/{second['id']}/replay")), 409, "cannot_replay")
    replayed = quiet.post(f"task-executions/{first['id']}/replay", None, 200)
    assert replayed["status"] == "pending"
    problem(quiet.http.get(quiet.path(f"workflow-executions/{first['id']}")), 404, "not_found")


def test_a_workflow_can_be_looked_into_and_replayed(tenant: Tenant) -> None:
    from http_world import eventually

    made = tenant.post("workflow-executions", {"kind": "broken-workflow"})
    path = f"workflow-executions/{made['id']}"
    eventually(lambda: tenant.get(path)["status"] == "failed")
    (attempt,) = tenant.get(f"{path}/attempts")["items"]
    assert (attempt["status"], attempt["attempt"]) == ("failed", 1)
    (line,) = tenant.get(f"{path}/logs")["items"]
    assert (line["message"], line["attempt"]) == ("about to fail", 1)
    assert [each["status"] for each in tenant.get(f"{path}/history")["items"]] == [
        "pending",
        "running",
        "failed",
    ]
    assert tenant.post(f"{path}/replay", None, 200)["id"] == made["id"]
    eventually(lambda: len(tenant.get(f"{path}/attempts")["items"]) == 2)
    task = tenant.post("task-executions", {"kind": "fail"})
    parts = [("get", part) for part in ("history", "attempts", "logs", "steps")]
    for method, part in (*parts, ("post", "replay")):
        answer = tenant.http.request(method, tenant.path(f"workflow-executions/{task['id']}/{part}"))
        problem(answer, 404, "not_found")


def test_a_workflow_gets_signals_and_shows_its_steps(tenant: Tenant) -> None:
    from http_world import eventually

    made = tenant.post("workflow-executions", {"kind": "approval"})
    path = f"workflow-executions/{made['id']}"
    eventually(lambda: tenant.get(path)["waitsFor"] == ["receive:approved"])
    headers = {"Idempotency-Key": "one"}
    for _ in range(2):
        sent = tenant.http.post(
            tenant.path(f"{path}/signal"), json={"name": "approved", "payload": "by Ada"}, headers=headers
        )
        assert (sent.status_code, sent.json()["unreadSignals"]) == (200, 1)
    done = eventually(lambda: (found := tenant.get(path))["status"] == "completed" and found)
    assert (done["output"], done["workflowVersion"], done["waitsFor"]) == (["asked", "by Ada"], 1, [])
    steps = tenant.get(f"{path}/steps")["items"]
    assert [(each["key"], each["kind"], each["status"]) for each in steps] == [
        ("ask", "step", "completed"),
        ("receive:approved", "receive", "completed"),
    ]
    problem(tenant.http.post(tenant.path(f"{path}/signal"), json={"name": "x"}), 409, "already_ended")
    problem(tenant.http.post(tenant.path(f"{path}/signal"), json={"payload": 1}), 422, "invalid")
    failed = tenant.post("workflow-executions", {"kind": "broken-workflow"})["id"]
    eventually(lambda: tenant.get(f"workflow-executions/{failed}")["status"] == "failed")
    again = tenant.http.post(
        tenant.path(f"workflow-executions/{failed}/replay"), json={"fromStep": "nothing"}
    )
    problem(again, 409, "no_such_step")


def test_who_triggered_it_is_in_the_history_of_the_schedule(quiet: Tenant) -> None:
    quiet.post("schedules", BODY)
    client = quiet.server.client(quiet.server.key(quiet.name, "operator", "ann"))
    task = client.post(quiet.path("schedules/nightly/trigger"), json={"input": 5}).json()
    created, triggered = quiet.get("schedules/nightly/history")["items"]
    assert (created["action"], created["actor"]) == ("created", "key:tests")
    assert (triggered["action"], triggered["actor"]) == ("triggered", "key:ann")
    assert triggered["detail"] == f"task {task['id']}"


def test_what_was_logged_and_tried(tenant: Tenant) -> None:
    from http_world import eventually

    made = tenant.post("task-executions", {"kind": "fail"})
    path = f"task-executions/{made['id']}"
    failed = eventually(lambda: (found := tenant.get(path))["status"] == "failed" and found)
    assert (failed["error"]["type"], failed["error"]["message"]) == ("RuntimeError", "as asked")
    assert "as asked" in failed["error"]["traceback"]
    (attempt,) = tenant.get(f"{path}/attempts")["items"]
    assert (attempt["status"], attempt["attempt"]) == ("failed", 1)
    assert tenant.get(f"{path}/logs") == {"items": []}


def test_backfill_is_planned_begun_and_cancelled(quiet: Tenant) -> None:
    quiet.post("schedules", BODY)
    path = quiet.path("schedules/nightly/backfill")
    operator = quiet.server.client(quiet.server.key(quiet.name, "operator", "ann"))
    viewer = quiet.server.client(quiet.server.key(quiet.name, "viewer", "bob"))
    asked = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-04T00:00:00Z"}
    assert viewer.post(path, json=asked).status_code == 403
    planned = operator.post(path, json={**asked, "dryRun": True}).json()
    assert (planned["total"], planned["started"], planned["passed"]) == (3, 3, 0)
    assert quiet.get("schedules/nightly")["backfill"] is None
    once = {"Idempotency-Key": "b1"}
    begun = operator.post(path, json=asked, headers=once)
    assert (begun.status_code, begun.json()["status"], begun.json()["createdBy"]) == (
        200,
        "running",
        "key:ann",
    )
    assert operator.post(path, json=asked, headers=once).json() == begun.json()
    assert operator.post(path, json=asked).status_code == 409
    assert operator.delete(path).json()["status"] == "cancelled"
    assert operator.post(path, json={**asked, "overlapPolicy": "skip"}).status_code == 422
