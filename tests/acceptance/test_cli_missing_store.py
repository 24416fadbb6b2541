"""Commands that need a store which is not there: they say which one, and make none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

import s3_server
from command_line import all_commands, bare_folder, complaint, document, rota
from postgres_server import databases
from rota.stores.bucket.service.address import BucketAddress

ID = "01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e"
NEEDS_A_STORE = {
    "status": ID,
    "list": "",
    "list --count": "",
    "history": ID,
    "cancel": ID,
    "cancel --all": "",
    "replay": ID,
    "archive": ID,
    "wait": ID,
    "tail --no-follow": "",
    "tail": "",
    "schedule list": "",
    "schedule show": "nightly",
    "schedule runs": "nightly",
    "schedule preview": "nightly",
    "schedule why": "nightly 2026-03-08T03:00",
    "schedule history": "nightly",
    "schedule update": "nightly --priority 1",
    "schedule pause": "nightly",
    "schedule resume": "nightly",
    "schedule enable": "nightly",
    "schedule disable": "nightly",
    "schedule trigger": "nightly",
    "schedule delete": "nightly",
    "schedule restore": "nightly",
    "schedule backfill": "nightly --from 2026-01-01 --dry-run",
    "calendar list": "",
    "calendar show": "office",
    "calendar update": "office --timezone UTC",
    "calendar delete": "office",
    "forecast": "",
    "spread": "--dry-run",
    "plan": "declared.json",
    "export": "",
    "artifacts": ID,
    "artifact get": f"{ID} report.txt",
    "template list": "",
    "template show": "backup",
    "template update": "backup --timeout 1h",
    "template execute": "backup",
    "template delete": "backup",
    "workflow list": "",
    "workflow show": ID,
    "workflow signal": f"{ID} paid",
    "workflow cancel": ID,
    "workflow replay": ID,
    "workers": "",
    "limits": "",
    "queue list": "",
    "queue pause": "mail",
    "queue resume": "mail",
    "queue drain": "mail",
    "queue limit": "mail",
    "alarms": "",
    "alarm-rules": "",
    "keys list": "",
    "keys revoke": "ci",
    "tenant list": "",
    "tenant limits": "acme",
    "tenant limits --max-schedules 5": "acme",
    "tenant suspend": "acme",
    "tenant resume": "acme",
}
NEEDS_NONE = {"preview", "config", "completion", "import crontab"}
MAKES_ONE = {
    "submit",
    "workflow start",
    "schedule create",
    "calendar create",
    "template create",
    "tenant create",
    "keys create",
    "migrate",
    "apply",
}
RUNS = {"up", "worker", "serve", "scheduler run", "monitor", "tick"}
LOOKS_ITSELF = {"doctor"}


@pytest.fixture(params=["sqlite", "sqlite in no folder", "empty sqlite", "postgres", "s3", "folder"])
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The address of a store that is not there."""
    bare_folder(monkeypatch, tmp_path)
    match request.param:
        case "sqlite":
            address = "sqlite:///rota.db"
        case "sqlite in no folder":
            address = "sqlite:///none/rota.db"
        case "empty sqlite":
            Path("rota.db").touch()
            address = "sqlite:///rota.db"
        case "postgres":
            address = databases().empty()
        case "s3":
            address = s3_server.url()
        case _:
            address = (tmp_path / "none" / "bucket").as_uri()
    monkeypatch.setenv("ROTA_STORE", address)
    return address


def contents(address: str) -> list[str]:
    """Whatever is there."""
    if address.startswith("postgresql:"):
        return asyncio.run(_schemas(address))
    if address.startswith("s3:"):
        return sorted(BucketAddress.parse(address).requests().list("", None))
    return sorted(f"{path} {path.stat().st_size}" for path in Path().rglob("*"))


async def _schemas(address: str) -> list[str]:
    connection = await asyncpg.connect(address)
    try:
        found = await connection.fetch("select nspname from pg_namespace order by 1")
        return [row["nspname"] for row in found if not row["nspname"].startswith("pg_t")]
    finally:
        await connection.close()


def test_no_command_is_forgotten() -> None:
    needs = {" ".join(part for part in line.split() if part[0] not in "-5") for line in NEEDS_A_STORE}
    assert all_commands() == needs | NEEDS_NONE | MAKES_ONE | RUNS | LOOKS_ITSELF


def test_commands_that_need_what_is_there_make_no_store_and_name_it(missing: str) -> None:
    Path("declared.json").write_text('{"schedules": {}}')
    before = contents(missing)
    shown = missing.partition("?")[0]
    for line, names in NEEDS_A_STORE.items():
        said = complaint(f"{line} {names}", code=1)
        assert said.startswith("there is no store at "), line
        assert shown in said, line
        assert said.endswith(": make one with `rota migrate`, or name another with --store"), line
    assert contents(missing) == before


def test_neither_does_the_doctor_nor_the_plan_of_a_migration(missing: str) -> None:
    before = contents(missing)
    for line in ("doctor", "doctor --deep", "doctor --repair"):
        findings = document(line, code=1)
        assert findings[0]["check"] == "store"
        assert not findings[0]["ok"]
        assert findings[0]["found"].startswith(f"there is no store at {missing.partition('?')[0]}")
        assert "rota migrate" in findings[0]["advice"]
        assert all(finding["ok"] for finding in findings[1:])
    rota("migrate --plan")
    assert contents(missing) == before


def test_migrate_makes_one_with_nothing_in_it(missing: str) -> None:
    if "none" in missing and missing.startswith("sqlite:"):
        Path("none").mkdir()
    rota("migrate")
    assert "no tasks in " in rota("list").stderr
    assert document("doctor")[0]["ok"]


def test_another_program_s_file_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sqlite3

    bare_folder(monkeypatch, tmp_path)
    with sqlite3.connect("shop.db") as database:
        database.execute("create table orders (id)")
    database.close()
    before = Path("shop.db").read_bytes()
    complaint("list --store sqlite:///shop.db", code=1)
    rota("doctor --store sqlite:///shop.db", code=1)
    assert Path("shop.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["shop.db"]
