"""Processes of Rota that begin as copies of one which has imported it already. To start Python and to import takes most
of the processor time of a test with processes. A copy has its own id, signals, files, environment and exit code, and
ends as any program does.

`Forked` is what `subprocess.Popen` is. The one that is copied is started by the first of them, and ends with this
process. What is about imports, or changes them by PYTHONPATH, must begin from nothing: `subprocess.Popen`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

_STATUS = struct.Struct("i")
_ROOM = 1 << 20


class Forked:
    """`rota` with some arguments, or a program of Python. `before` is code that is run before it."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        program: Path | None = None,
        before: str = "",
        cwd: str | Path | None = None,
        env: dict[str, str] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self.returncode: int | None = None
        ours, theirs = [0, 1, 2], []
        self.stdout, self.stderr = None, None
        self._status, status = os.pipe()
        theirs.append(status)
        for at, wanted in enumerate((stdin, stdout, stderr)):
            if wanted == subprocess.PIPE:
                reading, ours[at] = os.pipe()
                theirs.append(ours[at])
                setattr(self, ("stdin", "stdout", "stderr")[at], open(reading, "rb"))  # noqa: SIM115  the caller's
            elif wanted == subprocess.DEVNULL:
                ours[at] = os.open(os.devnull, os.O_RDWR)
                theirs.append(ours[at])
            elif wanted == subprocess.STDOUT:
                ours[at] = ours[1]
            elif wanted is not None:
                ours[at] = wanted
        asked = {
            "arguments": list(arguments),
            "program": None if program is None else str(program),
            "before": before,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        body = json.dumps(asked).encode()
        socket.send_fds(_original(), [body], [*ours, status])
        for each in theirs:
            os.close(each)
        self.pid = self._told()

    stdin: Any
    stdout: Any
    stderr: Any

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = self._told()
            os.close(self._status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float | None = None) -> tuple[bytes | None, bytes | None]:
        """What it says until it ends; it must be little."""
        self.wait(timeout)
        said = [None if file is None else file.read() for file in (self.stdout, self.stderr)]
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _told(self) -> int:
        return int(_STATUS.unpack(os.read(self._status, _STATUS.size))[0])


def run(
    program: Path, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A program of Python to its end, which it must find within four minutes. What it says must be little."""
    pipe = subprocess.PIPE
    process = Forked(arguments, program=program, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        said, problem = process.communicate(240)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    text = [(each or b"").decode() for each in (said, problem)]
    return subprocess.CompletedProcess(str(program), process.wait(), *text)


@cache
def _original() -> socket.socket:
    """Where copies are ordered."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
    here, number = str(Path(__file__).parent), theirs.fileno()
    code = f"import sys; sys.path.insert(1, {here!r}); import forked; forked.copy({number})()"
    process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[number], cwd="/")
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# Of the original and its copies


def copy(listening: int) -> Callable[[], object]:
    """Make copies until nobody can order any more. Each returns what it is to do, to whoever called this: so it ends
    as a program does that has just begun."""
    orders = socket.socket(fileno=listening)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import("rota.surfaces.cli")
    for name in ("rota", "rota.engine.node", "rota.stores.sqlite.store", "rota.stores.postgres.store"):
        importlib.import_module(name)
    while True:
        body, files, *_ = socket.recv_fds(orders, _ROOM, 4)
        if not body:
            return lambda: None
        order = json.loads(body)
        if "serve" in order["arguments"] or order["env"].get("ROTA_HTTP") == "yes":
            _prepare_to_serve()
        gc.freeze()
        if os.fork() == 0:
            orders.close()
            _wait_for_a_copy(*files)
            return _prepared(order, files)
        for file in files:
            os.close(file)
        with suppress(ChildProcessError):  # all of them have ended
            while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
                pass


def _prepare_to_serve() -> None:
    """All that a server imports, and the templates of its pages: half a second of the processor for each copy."""
    for name in ("rota.surfaces.http.api", "rota.engine.observe.metrics", "uvloop", "uvicorn.lifespan.on"):
        importlib.import_module(name)
    _import("rota.surfaces.http.server")
    importlib.import_module("rota.surfaces.dashboard").prepare()


def _wait_for_a_copy(*files: int) -> None:
    """Returns in the copy only. Who waits for it tells its id, and how it ended."""
    pid = os.fork()
    if pid == 0:
        return
    *theirs, status = files
    for file in theirs:
        os.close(file)
    os.write(status, _STATUS.pack(pid))
    _, how = os.waitpid(pid, 0)
    os.write(status, _STATUS.pack(os.waitstatus_to_exitcode(how)))
    os._exit(0)


def _prepared(order: dict[str, Any], files: list[int]) -> Callable[[], object]:
    """Whatever a process gets from the one that starts it, and what Python makes of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, max(files) + 1)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    sys.stdin = sys.__stdin__ = _stream(0, "r")  # type: ignore[misc]  # as Python does at its start
    sys.stdout = sys.__stdout__ = _stream(1, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w")  # type: ignore[misc]
    exec(order["before"], {})
    program = order["program"]
    sys.argv = ["-c" if program is None else program, *order["arguments"]]
    if program is None:
        return importlib.import_module("rota.surfaces.cli").main  # type: ignore[no-any-return]
    sys.path[0] = str(Path(program).parent)
    return lambda: runpy.run_path(program, run_name="__main__")


def _stream(number: int, mode: str) -> io.TextIOWrapper:
    at_once = number == 2 or "PYTHONUNBUFFERED" in os.environ
    raw = open(number, f"{mode}b", 0 if at_once and mode == "w" else -1, closefd=False)  # noqa: SIM115  to the end
    return io.TextIOWrapper(raw, "utf-8", line_buffering=os.isatty(number), write_through=at_once)


def _import(package: str) -> None:
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, f"{package}."):
        importlib.import_module(module.name)
