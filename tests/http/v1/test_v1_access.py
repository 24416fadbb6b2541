"""Who may do what on `/api/v1`, and what its OpenAPI document says."""

from __future__ import annotations

from typing import Any, cast

import pytest

from http_world import described, problem
from rota.domain.model import Role
from rota.surfaces.http.v1 import schemas as schemas
from served import Served
from v1_world import PYTHON_TASK, Api

VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN
NEEDED = {
    ("get", "tasks"): VIEWER,
    ("post", "tasks"): ADMIN,
    ("get", "tasks/{id}"): VIEWER,
    ("put", "tasks/{id}"): ADMIN,
    ("patch", "tasks/{id}"): ADMIN,
    ("delete", "tasks/{id}"): ADMIN,
    ("post", "tasks/{id}/$execute"): OPERATOR,
    ("post", "tasks/{id}/$schedule"): ADMIN,
    ("get", "tasks/{id}/$schedules"): VIEWER,
    ("get", "tasks/{id}/$schedules/{schedule_id}"): VIEWER,
    ("patch", "tasks/{id}/$schedules/{schedule_id}"): OPERATOR,
    ("delete", "tasks/{id}/$schedules/{schedule_id}"): ADMIN,
    ("get", "jobs"): VIEWER,
    ("get", "jobs/{id}"): VIEWER,
    ("delete", "jobs/{id}"): OPERATOR,
    ("get", "jobs/{id}/$stream"): VIEWER,
    ("get", "artifacts"): VIEWER,
    ("get", "artifacts/{id}"): VIEWER,
    ("get", "artifacts/{id}/$files/{name}"): VIEWER,
}
BODIES: dict[str, Any] = {
    "tasks": PYTHON_TASK,
    "tasks/{id}": PYTHON_TASK,
    "tasks/{id}/$execute": {},
    "tasks/{id}/$schedule": {"schedule_type": "cron", "cron_expression": "@daily"},
    "tasks/{id}/$schedules/{schedule_id}": {"enabled": False},
}
ROLES = list(Role)


def body_of(method: str, path: str) -> Any:
    return None if method in ("get", "delete") else BODIES[path]


def filled(path: str) -> str:
    return path.replace("{id}", "none").replace("{schedule_id}", "none")


def test_each_role_may_do_what_it_must_and_no_more(fresh: Served) -> None:
    for role in ROLES:
        api = Api(fresh, fresh.key(role=role, name=role))
        for (method, path), needed in NEEDED.items():
            answer = api.send(method.upper(), filled(path), body_of(method, path))
            if ROLES.index(role) < ROLES.index(needed):
                problem(answer, 403, "role_needed")
            else:
                assert answer.status_code in (200, 201, 404), answer.text


def test_nobody_is_answered(fresh: Served) -> None:
    fresh.key()
    nobody = Api(fresh)
    for method, path in NEEDED:
        problem(nobody.send(method.upper(), filled(path), body_of(method, path)), 401, "unauthorized")


def test_the_tenant_is_that_of_the_key(fresh: Served) -> None:
    acme = Api(fresh, fresh.key("acme", "admin", "acme"))
    default = Api(fresh, fresh.key())
    every = Api(fresh, fresh.key("*", "admin", "all"))
    theirs, ours = acme.task(), default.task()
    theirs.schedule(schedule_type="interval", interval_seconds=3600)
    job = theirs.execute()
    assert fresh.call(lambda queue: queue.get(job), "acme").tenant == "acme"
    assert [each["id"] for each in acme.ask("GET", "tasks")["items"]] == [theirs.id]
    assert [each["id"] for each in acme.ask("GET", "jobs")["items"]] == [job]
    assert acme.ask("GET", f"jobs/{job}")["id"] == job
    for api in (default, every):  # a key to every tenant names none, and so it is the default one
        assert [each["id"] for each in api.ask("GET", "tasks")["items"]] == [ours.id]
        api.refused("GET", f"tasks/{theirs.id}", None, 404, "not_found")
        api.refused("GET", f"jobs/{job}", None, 404, "not_found")
    acme.refused("GET", f"tasks/{ours.id}", None, 404, "not_found")


def test_what_belongs_to_another_tenant_is_not_there(fresh: Served) -> None:
    theirs = fresh.call(lambda queue: queue.create_template("theirs", "backup_database"), "acme")
    task = fresh.call(lambda queue: queue.execute_template(theirs.id), "acme")
    api = Api(fresh, fresh.key())
    api.refused("GET", f"tasks/{theirs.id}", None, 404, "not_found")
    api.refused("POST", f"tasks/{theirs.id}/$execute", None, 404, "not_found")
    api.refused("POST", f"tasks/{theirs.id}/$schedule", BODIES["tasks/{id}/$schedule"], 404, "not_found")
    for path in (f"jobs/{task.id}", f"jobs/{task.id}/$stream"):
        api.refused("GET", path, None, 404, "not_found")
    assert api.ask("GET", "jobs")["total"] == api.ask("GET", "tasks")["total"] == 0


def test_an_operator_disables_and_does_not_reschedule(fresh: Served) -> None:
    task = Api(fresh, fresh.key()).task()
    made = task.schedule(schedule_type="interval", interval_seconds=3600)
    api = Api(fresh, fresh.key(role="operator", name="operator"))
    path = f"{task.path}/$schedules/{made['id']}"
    assert api.ask("PATCH", path, {"enabled": False})["enabled"] is False
    assert api.ask("PATCH", path, {"enabled": True})["enabled"] is True
    api.refused("PATCH", path, {"interval_seconds": 60}, 403, "role_needed")
    record = fresh.call(lambda queue: queue.get_schedule(made["id"]))
    assert (record.created_by, record.updated_by) == ("key:tests", "key:operator")


def operations() -> dict[tuple[str, str], Any]:
    prefix = "/api/v1/"
    return {
        (method, path.removeprefix(prefix)): operation
        for path, methods in described()["paths"].items()
        if path.startswith(prefix)
        for method, operation in methods.items()
    }


def test_every_route_is_described() -> None:
    found = operations()
    assert found.keys() == NEEDED.keys()
    for (method, path), operation in found.items():
        assert operation["summary"], path
        answers = operation["responses"]
        assert {"401", "403", "404", "422", "503"} <= answers.keys()
        good = next(answer for status, answer in answers.items() if status.startswith("2"))
        has_content = bool(good.get("content"))
        assert has_content == (method != "delete" or path.startswith("jobs")), (method, path)


EXAMPLES: list[tuple[type[schemas.SnakeBody], Any]] = [
    (model, example)
    for model in (
        schemas.TemplateBody,
        schemas.TemplatePut,
        schemas.TemplatePatch,
        schemas.ExecuteBody,
        schemas.TaskSchedulePatch,
    )
    for example in cast(Any, model.model_config["json_schema_extra"])["examples"]
]


@pytest.mark.parametrize(("model", "example"), EXAMPLES, ids=lambda each: getattr(each, "__name__", ""))
def test_examples_of_bodies_are_good_and_shown(model: type[schemas.SnakeBody], example: Any) -> None:
    model.model_validate(example)
    shown = described()["components"]["schemas"][model.__name__]
    assert example in shown["examples"]
    assert not [name for name in shown["properties"] if name != name.lower()], "snake_case is documented"


def test_no_two_shapes_share_a_name() -> None:
    """FastAPI would then show where they are written."""
    shapes = described()["components"]["schemas"]
    assert not [name for name in shapes if "__" in name]


def test_examples_of_schedules_work(still: Api) -> None:
    operation = operations()["post", "tasks/{id}/$schedule"]
    examples = operation["requestBody"]["content"]["application/json"]["examples"]
    task = still.task()
    for example in examples.values():
        task.schedule(**example["value"])
    assert {each["schedule_type"] for each in task.schedules()} == {"once", "interval", "cron"}
