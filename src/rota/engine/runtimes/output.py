"""What a command writes: its lines go to the task's log while it runs, its beginning and end are kept as text, and its
bytes in a temporary file."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Self

from ..clock import wait_for_any

KEPT = 16 * 1024
"""Bytes at the beginning, and as many at the end."""
SPOOLED = 16 * 1024 * 1024
"""Bytes that go to the file. Of what comes after them, it gets the end."""
LINE_KEPT = 500
LINES_AT_ONCE = 200
"""A task's log keeps as many."""
SOON = timedelta(milliseconds=100)
"""How long lines gather before they are logged: of a flood, most never are."""
DRAIN = timedelta(seconds=1)
"""How long to read on after the end, if a process that left the group holds the pipe."""


class KeptOutput(asyncio.Protocol):
    """One stream. Whatever comes, it holds a bounded part. Bytes that are no UTF-8 are shown as `\\xff` in the text,
    and stay what they are in the file, which is there until the `with` block ends."""

    def __init__(self, log: Callable[[str], object]) -> None:
        self.size = 0
        self._log = log
        self._head = bytearray()
        self._tail = bytearray()
        self._spool = tempfile.NamedTemporaryFile(prefix="rota-", buffering=0)  # noqa: SIM115 - closed by __exit__
        self._spooled = 0
        self._room = SPOOLED
        self._line = b""
        self._lines: deque[bytes] = deque(maxlen=LINES_AT_ONCE)
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    @asynccontextmanager
    async def pipe(self) -> AsyncIterator[IO[bytes]]:
        """The end to write to, which the caller closes as soon as another process has it. What was written is read to
        its end, or given up soon after the block has ended."""
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb", buffering=0) as end:
            pipe = os.fdopen(reading, "rb", buffering=0)
            transport, _ = await self._loop.connect_read_pipe(lambda: self, pipe)
            try:
                yield end
            finally:
                end.close()
                try:
                    await wait_for_any(self._ended, at_most=DRAIN)
                finally:
                    transport.close()
                    self._log_lines([self._line] if self._line else [])

    def data_received(self, data: bytes) -> None:
        self.size += len(data)
        room = max(0, KEPT - len(self._head))
        self._head += data[:room]
        self._tail += data[room:][-KEPT:]
        del self._tail[:-KEPT]
        self._write(data)
        if not self._lines:
            self._loop.call_later(SOON.total_seconds(), self._log_lines)
        before, *lines = (self._line + data).rsplit(b"\n", LINES_AT_ONCE)
        *lines, self._line = (before.rpartition(b"\n")[2], *lines)
        self._line = self._line[:LINE_KEPT]
        self._lines.extend(lines)

    def connection_lost(self, problem: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    @property
    def text(self) -> str:
        between = _left_out(self.size - len(self._head) - len(self._tail))
        return f"{as_text(self._head)}{between}{as_text(self._tail)}"

    def file(self) -> Path:
        """Where its bytes are; of very many, the first and the last. To be asked once, when it has ended."""
        missing = self.size - self._spooled
        if missing:
            end = (self._head + self._tail)[-min(missing, KEPT) :]
            with suppress(OSError):
                self._spool.write(_left_out(missing - len(end)).encode() + end)
        return Path(self._spool.name)

    @property
    def last_line(self) -> str:
        lines = as_text(self._tail or self._head).split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _write(self, data: bytes) -> None:
        """Spool the bytes. Those that a full disk does not take are left out: the command goes on."""
        wanted = data[: self._room]
        try:
            written = self._spool.write(wanted)
        except OSError:
            written = 0
        self._spooled += written
        self._room = self._room - written if written == len(wanted) else 0

    def _log_lines(self, more: list[bytes] | None = None) -> None:
        lines, self._lines = [*self._lines, *(more or ())], deque(maxlen=LINES_AT_ONCE)
        for line in lines:
            self._log(as_text(line[:LINE_KEPT]).rstrip("\r"))


def _left_out(count: int) -> str:
    return f"\n… {count:,} bytes are left out …\n" if count else ""


def as_text(data: bytes | bytearray) -> str:
    """As text that every store can keep: PostgreSQL has no NUL."""
    return data.decode("utf-8", "backslashreplace").replace("\0", "\\x00")
