"""Processes that are asked to stop while another one keeps the SQLite file locked.

The store would wait five minutes for the lock. All of them end long before that, as --shutdown-timeout says, while the
lock is still held."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from command_line import Process, bare_folder, rota

APP = """
import threading
import time
from pathlib import Path

import rota

app = rota.App()


@app.task("quick")
def quick():
    return 1


@app.task("until_told")
def until_told():
    while not Path("go").exists():
        time.sleep(0.01)


@app.task("until_stopped")
def until_stopped(context):
    while True:
        context.check()
        time.sleep(0.01)


@app.task("hang")
def hang():
    threading.Event().wait()
"""
BUSY = "sqlite:///rota.db?busy_timeout=300"
SAYS_SO = """
import apsw

class Connection(apsw.Connection):
    def set_busy_handler(self, handler):
        def said(tries):
            if tries == 0:
                print("waits for the lock", flush=True)
            return handler(tries)

        super().set_busy_handler(said)

apsw.Connection = Connection
"""
"""It is run before `rota`. One thread writes, so whoever else wants to write waits behind the one that says so."""

IN_THE_BACKGROUND = """
import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)
"""
"""As a script does with `rota up … &`."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_folder(monkeypatch, tmp_path)
    monkeypatch.setenv("ROTA_STORE", BUSY)
    (tmp_path / "shop.py").write_text(APP)
    rota("migrate")
    return tmp_path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    db = apsw.Connection(str(folder / "rota.db"))
    db.set_busy_timeout(30_000)
    try:
        db.execute("begin immediate")
        yield
    finally:
        db.close()


@pytest.mark.parametrize(
    "line",
    [
        "up shop:app --shutdown-timeout 300ms",
        "worker shop:app --shutdown-timeout 300ms --lease 1s",
        "scheduler run",
        "monitor --enable-scheduler",
        "serve shop:app --engine --port 0",
    ],
)
def test_what_waits_for_the_lock_ends_in_time(folder: Path, line: str) -> None:
    rota("schedule create often -t quick --interval 1s")
    rota("submit -t until_stopped")  # a worker has its lease to renew
    with Process(line, folder, before=SAYS_SO, ROTA_SHUTDOWN_TIMEOUT="300ms") as process:
        process.until("Ctrl-C stops it")
        with locked(folder):
            process.until("waits for the lock")
            assert process.end(signal.SIGTERM) == 0
        process.until("stopped")


def test_a_second_signal_does_not_wait_for_the_lock_either(folder: Path) -> None:
    rota("schedule create often -t quick --interval 1s")
    with Process("up shop:app --shutdown-timeout 5m", folder, before=SAYS_SO) as up:
        up.until("Ctrl-C stops it")
        with locked(folder):
            up.until("waits for the lock")
            up.send(signal.SIGINT)  # another signal, since two of one kind may become one
            assert up.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("kind", ["until_told", "until_stopped", "hang"])
def test_tasks_that_cannot_be_written_down_do_not_keep_it(folder: Path, kind: str) -> None:
    rota(f"submit -t {kind}")
    with Process("up shop:app --shutdown-timeout 300ms --lease 2s", folder, before=SAYS_SO) as up:
        up.until("started")
        with locked(folder):
            (folder / "go").touch()
            up.until("waits for the lock")
            assert up.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("start", ["", IN_THE_BACKGROUND])
def test_a_process_that_cannot_begin_ends_at_once(folder: Path, start: str) -> None:
    with locked(folder), Process("up shop:app", folder, before=start + SAYS_SO) as up:
        up.until("waits for the lock")
        assert up.end(signal.SIGTERM) == 0
