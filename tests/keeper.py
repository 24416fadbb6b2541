"""Servers that test processes share end with the last of these processes, however that one ends.

Each process that uses a server holds a shared lock on a file while it lives. The keeper is a program that runs beside
the server: it waits until it has the lock for itself, ends the server, and removes what the server leaves. So a run
that was killed leaves nothing behind. The keeper imports little, since it starts with every run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 90.0


def use(users: Path) -> None:
    """Be one of the users until this process ends."""
    fcntl.flock(os.open(users, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_SH)  # locked as long as it is open


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def end_with_users(users: Path, pid: int, how: int, *leftovers: Path) -> None:
    """Send a server this signal once nobody uses it any more; then remove these files and folders."""
    words = [str(word) for word in (users, pid, how, *leftovers)]
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    arguments = [sys.executable, "-I", "-S", __file__, *words]
    os.posix_spawn(sys.executable, arguments, os.environ, file_actions=silent, setsid=True)


def started_at(pid: int) -> str | None:
    """When a process was started, in ticks of the kernel; None if it has ended. Pids are used again."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def main(users: str, pid: int, how: int, *leftovers: str) -> None:
    os.chdir("/")
    server = started_at(pid)
    with locked(Path(users)):
        if server is not None and started_at(pid) == server:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        deadline = time.monotonic() + PATIENCE
        while server is not None and started_at(pid) == server and time.monotonic() < deadline:
            time.sleep(0.02)
        for path in map(Path, leftovers):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
