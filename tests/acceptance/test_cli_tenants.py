"""Tenants and keys on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import bare_folder, complaint, document, rota
from rota.domain import keys


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    rota("migrate")
    return tmp_path


# Keys


def test_create_prints_the_key_and_nothing_else_to_stdout() -> None:
    result = rota("keys create --tenant acme --role operator --name ci")
    token = result.stdout.strip()
    assert keys.parse(token) is not None
    assert (
        result.stderr
        == "made the key ci for tenant acme, role operator: keep it now, it is not shown again\n"
    )
    listed = document("keys list --tenant acme")["keys"]
    assert [(key["name"], key["role"], key["tenant"]) for key in listed] == [("ci", "operator", "acme")]
    assert token not in json.dumps(listed)
    assert "digest" not in listed[0]
    secret = token.split("_", 2)[2].encode()
    assert not any(secret in path.read_bytes() for path in Path().glob("rota.db*"))


def test_create_as_json() -> None:
    made = document("keys create --role admin --name ops --tenant '*'")
    assert keys.parse(made["key"]) == (made["id"], made["key"].split("_", 2)[2])
    assert (made["tenant"], made["role"], made["revoked_at"]) == ("*", "admin", None)


def test_list_shows_all_tenants_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rota("keys list").stderr == (
        "no keys in sqlite:///rota.db; `rota keys create --help` shows how to make one\n"
    )
    rota("keys create --role viewer --name a")
    rota("keys create --role viewer --name b --tenant acme")
    said = rota("keys list").stdout.splitlines()
    assert said[0].split() == ["ID", "NAME", "TENANT", "ROLE", "CREATED", "BY", "STATUS"]
    assert [line.split()[1:4] for line in said[1:]] == [["b", "acme", "viewer"], ["a", "default", "viewer"]]
    assert len(document("keys list --tenant acme")["keys"]) == 1
    assert len(document("keys list --tenant '*'")["keys"]) == 2
    page = document("keys list -n 1")
    assert document(f"keys list --cursor {page['next_cursor']}")["keys"][0]["name"] == "a"
    monkeypatch.setenv("ROTA_TENANT", "acme")
    assert [key["name"] for key in document("keys list")["keys"]] == ["b"]


def test_revoke_by_id_and_by_name() -> None:
    first = document("keys create --role viewer --name ci --tenant acme")
    document("keys create --role viewer --name ci --tenant other")
    assert complaint("keys revoke ci", code=1).startswith("2 keys are called 'ci'")
    said = rota("keys revoke ci --tenant acme").stdout
    assert said == f"revoked ci ({first['id']}) of tenant acme\n"
    assert rota(f"keys revoke {first['id']}").stdout == said
    assert (
        complaint(f"keys revoke {first['id']} --tenant other", code=1) == f"there is no key '{first['id']}'"
    )
    assert document("keys revoke ci")["tenant"] == "other"
    status = [line.split(maxsplit=6)[6] for line in rota("keys list").stdout.splitlines()[1:]]
    assert all(each.startswith("revoked ") for each in status)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("keys create --name x", "missing option '--role'"),
        ("keys create --role boss --name x", "invalid value for '--role'"),
        ("keys create --role viewer --name ''", "--name: '' is not a valid name"),
        ("keys create --role viewer", "missing option '--name'"),
        ("keys revoke", "missing argument 'KEY_ID'"),
        ("keys list -n 0", "--limit: 0 is not accepted"),
    ],
)
def test_bad_keys_get_one_sentence(line: str, sentence: str) -> None:
    assert complaint(line).startswith(sentence)
    assert document("keys list")["keys"] == []


# Tenants


def test_create_and_limits() -> None:
    said = rota(
        "tenant create acme --max-schedules 100 --max-pending 10000 --min-interval 10s --max-input 512KB"
    )
    assert said.stdout == (
        "created acme: 100 schedules, 10,000 pending tasks, times at least 10s apart, input up to 512 KB\n"
    )
    shown = document("tenant limits acme")
    assert {name: shown[name] for name in ("id", "status", "schedules", "pending_tasks", "input_bytes")} == {
        "id": "acme",
        "status": "active",
        "schedules": 100,
        "pending_tasks": 10_000,
        "input_bytes": 524_288,
    }
    assert shown["minimum_interval_seconds"] == 10.0
    assert rota("tenant limits acme --max-pending none --max-input 2MB").stdout == (
        "acme: 100 schedules, no limit to pending tasks, times at least 10s apart, input up to 2 MB\n"
    )
    assert rota("tenant limits default").stdout.startswith("default: 10,000 schedules, no limit to")
    assert complaint("schedule create s -t x --interval 5s --tenant acme") == (
        "--interval: it fires every 5 s; the least here is 10 s"
    )


def test_limits_refuse_what_goes_beyond() -> None:
    rota("tenant create acme --max-schedules 1 --max-pending 1")
    rota("schedule create a -t x --interval 1h --tenant acme")
    assert complaint("schedule create b -t x --interval 1h --tenant acme", code=1) == (
        "tenant acme may have 1 schedule and has that many; delete some, or raise the limit"
    )
    rota("submit -t x --tenant acme")
    assert complaint("submit -t x --tenant acme", code=1) == (
        "tenant acme may have 1 pending task and has that many; wait until some have run, or raise the limit"
    )


def test_suspend_and_resume() -> None:
    rota("tenant create acme")
    assert rota("tenant suspend acme --note unpaid").stdout == (
        "suspended acme; `rota tenant resume acme` ends it\n"
    )
    assert complaint("submit -t x --tenant acme", code=1) == "tenant acme is suspended"
    assert rota("tenant suspend acme").stdout.startswith("suspended acme")
    assert document("tenant resume acme")["status"] == "active"
    rota("submit -t x --tenant acme")


def test_list_shows_those_that_were_never_created_too() -> None:
    assert "no tenants in " in rota("tenant list").stderr
    rota("tenant create acme --max-schedules 7")
    rota("submit -t x --tenant other")
    rota("schedule create s -t x --interval 1h --tenant acme")
    said = rota("tenant list").stdout.splitlines()
    assert [line.split()[:4] for line in said[1:]] == [
        ["acme", "active", "1", "0"],
        ["other", "active", "0", "1"],
    ]
    listed = document("tenant list")
    assert [
        (each["id"], each["schedules"], each["schedule_count"], each["open_tasks"]) for each in listed
    ] == [
        ("acme", 7, 1, 0),
        ("other", 10_000, 0, 1),
    ]


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("tenant create '*'", 2, "name: '*' is not a valid name for a tenant; accepted are 1 to 63 letters"),
        ("tenant create a/b", 2, "name: 'a/b' is not a valid name for a tenant"),
        ("tenant create a --max-schedules -1", 2, "--max-schedules: -1 is not accepted; give a whole number"),
        (
            "tenant create a --max-pending many",
            2,
            "invalid value for '--max-pending': 'many' is not a whole number",
        ),
        ("tenant create a --max-input 1TB", 2, "invalid value for '--max-input': '1TB' is not a size"),
        ("tenant create a --max-input 0", 2, "--max-input: 0 is not accepted"),
        ("tenant create a --min-interval 1ms", 2, "--min-interval: 0.001 s is too short; the least is 1 s"),
        ("tenant suspend nobody", 1, "there is no tenant 'nobody'"),
        ("tenant resume nobody", 1, "there is no tenant 'nobody'"),
        ("tenant limits nobody", 1, "there is no tenant 'nobody'"),
        ("tenant limits nobody --max-schedules 3", 1, "there is no tenant 'nobody'"),
        ("submit -t x --tenant '*'", 2, "--tenant: '*' stands for every tenant; give the name of one"),
    ],
)
def test_bad_tenants_get_one_sentence_and_change_nothing(line: str, code: int, sentence: str) -> None:
    assert complaint(line, code=code).startswith(sentence)
    assert document("tenant list") == []


def test_a_tenant_that_exists_is_not_made_anew() -> None:
    rota("tenant create acme")
    rota("tenant create acme")
    assert complaint("tenant create acme --max-schedules 3", code=1) == (
        "tenant acme exists already; change its limits, or choose another name"
    )
