"""`rota up --reload`: an edit starts the app again, and what ran is handed back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from command_line import Process, document, rota
from rota.surfaces.cli.process.reload import watched

APP = """
import asyncio
import rota

app = rota.App()


@app.task("long")
async def long() -> str:
    while {waits}:
        await asyncio.sleep(60)
    return "by the new code"
"""

TELLS_WHAT_IT_DOES = """
import os
import signal
import subprocess

import watchfiles

popen, watch = subprocess.Popen, watchfiles.watch


def telling_popen(*args, **options):
    print("starts")
    return popen(*args, **options)


def telling_watch(*args, **options):
    listening = watch(*args, **options)
    first = next(listening)
    print("listens")
    if {is_stopped}:
        os.kill(os.getpid(), signal.SIGINT)
    yield first
    yield from listening


subprocess.Popen, watchfiles.watch = telling_popen, telling_watch
"""


def test_only_files_of_the_app_count(tmp_path: Path) -> None:
    files = [tmp_path / "shop" / "tasks.py", tmp_path / ".venv" / "lib" / "x.py", Path("/elsewhere/y.py")]
    assert watched(tmp_path, files) == ["shop/tasks.py"]


def test_an_edit_starts_again_and_running_tasks_are_safe(tmp_path: Path) -> None:
    app = tmp_path / "shop.py"
    app.write_text(APP.format(waits=True))
    store = f"sqlite:///{tmp_path}/rota.db"
    task = rota(f"submit -t long --store {store}").stdout.strip()
    with Process(f"up shop:app --reload --shutdown-timeout 1s --store {store}", tmp_path) as process:
        process.until("started")
        app.write_text(APP.format(waits=False))
        process.until("edited: shop.py; starting again")
        process.until("completed")
        assert process.end(signal.SIGHUP) == 0  # as when its terminal is closed
    ended = document(f"status {task} --store {store}")
    assert (ended["status"], ended["output"]) == ("completed", "by the new code")


def test_asked_twice_it_hands_back_what_runs(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP.format(waits=True))
    store = f"sqlite:///{tmp_path}/rota.db"
    task = rota(f"submit -t long --store {store}").stdout.strip()
    with Process(f"up shop:app --reload --shutdown-timeout 10m --store {store}", tmp_path) as process:
        process.until("started")
        process.send(signal.SIGINT)
        process.until("Ctrl-C again hands it back at once")
        assert process.end(signal.SIGINT) == 0
    assert document(f"status {task} --store {store}")["status"] == "pending"


ASKS_TWICE = """
import os
import signal
from pathlib import Path

import watchfiles

watch = watchfiles.watch


def asking_watch(*args, **options):
    for changes in watch(*args, **options):
        yield changes
        if Path("go").exists():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)


watchfiles.watch = asking_watch
"""


def test_asked_twice_before_it_looks_it_hands_back_at_once(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP.format(waits=True))
    store = f"sqlite:///{tmp_path}/rota.db"
    task = rota(f"submit -t long --store {store}").stdout.strip()
    line = f"up shop:app --reload --shutdown-timeout 2m --store {store}"
    with Process(line, tmp_path, before=ASKS_TWICE) as process:
        process.until("started")
        (tmp_path / "go").touch()
        assert process.wait() == 0
    assert document(f"status {task} --store {store}")["status"] == "pending"


def test_it_listens_before_the_app_is_read(tmp_path: Path) -> None:
    """Else an edit after that would not be heard."""
    (tmp_path / "shop.py").write_text(APP.format(waits=True))
    line = f"up shop:app --reload --store sqlite:///{tmp_path}/rota.db"
    with Process(line, tmp_path, before=TELLS_WHAT_IT_DOES.format(is_stopped=False)) as process:
        process.until("starts")
        assert process.lines == ["listens", "starts"]
        process.until("Ctrl-C stops it")
        assert process.end(signal.SIGINT) == 0


def test_stopped_before_the_app_is_read_it_reads_none(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP.format(waits=True))
    line = f"up shop:app --reload --store sqlite:///{tmp_path}/rota.db"
    with Process(line, tmp_path, before=TELLS_WHAT_IT_DOES.format(is_stopped=True)) as process:
        assert process.wait() == 0
        with pytest.raises(AssertionError, match=r"'starts' was not said; these lines were:\nlistens$"):
            process.until("starts")
