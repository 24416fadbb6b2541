"""Fitting into a line: which columns of a table are shown and how wide, how short ids can be, and where prose is
broken."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from click import unstyle

GAP = 2
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
    return len(unstyle(text))


def _line(widths: Collection[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


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
