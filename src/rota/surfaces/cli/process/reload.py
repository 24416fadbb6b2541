"""`rota up --reload`: the process again, whenever a file of the app changes.

The parent watches; a child runs `rota up` without the option. On an edit the child is asked to stop as Ctrl-C asks: its
handlers may finish, and what does not is handed back, so that the next child runs it. A file that cannot be imported
leaves no child: the parent waits for the next edit."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Event

import click

from ..session import Session

_IGNORED = {".git", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", "build", "dist"}


def run_reloading(session: Session, arguments: Sequence[str]) -> None:
    """Run `rota` with these arguments in a child, again after each edit below the current folder, until stopped."""
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        raise click.UsageError("--reload needs watchfiles: pip install 'rota[reload]'") from None
    stop = Event()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the last, where there is one: the terminal was closed
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: stop.set())
    child = _started(arguments)
    try:
        folder = Path.cwd()
        for changes in watch(folder, watch_filter=PythonFilter(), stop_event=stop, raise_interrupt=False):
            edited = watched(folder, (Path(path) for _, path in changes))
            if edited:
                session.screen.remark(f"edited: {', '.join(edited)}; starting again")
                _stopped(child)
                child = _started(arguments)
    finally:
        _stopped(child)


def watched(folder: Path, files: Iterable[Path]) -> list[str]:
    """The files that count, as they are called from the folder."""
    inside = [file.relative_to(folder) for file in files if file.is_relative_to(folder)]
    return sorted(str(file) for file in inside if not _IGNORED & set(file.parts))


def _started(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that Ctrl-C reaches the parent alone, and the child once."""
    return subprocess.Popen([sys.executable, "-m", "rota", *arguments], start_new_session=True)


def _stopped(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    child.wait()
