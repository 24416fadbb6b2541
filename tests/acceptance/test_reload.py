"""`rota up --reload`: an edit starts the app again, and what ran is handed back."""

from __future__ import annotations

import signal
from pathlib import Path

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
