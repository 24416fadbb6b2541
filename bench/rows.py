"""The raw limit: what SQLite itself can do with exactly the rows that the product writes, durably.

The same schema, the same statements and the same bytes, made beforehand, so that nothing is timed but SQLite: no
records, no JSON, no event loop, no handlers. One connection, one thread, `synchronous=FULL`, one commit per batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
from msgspec.structs import replace

from rota.domain import task as life
from rota.domain.model import Limits, Task
from rota.engine.clock import new_id
from rota.stores.codec import micros
from rota.stores.sql_files import load
from rota.stores.sqlite.queries import FIND
from rota.stores.sqlite.schema import migrate
from rota.stores.sqlite.tx import STATEMENTS

T = TypeVar("T")
Row = list[Any]

KIND = "noop"
WORKER = "bench:12345:abcdef"
_SQL = load("sqlite")
_TASK = STATEMENTS[Task]


class Life(NamedTuple):
    """The three rows that a task is in the course of its life."""

    pending: Row
    running: Row
    completed: Row


def lives(number: int) -> list[Life]:
    now = datetime.now(UTC)
    return [_life(new_id(), now) for _ in range(number)]


def _life(id: str, now: datetime) -> Life:
    asked = life.Submission(kind=KIND, input={"number": 1})
    pending = replace(life.admit(id, asked, "default", now, Limits(), "user:bench"), version=1)
    lease = new_id()
    running = life.claim(
        pending,
        worker_id=WORKER,
        lease_id=lease,
        lease=timedelta(seconds=30),
        defaults=life.Defaults(),
        now=now,
    )
    completed = life.settle(running, life.Completed(None), lease_id=lease, now=now)
    return Life(
        _TASK.row(pending), _TASK.row(replace(running, version=2)), _TASK.row(replace(completed, version=3))
    )


def in_batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


class RawFile:
    """A file with the product's schema and settings, and nothing else of the product."""

    def __init__(self, place: Path) -> None:
        self.db = apsw.Connection(str(place / "raw.db"), statementcachesize=200)
        self.db.execute(_SQL["settings"].format(synchronous="full")).fetchall()
        migrate(self.db, "raw", datetime.now(UTC))

    def insert(self, tasks: Sequence[Life], batch: int) -> float:
        """Seconds to insert them."""
        rows = [task.pending for task in tasks]
        began = time.perf_counter()
        for some in in_batches(rows, batch):
            self.db.execute(_SQL["begin_write"])
            self.db.executemany(_TASK.insert, some)
            self.db.execute(_SQL["commit"])
        return time.perf_counter() - began

    def drain(self, tasks: Sequence[Life], batch: int) -> float:
        """Seconds to find, claim and complete them all. A commit completes one batch and claims the next."""
        lane = {"queue": "default", "kind": KIND, "priority": 128, "tenant": "default"}
        values = {**lane, "at": micros(datetime.now(UTC)), "limit": batch, "without": "[]"}
        began = time.perf_counter()
        held: Sequence[Life] = ()
        for some in (*in_batches(tasks, batch), ()):
            self.db.execute(_SQL["begin_write"])
            if held:
                self.db.executemany(_TASK.replace, [task.completed for task in held])
            if some:
                found = self.db.execute(FIND["ready_tasks"], values).fetchall()
                assert len(found) == len(some)
                self.db.executemany(_TASK.replace, [task.running for task in some])
            self.db.execute(_SQL["commit"])
            held = some
        return time.perf_counter() - began

    def close(self) -> None:
        self.db.close()
