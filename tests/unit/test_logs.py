"""Logs: JSON where nobody looks, lines in a terminal, the ids of what they are about, and no secrets."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.domain.errors import Unavailable
from rota.engine.observe.log import FIELDS, log_observation
from rota.engine.observe.telemetry import (
    ClockJumped,
    ClockSetBack,
    HookFailed,
    LoopBlocked,
    LoopFailed,
    Observation,
)
from rota.surfaces.cli.process.monitoring import logging_to, without_secrets
from worlds import MINUTE, SECOND, STORES, World, play


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    assert root.handlers == handlers
    assert root.level == level


def documents(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_records_are_json_where_nobody_looks(stream: io.StringIO) -> None:
    log = logging.getLogger("shop.mail")
    with logging_to("info", stream):
        log.debug("not this")
        log.info("sent %d", 3, extra={"order": 7, "password": "hunter2", "where": Path("/x")})
        try:
            raise ValueError("postgresql://ada:sesame@db/shop")
        except ValueError:
            log.exception("failed\nbadly")
    first, second = documents(stream)
    assert first.pop("at").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "shop.mail",
        "message": "sent 3",
        "order": 7,
        "password": "…",
        "where": "/x",
    }
    assert second["level"] == "error"
    assert "ValueError: postgresql://ada:…@db/shop" in second["exception"]
    assert "sesame" not in stream.getvalue()


def test_records_are_lines_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    with logging_to("debug", terminal):
        logging.getLogger("shop").warning("careful", extra={"task": "t1", "tenant": "acme"})
    line = terminal.getvalue()
    assert "shop: careful  [tenant=acme task=t1]" in line
    assert "\x1b[33mwarning" in line


def test_a_terminal_without_colours_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    with logging_to("warning", terminal):
        logging.getLogger("shop").warning("careful")
    assert "warning shop: careful" in terminal.getvalue()
    assert "\x1b" not in terminal.getvalue()


def test_the_level_is_warning_unless_given(stream: io.StringIO) -> None:
    with logging_to(None, stream):
        logging.getLogger("shop").info("no")
        logging.getLogger("shop").warning("yes")
    assert [each["message"] for each in documents(stream)] == ["yes"]


def test_some_loggers_can_be_muted(stream: io.StringIO) -> None:
    with logging_to("info", stream, muted=("rota",)):
        logging.getLogger("rota").error("the feed has said so")
        logging.getLogger("shop").error("said by nobody else")
    assert [each["logger"] for each in documents(stream)] == ["shop"]


def test_what_the_engine_logs_names_what_it_is_about(tmp_path: Path, stream: io.StringIO) -> None:
    async def scenario(world: World) -> None:
        @world.app.task("work", max_retries=0)
        async def work() -> None:
            raise ValueError("no")

        schedule = await world.schedule("s", interval=MINUTE)
        async with world.running(worker_id="w1"):
            await world.at(MINUTE + SECOND)
        (run,) = await world.ledger("s")
        fired, started, moved = documents(stream)
        about = {"tenant": "default", "schedule": schedule.id, "run": run.id, "task": run.target_id}
        assert fired["message"].startswith("schedule s, ")
        assert fired["schedule_key"] == "s"
        for document in (fired, started, moved):
            assert about.items() <= document.items()
        for document in (started, moved):
            assert document["worker"] == "w1"
            assert document["task_type"] == "work"
            assert document["attempt"] == 1
        assert (started["level"], moved["level"]) == ("debug", "warning")

    with logging_to("debug", stream, muted=("asyncio",)):
        play(scenario, STORES["memory"], tmp_path)


@pytest.mark.parametrize("in_thread", [False, True])
def test_what_a_handler_logs_names_its_task(tmp_path: Path, stream: io.StringIO, in_thread: bool) -> None:
    async def scenario(world: World) -> None:
        log = logging.getLogger("shop.reports")

        def work() -> None:
            log.info("writing", extra={"page": 3})

        async def work_async() -> None:
            await asyncio.gather(asyncio.to_thread(work))

        world.app.task("work")(work if in_thread else work_async)
        tasks = [await world.queue.submit("work", number) for number in range(3)]
        async with world.running(worker_id="w1"):
            await world.at(SECOND)
        log.info("outside")
        *inside, outside = documents(stream)
        assert {each["task"] for each in inside} == {task.id for task in tasks}
        for each in inside:
            assert each["logger"] == "shop.reports"
            assert (each["tenant"], each["worker"], each["page"]) == ("default", "w1", 3)
        assert not set(outside) & set(FIELDS)

    with logging_to("info", stream):
        play(scenario, STORES["memory"], tmp_path)


def test_an_outage_is_a_sentence_and_a_defect_is_a_traceback(stream: io.StringIO) -> None:
    with logging_to("info", stream):
        for error in (Unavailable("the database is away"), ZeroDivisionError("oops")):
            log_observation(LoopFailed("worker", error, SECOND))
    away, defect = documents(stream)
    assert away["message"] == "worker failed: the database is away; trying again in 1.0 s"
    assert "exception" not in away
    assert "ZeroDivisionError" in defect["exception"]


TROUBLES: list[tuple[Observation, str, str]] = [
    (
        ClockSetBack(3, 2),
        "warning",
        "clock was set back: 3 schedules are planned anew, 2 tasks count from now",
    ),
    (ClockJumped(-MINUTE), "warning", "clock jumped back by 0:01:00; missed runs follow their policy"),
    (
        LoopBlocked(12 * SECOND, ("resize",), "in resize"),
        "error",
        "resize has blocked the event loop for 12 s; leases cannot be renewed\nin resize",
    ),
    (
        HookFailed("on_error", ValueError("oops")),
        "error",
        "on_error raised ValueError: oops\nValueError: oops",
    ),
]


@pytest.mark.parametrize(("signal", "level", "message"), TROUBLES, ids=lambda each: type(each).__name__)
def test_trouble_is_one_sentence(signal: Observation, level: str, message: str, stream: io.StringIO) -> None:
    with logging_to("info", stream):
        log_observation(signal)
    (said,) = documents(stream)
    assert (said["level"], said["message"].strip()) == (level, message)


def test_inputs_and_results_are_not_logged(tmp_path: Path, stream: io.StringIO) -> None:
    async def scenario(world: World) -> None:
        @world.app.task("work")
        async def work(card: str) -> str:
            return f"paid with {card}"

        await world.queue.submit("work", {"card": "4111-1111"})
        async with world.running():
            await world.at(SECOND)

    with logging_to("debug", stream):
        play(scenario, STORES["memory"], tmp_path)
    assert "is completed" in stream.getvalue()
    assert "4111-1111" not in stream.getvalue()


@pytest.mark.parametrize(
    "secret",
    [
        "postgresql://ada:sesame@db:5432/shop",
        "Authorization: Bearer sesame-sesame",
        f"key rota_{'0' * 32}_sesame",
        "https://x.example/?api_key=sesame&page=2",
        "{'password': 'sesame'}",
        "token=sesame",
    ],
)
def test_secrets_are_blotted_out(secret: str) -> None:
    assert "sesame" not in without_secrets(secret)


def test_what_only_looks_like_a_secret_stays() -> None:
    for text in (
        "sqlite:////var/rota.db",
        "https://x.example:8000/a",
        "at 10:30, user@host",
        "3 tokens left",
    ):
        assert without_secrets(text) == text
    assert rota.__version__
