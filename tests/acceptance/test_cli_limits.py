"""Limits of queues on the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import rota as rota_package
from command_line import bare_folder, complaint, document, rota


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    rota("migrate")
    return tmp_path


def test_set_show_and_take_away() -> None:
    said = rota("queue limit mail --rate 50/s --concurrency 10").stdout
    assert said == "mail: at most 10 at once, at most 50/s\n"
    assert document("queue limit mail") == {"queue": "mail", "concurrency": 10, "rate": "50/s"}
    assert rota("queue limit mail --off").stdout == "mail: no limit\n"
    assert document("queue limit mail") == {"queue": "mail", "concurrency": None, "rate": None}


def test_all_limits_are_listed_with_whoever_set_them() -> None:
    assert "no limits in" in rota("limits").stderr
    rota("queue limit mail --rate 50/s")

    async def declared() -> None:
        app = rota_package.App()
        app.task("send", limit=rota_package.Limit(concurrency=5, key="to"))(lambda to: None)
        async with rota_package.connect("sqlite:///rota.db") as queue:
            await queue.declare_limits(app)

    asyncio.run(declared())
    of_kind = {"kind": "send", "queue": None, "concurrency": 5, "rate": None, "key": "to", "declared": True}
    of_queue = {
        "kind": None,
        "queue": "mail",
        "concurrency": None,
        "rate": "50/s",
        "key": None,
        "declared": False,
    }
    assert document("limits") == [of_kind, of_queue]
    _, first, second = rota("limits").stdout.splitlines()
    assert first.split() == ["kind", "send", "5", "-", "to", "its", "handler"]
    assert second.split() == ["queue", "mail", "-", "50/s", "-", "a", "call"]


def test_status_says_how_long_the_line_is() -> None:
    rota("queue limit default --concurrency 1")
    tasks = [document("submit -t work")["id"] for _ in range(3)]
    assert document(f"status {tasks[0]}")["waiting"]["reason"] == "no_worker"
    line = "it waits behind 1 other of queue default (at most 1 at once)"
    assert document(f"status {tasks[2]}")["waiting"] == {"reason": "limited", "explanation": line}
    assert line in rota(f"status {tasks[2]}").stdout
    rota(f"cancel {tasks[0]}")
    assert "is the next of queue default" in rota(f"status {tasks[2]}").stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--rate often", "'often' is not a rate"),
        ("--rate 0/s", "'0/s' is not a rate"),
        ("--concurrency 0", "0 is not accepted"),
        ("--off --rate 1/s", "give it without"),
    ],
)
def test_what_is_refused_changes_nothing(words: str, problem: str) -> None:
    assert problem in complaint(f"queue limit mail {words}")
    assert document("queue limit mail")["rate"] is None
