"""`rota up --reload`: the process again, whenever a file of the app changes.

The parent watches; a child runs `rota up` without the option. On an edit the child is asked to stop as Ctrl-C asks: its
handlers may finish, and what does not is handed back, so that the next child runs it. A Ctrl-C meanwhile hands it back
at once. A file that cannot be imported leaves no child: the parent waits for the next edit."""

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
_LOOK_EVERY = 100
"""Milliseconds after which the watch tells that it listens, whether or not there was an edit."""


def run_reloading(session: Session, arguments: Sequence[str]) -> None:
    """Run `rota` with these arguments in a child, again after each edit below the current folder, until stopped."""
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        raise click.UsageError("--reload needs watchfiles: pip install 'rota[reload]'") from None
    stop = Event()
    child: _Child | None = None
    is_hurried = False

    def end(*_: object) -> None:
        nonlocal is_hurried
        is_hurried = stop.is_set()  # maybe before the watch has seen the first
        stop.set()
        if child is not None:
            child.hurry()

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the last, where there is one: the terminal was closed
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), end)
    folder = Path.cwd()
    listening = watch(
        folder,
        watch_filter=PythonFilter(),
        stop_event=stop,
        raise_interrupt=False,
        rust_timeout=_LOOK_EVERY,
        yield_on_timeout=True,
    )
    try:
        for changes in listening:
            edited = watched(folder, (Path(path) for _, path in changes))
            if stop.is_set():
                break
            if child is None:  # not sooner: an edit after it has read the code would not be heard
                child = _Child(arguments)
            elif edited:
                session.screen.remark(f"edited: {', '.join(edited)}; starting again")
                child.stop()
                if not stop.is_set():
                    child = _Child(arguments)
    finally:
        if child is not None:
            child.stop(is_hurried=is_hurried)


def watched(folder: Path, files: Iterable[Path]) -> list[str]:
    """The files that count, as they are called from the folder."""
    inside = [file.relative_to(folder) for file in files if file.is_relative_to(folder)]
    return sorted(str(file) for file in inside if not _IGNORED & set(file.parts))


class _Child:
    """The process that runs the app, in a session of its own: Ctrl-C reaches the parent alone, which passes it on."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._is_asked = False
        self._process = subprocess.Popen([sys.executable, "-m", "rota", *arguments], start_new_session=True)

    def stop(self, *, is_hurried: bool = False) -> None:
        """Ask it to end, as Ctrl-C does, and wait for that."""
        self._is_asked = True
        self._process.send_signal(signal.SIGINT)
        if is_hurried:
            self.hurry()
        self._process.wait()

    def hurry(self) -> None:
        """Ask again, if it was asked. With another signal: two of one kind may become one."""
        if self._is_asked:
            self._process.send_signal(signal.SIGTERM)
