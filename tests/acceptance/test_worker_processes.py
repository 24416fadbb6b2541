"""Several worker processes from one command: one that dies is replaced, and they end together, however that comes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import PATIENCE, Process, bare_folder, complaint, document, use_store
from keeper import started_at

APP = """
import rota

app = rota.App()


@app.task
def double(n: int) -> int:
    return 2 * n
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    use_store(monkeypatch, "sqlite")
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def workers() -> set[int]:
    return {each["pid"] for each in document("workers") if started_at(each["pid"])}


def test_a_process_that_dies_is_replaced_and_all_stop_together(folder: Path) -> None:
    with Process("worker shop:app --processes 2", folder) as supervisor:
        eventually(lambda: len(workers()) == 2)
        first = workers()
        victim = min(first)
        os.kill(victim, signal.SIGKILL)
        supervisor.until("was killed by SIGKILL; it is started anew")
        eventually(lambda: len(workers() - {victim}) == 2)
        id = document("submit --type double --input '{\"n\": 4}'")["id"]
        assert document(f"wait {id}")["output"] == 8
        last = workers()
        assert supervisor.end(signal.SIGTERM) == 0
    assert not any(started_at(pid) for pid in first | last)


def test_they_end_with_their_supervisor(folder: Path) -> None:
    with Process("worker shop:app --processes 2", folder) as supervisor:
        eventually(lambda: len(workers()) == 2)
        pids = workers()
        supervisor.end(signal.SIGKILL)
        eventually(lambda: not any(started_at(pid) for pid in pids))


def test_what_none_of_them_could_do_is_said_once(folder: Path) -> None:
    assert "nowhere" in complaint("worker nowhere:app --processes 2")
    assert "from 1 to 256, or auto" in complaint("worker shop:app --processes 0")
    with Process(
        "worker shop:app --processes 2", folder, ROTA_STORE="postgresql://nobody@127.0.0.1:1/none"
    ) as one:
        assert one.wait() not in (0, 2)
