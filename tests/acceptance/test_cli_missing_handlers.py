"""A kind that nobody handles, and a scheduler that went silent: said at once, wherever people look."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import rota as package
from command_line import bare_folder, document, rota
from records import node
from rota.engine.commands import check_fleet
from rota.engine.observe.metrics import Reading, read_gauges
from rota.engine.queries.health import Serving, check_serving
from stores import put

HEARTBEAT = timedelta(seconds=30)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    rota("migrate")
    return tmp_path


def add_node(id: str, roles: tuple[str, ...], silent_for: timedelta = timedelta(0)) -> None:
    """A node that handles `note`, as it would say so itself."""

    async def add() -> None:
        async with package.connect() as queue:
            seen: datetime = await queue.now() - silent_for
            values = {"kinds": ("note",), "started_at": seen, "seen_at": seen, "heartbeat": HEARTBEAT}
            await put(queue.store, node(id, roles=roles, **values))

    asyncio.run(add())


def look() -> tuple[Serving, Reading]:
    """What the alarms of `/health` and the metrics are made of."""

    async def ask() -> tuple[Serving, Reading]:
        async with package.connect() as queue:
            return await queue.store.read(check_serving()), await queue.store.read(read_gauges(HEARTBEAT))

    return asyncio.run(ask())


def scan() -> None:
    """What a node does every minute."""

    async def ask() -> None:
        async with package.connect() as queue:
            await queue.store.transact(check_fleet())

    asyncio.run(ask())


def findings() -> dict[str, tuple[bool, str]]:
    found = document("doctor", code=1)
    return {each["check"]: (each["ok"], each["found"]) for each in found}


def test_submit_and_schedule_create_warn_on_stderr_and_answer_as_ever() -> None:
    add_node("w", ("worker",))
    said = rota("submit -t nope")
    assert "warning: nobody handles `nope`; did you mean `note`?" in said.stderr
    assert "warning" not in said.stdout
    assert "nobody handles `nope`" in rota("schedule create s --cron '0 9 * * *' -t nope").stderr
    assert rota("submit -t note").stderr == ""


def test_the_doctor_the_alarms_and_the_metrics_see_a_kind_that_nobody_handles() -> None:
    add_node("w", ("worker",))
    rota("submit -t nope")
    ok, found = findings()["handlers"]
    assert not ok
    assert found == "nobody handles `nope`; did you mean `note`? (1 pending)"
    serving, gauges = look()
    assert serving.alarms == ["kind_unhandled"]
    assert gauges.unhandled == {("nope",): 1}
    assert gauges.nodes == {("worker", "alive"): 1}


def test_a_fleet_whose_workers_all_died_says_so_and_a_store_without_one_does_not() -> None:
    assert rota("submit -t note").stderr == ""
    add_node("w", ("worker",), silent_for=timedelta(days=1, hours=2))
    words = "no worker is alive; the last one, w, was seen 1 day 2 hours ago"
    said = rota("submit -t note")
    assert f"warning: {words}" in said.stderr
    assert words in rota("schedule create s --cron '0 9 * * *' -t note").stderr
    assert words in rota(f"status {said.stdout.split()[0]}").stdout
    assert words in rota("schedule why s '2046-01-01 09:00'").stdout
    assert findings()["handlers"] == (False, f"{words} (2 pending)")
    serving, gauges = look()
    assert serving.alarms == ["kind_unhandled"]
    assert gauges.unhandled == {("note",): 2}
    add_node("x", ("worker",))
    assert rota("submit -t note").stderr == ""
    assert look()[0].alarms == []


def test_the_doctor_the_alarms_and_the_metrics_see_a_scheduler_that_went_silent() -> None:
    rota("schedule create s --cron '0 9 * * *' -t note")
    add_node("s", ("scheduler",), silent_for=5 * HEARTBEAT)
    ok, found = findings()["nodes"]
    assert not ok
    assert found.startswith("0 alive; silent: s for ")
    serving, gauges = look()
    assert serving.alarms == ["scheduler_silent"]
    assert gauges.nodes == {("scheduler", "silent"): 1}
    scan()
    assert findings()["alarms"] == (False, "1 open: the fleet (scheduler_silent)")
    add_node("t", ("scheduler",))
    scan()
    assert look()[0].alarms == []
