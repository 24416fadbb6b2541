"""A server that test processes share ends with them, even if they are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import keeper

USER = """
import signal, sys
from pathlib import Path
import keeper

keeper.use(Path(sys.argv[1]))
if len(sys.argv) > 2:
    keeper.end_with_users(Path(sys.argv[1]), int(sys.argv[2]), signal.SIGTERM, Path(sys.argv[3]))
print("ready", flush=True)
signal.pause()
"""


def user(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USER, *map(str, words)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(keeper.__file__).parent)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_server_ends_with_the_last_user(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    server = subprocess.Popen(["sleep", "600"])
    first = user(tmp_path / "users", server.pid, tmp_path / "left")
    second = user(tmp_path / "users")
    kill(first)
    assert server.poll() is None, "someone uses it still"
    kill(second)
    assert server.wait(60) != 0
    with keeper.locked(tmp_path / "users"):  # the keeper has done all it does
        assert not (tmp_path / "left").exists()
