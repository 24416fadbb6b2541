"""Drawing. In a terminal: colours, tables and relative times, with rich (imported here, and only when it
draws a table or a bar). In a pipe: plain text, whole timestamps. `--json`: one document, or a line each
for a stream. At the end is what fits into a line: which columns, how wide, how short ids, where prose is broken."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..durations import iso, relative

if TYPE_CHECKING:
    from rich.console import Console


class Cell(NamedTuple):
    """A text, and how it looks where there are colours."""

    text: str
    style: str = ""


class Mark(NamedTuple):
    """How a status looks: a sign and a colour in a terminal, a letter in a pipe."""

    sign: str
    colour: str
    letter: str


MARKS = {
    "pending": Mark("○", "cyan", "P"),
    "running": Mark("▶", "blue", "R"),
    "completed": Mark("✓", "green", "C"),
    "failed": Mark("✗", "red", "F"),
    "cancelled": Mark("⊘", "magenta", "X"),
    "expired": Mark("◌", "yellow", "E"),
    "archived": Mark("▪", "bright_black", "A"),
    "skipped": Mark("↷", "yellow", "S"),
    "buffered": Mark("◔", "cyan", "B"),
    "active": Mark("●", "green", "A"),
    "paused": Mark("‖", "yellow", "P"),
    "draft": Mark("○", "cyan", "D"),
    "deleted": Mark("⊘", "bright_black", "X"),
}
_MAY_WRAP = ("WHEN", "CHANGE", "WHAT", "NOTE", "LIMITS", "KINDS", "ROLES")
BUSY = timedelta(seconds=1)
LEGEND = ("completed", "failed", "skipped", "running", "cancelled", "buffered")


class Bar:
    """How far something is. This one is for nobody: `Sign` is shown."""

    def advance(self, steps: int) -> None: ...

    def reach(self, done: int, total: int) -> None: ...


class Sign(Bar):
    """A sign of life on stderr, from the first second on: a bar where it is known how much there is to do (`total`, in
    bytes if they are `of_bytes`), or else something that turns. It leaves nothing behind."""

    def __init__(self, what: str, total: int | None, *, of_bytes: bool) -> None:
        from threading import Timer

        self._what = what
        self._total = total
        self._of_bytes = of_bytes
        self._done = 0
        self._shown: Any = None
        self._timer = Timer(BUSY.total_seconds(), self._show)
        self._timer.daemon = True
        self._timer.start()

    def advance(self, steps: int) -> None:
        self._done += steps
        self._draw()

    def reach(self, done: int, total: int) -> None:
        """Say how far it is where that is known only when it has begun."""
        self._done, self._total = done, total
        self._draw_anew()

    def stop(self) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._shown is not None:
            self._shown.stop()

    def _show(self) -> None:
        from rich.progress import Progress

        shown = Progress(*self._columns(), console=_console(stderr=True), transient=True)
        shown.add_task(self._what, total=self._total)
        shown.start()
        self._shown = shown
        self._draw_anew()  # how much there is to do may have become known meanwhile

    def _draw_anew(self) -> None:
        if self._shown is not None:
            self._shown.columns = self._columns()
            self._draw()

    def _draw(self) -> None:
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], completed=self._done, total=self._total)

    def _columns(self) -> list[Any]:
        from rich import progress

        text = progress.TextColumn("{task.description}", markup=False)
        if self._total is None:
            return [progress.SpinnerColumn(), text, progress.TimeElapsedColumn()]
        how_much = progress.DownloadColumn() if self._of_bytes else progress.MofNCompleteColumn()
        bar = progress.BarColumn(complete_style="cyan", finished_style="green")
        return [text, bar, how_much, progress.TimeRemainingColumn()]


class Screen:
    """Where answers go: stdout for answers, stderr for remarks."""

    def __init__(self, *, wide: bool = False, utc: bool = False, for_programs: bool = False) -> None:
        """`wide`: tables show all of every column, however long a line becomes. `utc`: times are not local.
        `for_programs`: nobody watches."""
        self.coloured = _is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
        self.is_terminal = _is_terminal(sys.stdout)
        self.wide = wide
        self.utc = utc
        self.is_watched = _is_terminal(sys.stderr) and not for_programs
        self._sign: Sign | None = None

    def say(self, text: str = "") -> None:
        self.still()
        click.echo(text, color=None if self.coloured else False)

    def prose(self, text: str, hang: int = 0) -> None:
        """Sentences. In a terminal they are broken between words, and moved in by `hang` from the second line on."""
        self.say(prose_for(sys.stdout, text, hang))

    def remark(self, text: str) -> None:
        """To stderr: not part of the answer."""
        self.still()
        text = prose_for(sys.stderr, text)
        plain = not _is_terminal(sys.stderr) or bool(os.environ.get("NO_COLOR"))
        click.echo(text, err=True, color=False if plain else None)

    def warn(self, text: str) -> None:
        self.remark(f"{click.style('warning:', fg='yellow', bold=True)} {text}")

    def json(self, document: Any) -> None:
        """One document, which may hold records: indented for people, one line for programs."""
        click.echo(_json(document, indent=2 if self.is_terminal else None))

    def json_line(self, document: Any) -> None:
        self.still()
        click.echo(_json(document))
        sys.stdout.flush()

    def status(self, status: str) -> Cell:
        mark = MARKS.get(status)
        if mark is None:
            return Cell(status)
        return Cell(f"{mark.sign} {status}" if self.is_terminal else status, mark.colour)

    def strip(self, statuses: Iterable[str]) -> str:
        """One mark for each: coloured signs in a terminal, letters in a pipe."""
        marks = [MARKS.get(status, Mark("?", "white", "?")) for status in statuses]
        if not self.is_terminal:
            return "".join(mark.letter for mark in marks)
        return "".join(click.style(mark.sign, fg=mark.colour) for mark in marks)

    def strip_cell(self, statuses: Iterable[str]) -> Cell:
        """A strip for a table, whose cells have colours of their own."""
        return Cell(self.strip(statuses), "ansi")

    def legend(self) -> str:
        parts = [f"{self.strip([status])} {status}" for status in LEGEND]
        return "  ".join(parts)

    def fields(self, rows: Iterable[tuple[str, str]]) -> None:
        """`name: value`, one per line."""
        for name, value in rows:
            self.prose(f"{click.style(f'{name}:', dim=True)} {value}")

    def clock(self, at: datetime | None) -> str:
        """A time on the reader's clock, without fractions; in a pipe, and with `--utc`, of UTC."""
        if at is None:
            return ""
        return (
            seconds(at) if self.utc or not self.is_terminal else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        )

    def local(self, at: datetime) -> datetime:
        """A time on the reader's clock; in a pipe, and with `--utc`, of UTC."""
        return at.astimezone(UTC if self.utc or not self.is_terminal else None)

    def away(self, at: datetime, now: datetime) -> str:
        """How far off a time is; in a pipe, the time itself."""
        return relative(at, now) if self.is_terminal else seconds(at)

    def when(self, at: datetime, now: datetime) -> str:
        """How far off a time is, and when that is."""
        if not self.is_terminal:
            return f"{seconds(at)} ({relative(at, now)})"
        zone = "" if self.utc else f" {at.astimezone().tzname()}"
        return f"{relative(at, now)} ({self.clock(at)}{zone})"

    def ids(self, ids: Iterable[str | None]) -> Mapping[str, str]:
        """How ids are shown: in a terminal no longer than needed, which every command accepts."""
        given = [id for id in ids if id is not None]
        return dict(zip(given, given, strict=True)) if self.wide or not self.is_terminal else shortened(given)

    def table(
        self, headings: Sequence[str], rows: Sequence[Sequence[Cell | str]], yields: Sequence[str] = ()
    ) -> None:
        """`yields` are the columns that give way where the line is too short, in this order."""
        cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
        if self.is_terminal:
            self._draw(headings, cells, yields)
        else:
            self._print(headings, cells)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """A sign of life, unless there is one already."""
        with self.progress(what, None) if self._sign is None else nullcontext():
            yield

    @contextmanager
    def progress(self, what: str, total: int | None, *, of_bytes: bool = False) -> Iterator[Bar]:
        """A sign of life on stderr, if someone is watching and it takes longer than a second; until something is said,
        or asked. It is a bar, if `total` is known."""
        self.still()
        if not self.is_watched:
            yield Bar()
            return
        self._sign = sign = Sign(what, total, of_bytes=of_bytes)
        try:
            yield sign
        finally:
            self.still()

    def still(self) -> None:
        """End the sign of life."""
        sign, self._sign = self._sign, None
        if sign is not None:
            sign.stop()

    def _draw(self, headings: Sequence[str], rows: Sequence[Sequence[Cell]], yields: Sequence[str]) -> None:
        from rich.table import Table
        from rich.text import Text

        texts = [
            [Text.from_ansi(c.text) if c.style == "ansi" else Text(c.text, style=c.style) for c in row]
            for row in rows
        ]
        widths = [
            max(len(heading), *(row[column].cell_len for row in texts)) if texts else len(heading)
            for column, heading in enumerate(headings)
        ]
        console = _console()
        if self.wide:  # a longer line than the terminal has: it may break it, or be scrolled
            console.width = max(console.width, sum(widths) + _GAP * len(widths))
        shown = fitted(headings, widths, console.width, yields)
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bright_black")
        for heading, width in shown.items():
            wraps = heading in _MAY_WRAP and not self.wide
            table.add_column(
                heading, no_wrap=not wraps, overflow="ellipsis", min_width=width, max_width=width
            )
        for row in texts:
            table.add_row(*(text for heading, text in zip(headings, row, strict=True) if heading in shown))
        console.print(table)

    def _print(self, headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        texts = [list(headings), *([cell.text for cell in row] for row in rows)]
        widths = [max(len(row[column]) for row in texts) for column in range(len(headings))]
        for row in texts:
            self.say("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def prose_for(stream: Any, text: str, hang: int = 0) -> str:
    """Sentences, as they are written to this stream."""
    return broken(text, shutil.get_terminal_size().columns, hang) if _is_terminal(stream) else text


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    return Console(stderr=stderr, highlight=False, color_system=None if plain else "auto")


def written(value: Any) -> str:
    """A value that was given, in one line of JSON."""
    from .. import redaction

    return json.dumps(redaction.shown(value), ensure_ascii=False, default=str)


def _json(document: Any, indent: int | None = None) -> str:
    from .. import redaction, shapes

    shown = redaction.document(shapes.plain(document))
    return json.dumps(shown, indent=indent, ensure_ascii=False, default=_text)


def _text(value: Any) -> str:
    return iso(value) if isinstance(value, datetime) else str(value)


def seconds(at: datetime | None) -> str:
    """As `iso`, for people: no fractions."""
    return "" if at is None else iso(at.replace(microsecond=0))


def size_in_words(count: int) -> str:
    """`2 MB`, `512 KB`, `1,000 bytes`: as exact as the number."""
    for unit, size in (("MB", 1024 * 1024), ("KB", 1024)):
        if count and count % size == 0:
            return f"{count // size:,} {unit}"
    return f"{count:,} bytes"


def styled(cell: Cell) -> str:
    """A cell outside a table."""
    return click.style(cell.text, fg=cell.style or None)


_GAP = 2
_NARROW = 14
"""A column that gives way is not made narrower than this: it is left out instead."""
_LEAST = 8
_WORD = re.compile(r"( *)((?:`[^`]+`|[^ ])+)")
"""A word, or what is kept whole, and the gap before it."""
_LENGTHS = (8, 13, 18, 23)
"""Where the groups of an id end."""
_BY_TIME = 18
"""Ids in order of creation begin with the time, so that neighbours share a long beginning."""


def fitted(
    headings: Sequence[str], widths: Sequence[int], room: int, yields: Sequence[str]
) -> dict[str, int]:
    """The columns that are shown, and how wide. `yields` are those that give way, in this order; the others are always
    shown, and are cut only if not even they fit."""
    natural = dict(zip(headings, widths, strict=True))
    for left_out in range(len(yields) + 1):
        shown = [name for name in headings if name not in yields[:left_out]]
        least = {
            name: min(natural[name], max(_NARROW, len(name))) if name in yields else natural[name]
            for name in shown
        }
        if _line(least.values()) <= room:
            return _widened(least, natural, room, yields)
    return _cut({name: natural[name] for name in headings if name not in yields}, room)


def broken(text: str, width: int, hang: int = 0) -> str:
    """Prose in lines of this width, broken between words, and moved in by `hang` from the second on. What stands in
    backticks, such as a command to copy, stays in one line. Colours take no room."""
    return "\n".join(_broken_line(line, width, hang) for line in text.split("\n"))


def _broken_line(line: str, width: int, hang: int) -> str:
    if _length(line) <= width:
        return line
    lines = [""]
    for gap, word in _WORD.findall(line):
        if lines[-1].strip() and _length(lines[-1] + gap + word) > max(width, _LEAST):
            lines.append(" " * hang + word)
        else:
            lines[-1] += gap + word
    return "\n".join(lines)


def _length(text: str) -> int:
    return len(click.unstyle(text))


def _line(widths: Collection[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _widened(
    least: dict[str, int], natural: dict[str, int], room: int, yields: Sequence[str]
) -> dict[str, int]:
    """The columns that gave way get what is left of the line, the last to give way first."""
    widths, left = dict(least), room - _line(least.values())
    for name in reversed(yields):
        if name in widths:
            more = min(left, natural[name] - widths[name])
            widths[name] += more
            left -= more
    return widths


def _cut(widths: dict[str, int], room: int) -> dict[str, int]:
    while _line(widths.values()) > room:
        widest = max(widths, key=lambda name: widths[name])
        if widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    return widths


def shortened(ids: Sequence[str]) -> dict[str, str]:
    """Each id, as short as tells it from the others."""
    taken: dict[str, int] = {}
    for id in set(ids):
        for length in _LENGTHS:
            taken[id[:length]] = taken.get(id[:length], 0) + 1
    return {id: _short(id, taken) for id in ids}


def _short(id: str, taken: dict[str, int]) -> str:
    is_by_time = id[14:15] == "7"
    lengths = (length for length in _LENGTHS if length >= _BY_TIME or not is_by_time)
    return next((id[:length] for length in lengths if taken[id[:length]] == 1), id)
