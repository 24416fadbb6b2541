"""Many records at once, of which one may be damaged: by a hand in the database, a broken disk, a newer release.

`readable` decodes them in one go. Only if that fails does it look at each: what cannot be read is left out, said once
in the log, and made up for by asking for more, so that damaged records in front never hide the good ones behind them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..domain.errors import Corrupt
from .codec import RECORD_OF, TABLES, Table
from .queries import Query, ScheduleByKey

__all__ = ["readable"]

log = logging.getLogger("rota")

_REMEMBERED = 10_000
_said: set[str] = set()


async def readable(
    query: Query, limit: int, fetch: Callable[[int], Awaitable[Sequence[str]]], left_out: list[Corrupt]
) -> list[Any]:
    """What the query finds, of the bodies that `fetch` gives for a limit. What cannot be read goes to `left_out`."""
    table = TABLES[RECORD_OF[type(query)]]
    bodies = await fetch(limit)
    try:
        return [table.decode(body) for body in bodies]
    except Corrupt:
        if isinstance(
            query, ScheduleByKey
        ):  # asked for by its name: to leave it out would be to say it is not there
            raise
    asked = limit
    while True:
        records, problems = _sorted_out(table, bodies)
        if len(records) >= limit or len(bodies) < asked:
            _say(problems)
            left_out += problems
            return records[:limit]
        asked *= 2
        bodies = await fetch(asked)


def _sorted_out(table: Table[Any], bodies: Sequence[str]) -> tuple[list[Any], list[Corrupt]]:
    records: list[Any] = []
    problems: list[Corrupt] = []
    for body in bodies:
        try:
            records.append(table.decode(body))
        except Corrupt as problem:
            problems.append(problem)
    return records, problems


def _say(problems: Sequence[Corrupt]) -> None:
    """Once per record and process: a worker meets it each time that it looks for work."""
    for problem in problems:
        if str(problem) not in _said and len(_said) < _REMEMBERED:
            _said.add(str(problem))
            log.error("%s; it is left out until it is mended or removed (see `rota doctor`)", problem)
