"""Several worker processes from one command. The supervisor starts them, starts anew each that dies, passes signals on,
and ends when all have ended.

Each process holds one end of a socket as its standard input. It says there that it is ready. The other end closes with
the supervisor, however that ends, and then the process stops as if it were asked to. A process that ends by itself
before it was ever ready ends them all: what is wrong with it is wrong with the others.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import click

from ....engine.clock import wait_for_any
from ..session import Session

_READY = b"!"
_PAUSES = tuple(timedelta(seconds=seconds) for seconds in (0, 1, 2, 5, 10, 30))
"""Pauses before a process is started anew: longer, the more often it died without having been ready since."""


def supervise(session: Session, count: int, arguments: Callable[[int], list[str]]) -> None:
    """Run `count` processes of `rota`, each with its own `arguments`, until a signal has ended them all."""
    code = asyncio.run(_Supervisor(session, count, arguments).run())
    if code:
        raise click.exceptions.Exit(code)


def under_supervision(stop: Callable[[], None]) -> None:
    """Say that this process is ready. Call `stop` when its supervisor is gone."""
    line = socket.socket(fileno=os.dup(0))
    line.setblocking(False)
    with suppress(OSError):  # it is gone already: then the line reads as closed
        line.send(_READY)
    loop = asyncio.get_running_loop()

    def end() -> None:  # nothing is ever sent here: the line is closed
        loop.remove_reader(line)
        line.close()
        stop()

    loop.add_reader(line, end)


class _Supervisor:
    def __init__(self, session: Session, count: int, arguments: Callable[[int], list[str]]) -> None:
        self._screen = session.screen
        self._count = count
        self._arguments = arguments
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, self._pass_on, name)
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._keep(number))
        return self._code

    def _pass_on(self, name: signal.Signals) -> None:
        self._stopping.set()
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(name)

    async def _keep(self, number: int) -> None:
        """One of the processes, and those that take its place."""
        was_ever_ready, deaths = False, 0
        while not self._stopping.is_set():
            is_ready, code = await self._live(number)
            was_ever_ready |= is_ready
            if self._stopping.is_set():
                return
            if not was_ever_ready and code > 0:
                self._code = code
                self._pass_on(signal.SIGTERM)
                return
            deaths = 0 if is_ready else deaths + 1
            pause = _PAUSES[min(deaths, len(_PAUSES) - 1)]
            self._screen.warn(f"process {number + 1} of {self._count} {_ended(code)}; it is started anew")
            await self._pause(pause)

    async def _live(self, number: int) -> tuple[bool, int]:
        """One process, from its start to its end: whether it was ready, and its exit code."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", "rota"),
                    *self._arguments(number),
                    stdin=theirs.fileno(),
                    process_group=0,  # Ctrl-C reaches the supervisor alone, which passes it on once
                )
            self._running[number] = process
            if self._stopping.is_set():
                process.terminate()
            try:
                code = await process.wait()
            finally:
                del self._running[number]
            ours.setblocking(False)
            try:
                return ours.recv(1) == _READY, code
            except (BlockingIOError, ConnectionError):
                return False, code

    async def _pause(self, length: timedelta) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        await wait_for_any(stopping, at_most=length)
        stopping.cancel()


def _ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
