"""The picture in the README: real commands in a real terminal, their output as an SVG. `make picture` runs it.

    python docs/record.py

`rota up --demo` is watched until its slow schedule has skipped a time, and is then stopped with Ctrl-C. What
the other commands say follows from what happened. Its hints ("Try, in another terminal") are left out. Times
and ids differ from one recording to the next.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console  # type: ignore[attr-defined]  # it is documented
from rich.text import Text

PICTURE = Path(__file__).with_name("demo.svg")
COLUMNS, ROWS = 104, 50
ROTA = [sys.executable, "-m", "rota"]
CTRL_C = b"\x03"
HINTS = "Try, in another terminal:"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        terminal = Terminal(Path(folder))
        terminal.run("rota up --demo", stop_after=r"skipped.*backup")
        terminal.run("rota schedule show backup")
        terminal.run(f"rota schedule why backup {terminal.skipped_time('backup')}")
    PICTURE.write_text(terminal.picture())


class Terminal:
    """Runs commands one after the other, in a folder of its own, and keeps what the screen showed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shown: list[Text] = []
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ROTA_")},
            "ROTA_STORE": "sqlite:///rota.db",
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
            "TZ": "UTC",
        }
        self._environment.pop("NO_COLOR", None)

    def run(self, line: str, *, stop_after: str | None = None) -> None:
        """Show the line and what it prints. Ctrl-C follows once `stop_after` was printed."""
        self._shown.append(Text.assemble(("$ ", "bold green"), (line, "bold")))
        printed = [Text.from_ansi(each.replace("^C", "")) for each in self._printed(line, stop_after)]
        self._shown += _without_hints(printed)
        self._shown.append(Text())

    def skipped_time(self, schedule: str) -> str:
        """An expected time of the schedule that did not run."""
        line = [*ROTA, "schedule", "runs", schedule, "--status", "skipped", "--json"]
        answer = subprocess.run(
            line, cwd=self._folder, env=self._environment, capture_output=True, check=True
        )
        runs = json.loads(answer.stdout)
        at = str((runs["runs"] if isinstance(runs, dict) else runs)[-1]["scheduled_at"])
        return re.sub(r"\.\d+", "", at)  # people leave out fractions of a second

    def picture(self) -> str:
        console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
        for text in self._shown:
            console.print(text, soft_wrap=False)
        template = re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
        template = re.sub(r"\s*<!--.*?-->", "", template, flags=re.DOTALL)
        return console.export_svg(title="rota", code_format=template, unique_id="rota") + "\n"

    def _printed(self, line: str, stop_after: str | None) -> Iterator[str]:
        inner, outer = pty.openpty()
        fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        process = subprocess.Popen(
            [*ROTA, *shlex.split(line)[1:]],
            cwd=self._folder,
            env=self._environment,
            stdin=outer,
            stdout=outer,
            stderr=outer,
            preexec_fn=_own_terminal,
        )
        os.close(outer)
        for printed in _lines(inner):
            yield printed
            if stop_after is not None and re.search(stop_after, printed):
                os.write(inner, CTRL_C)
                stop_after = None
        process.wait()
        os.close(inner)


def _without_hints(lines: list[Text]) -> list[Text]:
    plain = [line.plain for line in lines]
    if HINTS not in plain:
        return lines
    first = plain.index(HINTS)
    last = plain.index("", first)
    return lines[:first] + lines[last + 1 :]


def _own_terminal() -> None:
    """Ctrl-C is for whoever owns the terminal."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _lines(terminal: int) -> Iterator[str]:
    """Until the other side closes, which Linux reports as an error."""
    rest = b""
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:
            piece = b""
        if not piece:
            break
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.rstrip(b"\r").decode() for line in whole)
    if rest.strip():
        yield rest.decode()


if __name__ == "__main__":
    main()
