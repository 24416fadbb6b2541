"""How tests use the command line: in this process where that is enough, as real processes where it is not."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any
from zlib import crc32

from click.testing import CliRunner, Result

from forked import Forked
from postgres_server import new_database
from rota.surfaces.cli.root import cli
from worlds import THOROUGH

ROTA = [sys.executable, "-c", "from rota.surfaces.cli import main; main()"]
PATIENCE = 90.0


def rota(line: str | list[str], *, code: int = 0, stdin: str | None = None) -> Result:
    """Run a command line, given as one would type it (without `rota`), in this process."""
    arguments = shlex.split(line) if isinstance(line, str) else line
    result = CliRunner().invoke(cli, arguments, input=stdin, prog_name="rota")
    said = f"{arguments}: exit code {result.exit_code}\n{result.stdout}\n{result.stderr}"
    assert result.exit_code == code, said
    assert "Traceback" not in result.stderr, said
    return result


def document(line: str | list[str], *, code: int = 0, stdin: str | None = None) -> Any:
    """What `--json` answers."""
    arguments = shlex.split(line) if isinstance(line, str) else line
    return json.loads(rota([*arguments, "--json"], code=code, stdin=stdin).stdout)


def documents(line: str | list[str], *, code: int = 0, stdin: str | None = None) -> list[Any]:
    """What `--json` answers line by line."""
    arguments = shlex.split(line) if isinstance(line, str) else line
    result = rota([*arguments, "--json"], code=code, stdin=stdin)
    return [json.loads(each) for each in result.stdout.splitlines()]


def complaint(line: str | list[str], *, code: int = 2, stdin: str | None = None) -> str:
    """The one sentence that a refused command line says."""
    result = rota(line, code=code, stdin=stdin)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert result.stdout == ""
    return lines[0].removeprefix("error: ")


def all_commands(group: Any = cli, path: str = "") -> set[str]:
    """The words of every command."""
    found: set[str] = set()
    for name in group.list_commands(None):
        each = group.get_command(None, name)
        where = f"{path} {name}".strip()
        found |= all_commands(each, where) if hasattr(each, "list_commands") else {where}
    return found


class Process:
    """A real `rota`, whose lines can be waited for. `up` serves no HTTP, unless the line or ROTA_HTTP says so: to
    import what serves it takes longer than most tests."""

    def __init__(self, line: str, folder: Path, *, before: str = "", **environment: str) -> None:
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "ROTA_HTTP": "no", **environment}
        files: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._process: Forked | subprocess.Popen[bytes]
        if "PYTHONPATH" in environment:
            self._process = subprocess.Popen([*ROTA, *shlex.split(line)], cwd=folder, env=env, **files)
        else:
            self._process = Forked(shlex.split(line), before=before, cwd=folder, env=env, **files)
        self.lines: list[str] = []
        self._queue: Queue[str | None] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *about: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def until(self, wanted: str | Callable[[str], bool], patience: float = PATIENCE) -> str:
        """The next line that has this in it."""
        matches = wanted if callable(wanted) else lambda line: wanted in line
        for line in self._coming(patience):
            if matches(line):
                return line
        raise AssertionError(f"{wanted!r} was not said; these lines were:\n" + "\n".join(self.lines))

    def rest(self) -> list[str]:
        """The lines that come until it has ended."""
        return list(self._coming(PATIENCE))

    def send(self, signal: int) -> None:
        self._process.send_signal(signal)

    def end(self, signal: int) -> int:
        """Send a signal; the exit code."""
        self.send(signal)
        return self._process.wait(PATIENCE)

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def _coming(self, patience: float) -> Iterator[str]:
        deadline = time.monotonic() + patience
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                return
            if line is None:
                return
            self.lines.append(line)
            yield line

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._queue.put(line.decode().rstrip("\n"))
        self._queue.put(None)


STORES = ["sqlite", "postgres"]
"""The stores of which a command line need know nothing but the address."""


def in_a_folder(metafunc: Any) -> None:
    """The `pytest_generate_tests` of a module whose `folder` has a store: one that the name of a test chooses, so that
    others have the other; in `make test-all` each has both."""
    named = any("folder" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "folder" in metafunc.fixturenames and not named:
        own = STORES[crc32(metafunc.definition.nodeid.encode()) % len(STORES)]
        metafunc.parametrize("folder", STORES if THOROUGH else [own], indirect=True)


def use_store(monkeypatch: Any, kind: str) -> None:
    """Every command from here on goes to a store of this kind: the default one, or a database of its own."""
    if kind == "postgres":
        monkeypatch.setenv("ROTA_STORE", new_database())
    else:
        rota("migrate")


def bare_folder(monkeypatch: Any, folder: Path) -> None:
    """Work in this folder, with nothing set, and no module loaded from the folder of another test."""
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    for name in [name for name in os.environ if name.startswith("ROTA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TZ", "UTC")
