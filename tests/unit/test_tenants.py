"""Tenants: names, limits, suspension. And templates: what they accept, and what they submit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.domain import template, tenants
from rota.domain.errors import Invalid, Refused
from rota.domain.model import Limits, Runtime, Template, Tenant, TenantStatus

NOW = datetime(2026, 1, 28, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def acme(**limits: Any) -> Tenant:
    return tenants.make("acme", limits, NOW)


@pytest.mark.parametrize("name", ["a", "acme", "Acme-2.eu", "_x", "0", "a" * 63])
def test_names_that_a_tenant_may_have(name: str) -> None:
    assert tenants.make(name, {}, NOW).id == name


@pytest.mark.parametrize(
    "name", ["", "*", "a b", "a/b", "..", ".", "-x", "ä", "a" * 64, "a%2f", "a\n", None, 3]
)
def test_names_that_no_new_tenant_may_have(name: Any) -> None:
    with pytest.raises(Invalid, match=r"^name: .* is not a valid name for a tenant; accepted are 1 to 63 "):
        tenants.make(name, {}, NOW)


def test_a_name_that_is_used_may_be_anything_but_a_star() -> None:
    assert tenants.check_tenant("a b/ä") == "a b/ä"
    with pytest.raises(Invalid, match=r"^tenant: '\*' stands for every tenant; give the name of one$"):
        tenants.check_tenant("*")


def test_only_the_limits_that_are_named_change() -> None:
    one = acme(schedules=5)
    assert one.limits == Limits(schedules=5)
    two = tenants.with_limits(one, {"pending_tasks": 9, "minimum_interval": 10})
    assert two.limits == Limits(schedules=5, pending_tasks=9, minimum_interval=timedelta(seconds=10))
    three = tenants.with_limits(two, {"pending_tasks": None})
    assert three.limits.pending_tasks is None
    assert tenants.with_limits(three, {"schedules": 5}) is three
    assert tenants.with_limits(three, {}) is three


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (
            {"tasks": 1},
            "tasks: there is no such limit; accepted are schedules, pending_tasks, minimum_interval, input",
        ),
        ({"schedules": -1}, "schedules: -1 is not accepted; give a whole number from 0 to "),
        ({"schedules": None}, "schedules: None is not accepted"),
        ({"schedules": True}, "schedules: True is not accepted"),
        ({"pending_tasks": "many"}, "pending_tasks: 'many' is not accepted"),
        ({"minimum_interval": 0.5}, "minimum_interval: 0.5 s is too short; the least is 1 s"),
        ({"input_bytes": 0}, "input_bytes: 0 is not accepted"),
        ({"input_bytes": 10**12}, "input_bytes: 1000000000000 is not accepted"),
    ],
)
def test_limits_that_are_refused(limits: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        tenants.with_limits(acme(), limits)
    assert str(refused.value).startswith(sentence)


def test_a_suspended_tenant_may_not_act() -> None:
    assert tenants.limits_of(acme(schedules=3)).schedules == 3
    away = tenants.suspend(acme())
    assert away.status is TenantStatus.SUSPENDED
    assert tenants.suspend(away) is away
    with pytest.raises(Refused) as refused:
        tenants.limits_of(away)
    assert (refused.value.code, str(refused.value)) == ("tenant_suspended", "tenant acme is suspended")
    back = tenants.resume(away)
    assert tenants.limits_of(back) == Limits()
    assert tenants.resume(back) is back


@pytest.mark.parametrize(
    ("what", "limit", "wanted", "sentence"),
    [
        (
            "schedules",
            10_000,
            1,
            "tenant acme may have 10,000 schedules and has that many; delete some, or raise the limit",
        ),
        (
            "pending tasks",
            1,
            1,
            "tenant acme may have 1 pending task and has that many; wait until some have run, or raise the limit",
        ),
        (
            "pending tasks",
            5,
            3,
            "tenant acme may have 5 pending tasks and has no room for 3 more; wait until some have run, or raise"
            " the limit",
        ),
    ],
)
def test_what_is_said_of_a_limit(what: str, limit: int, wanted: int, sentence: str) -> None:
    refused = tenants.limit_reached("acme", what, limit, wanted)
    assert (refused.code, str(refused)) == ("limit_reached", sentence)


def test_the_audit_shows_every_limit() -> None:
    assert tenants.as_facts(acme(schedules=7)) == {
        "id": "acme",
        "version": 0,
        "status": "active",
        "limits": {"schedules": 7, "pending_tasks": None, "minimum_interval": "PT1S", "input_bytes": 1048576},
        "created_at": "2026-01-28T12:00:00Z",
    }


# Templates


def backup(**fields: Any) -> Template:
    given = {"alias": "nightly backup", "kind": "backup", **fields}
    return template.create("t1", given, tenant="acme", now=NOW, limits=Limits())


def test_a_template_keeps_what_it_was_given() -> None:
    made = backup(
        parameters={"full": True},
        queue="slow",
        max_retries=2,
        timeout=60,
        enabled=False,
        tags=["b", "a"],
        command="x",
    )
    assert (made.alias, made.kind, made.runtime) == ("nightly backup", "backup", Runtime.PYTHON)
    assert (made.queue, made.max_retries, made.timeout) == ("slow", 2, timedelta(seconds=60))
    assert (made.parameters, made.enabled, made.command) == ({"full": True}, False, "x")
    assert set(made.tags) == {"a", "b"}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"runtime": "rust"}, "runtime: 'rust' is not known; accepted are python, shell, http"),
        (
            {"kind": "rota.shell"},
            "kind: 'rota.shell' is for shell templates; give runtime='shell' and a command",
        ),
        ({"runtime": "shell"}, "command: it is missing; a shell template says what to run"),
        ({"kind": "a b"}, "kind: 'a b' is not a valid name"),
        ({"alias": ""}, "alias: '' is not a valid name"),
        ({"parameters": [1]}, "parameters: [1] is not a dict"),
        ({"parameters": {"a": float("nan")}}, "parameters: nan is not JSON"),
        ({"parameters": {"a": "x" * 2_000_000}}, "parameters: 2,000,008 bytes are too many"),
        ({"queue": None}, "queue: None is not a text"),
        ({"max_retries": -1}, "max_retries: -1 is not accepted"),
        ({"timeout": 0}, "timeout: 0 s is too short"),
        ({"enabled": 1}, "enabled: 1 is not accepted"),
        ({"tags": 5}, "tags: "),
        ({"id": "x"}, "id: a template has no such field; accepted are alias, command, "),
        ({"version": 3}, "version: a template has no such field"),
    ],
)
def test_what_a_template_refuses(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        backup(**fields)
    assert str(refused.value).startswith(sentence)
    with pytest.raises(Invalid) as refused:
        template.edit(backup(), fields, LATER, Limits())
    assert str(refused.value).startswith(sentence)


def test_a_template_needs_an_alias_and_a_kind() -> None:
    with pytest.raises(
        Invalid, match=r"^kind: it is missing; a template has an alias, and a kind or a command$"
    ):
        template.create("t1", {"alias": "a"}, tenant="acme", now=NOW, limits=Limits())
    with pytest.raises(
        Invalid, match=r"^kind: it is missing: .*; give kind='backup', or runtime='shell' for a"
    ):
        template.create("t1", {"alias": "a", "command": "backup"}, tenant="acme", now=NOW, limits=Limits())


def test_an_edit_that_changes_nothing_is_none() -> None:
    made = backup(parameters={"n": 1}, max_retries=3)
    assert template.edit(made, {"parameters": {"n": 1}, "queue": "default"}, LATER, Limits()) is made
    assert template.edit(made, {"parameters": {"n": True}}, LATER, Limits()).parameters["n"] is True
    edited = template.edit(made, {"max_retries": None}, LATER, Limits())
    assert (edited.max_retries, edited.updated_at, edited.created_at) == (None, LATER, NOW)


def test_running_it_lays_the_input_over_the_parameters() -> None:
    asked = template.submission(backup(parameters={"a": 1, "b": 2}, queue="slow"), {"b": 3})
    assert (asked.kind, asked.queue, asked.input) == ("backup", "slow", {"a": 1, "b": 3})
    assert asked.metadata == {"template_id": "t1"}
    assert template.submission(backup(), None).input == {}
    with pytest.raises(Invalid, match=r"^input: 5 cannot be laid over a template's parameters; give a dict$"):
        template.submission(backup(), 5)


def test_one_that_cannot_run_says_why() -> None:
    template.check_runs(backup())
    with pytest.raises(Refused, match=r"^template nightly backup is disabled; enable it first$"):
        template.check_runs(backup(enabled=False))
