"""A line: one use of a connection, with at most one transaction.

The transaction begins when it must: with the first row that is locked, or when one statement cannot be the
whole commit. Until then reads are statements of their own, which under read committed comes to the same and
saves two round trips. Behind a pooler it begins with the first statement, since only within a transaction do
two messages reach the same server.

`lookahead` remembers which locking queries found nothing the last time: those are first asked without a lock,
so that idle nodes begin no transactions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from ...domain.errors import Conflict, StoreError
from ...domain.model import Record, Schedule
from .errors import COMMITTING, FAILURES, in_words, is_lost
from .queries import Statements
from .rows import WRITERS, Rows, Writer

__all__ = ["Line", "Puts", "TooManyQuestions"]

Puts = dict[type[Record], dict[str, Record]]


class TooManyQuestions(BaseException):
    """A work that was to ask one question asks another, so that it needs a snapshot. No work catches it."""


class Line:
    """What works and flushes need of a connection."""

    def __init__(
        self,
        connection: Any,
        statements: Statements,
        *,
        begin: str,
        eager: bool,
        channel: str,
        sender: str,
        lookahead: set[str],
        place: str,
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._begin = begin
        self._eager = eager
        self._channel = channel
        self._sender = sender
        self._lookahead = lookahead
        self._place = place
        self._has_written = False
        self._has_news = False
        self._questions_left: int | None = None
        self.is_open = False
        self.failure: StoreError | None = None
        self.is_lost = False

    async def fetch(self, sql: str, args: Sequence[Any]) -> list[Any]:
        """The first column of what the statement gives."""
        return [row[0] for row in await self.fetch_rows(sql, *args)]

    def allow(self, questions: int) -> None:
        """From here on so many statements may be asked; one more raises `TooManyQuestions`."""
        self._questions_left = questions

    async def fetch_rows(self, sql: str, *args: Any) -> list[Any]:
        if self._questions_left is not None:
            if self._questions_left == 0:
                raise TooManyQuestions
            self._questions_left -= 1
        if self._eager:
            await self.begin()
        with self._heard("reading"):
            rows: list[Any] = await self._connection.fetch(sql, *args)
            return rows

    async def fetch_locked(
        self,
        name: str,
        look: Callable[[], Awaitable[list[Any]]],
        hold: Callable[[], Awaitable[list[Any]]],
    ) -> list[Any]:
        """What `hold` fetches, in a transaction; `look` fetches the same and holds nothing."""
        if not self.is_open and not self._eager and name in self._lookahead:
            if not await look():
                return []
            self._lookahead.discard(name)
        await self.begin()
        found = await hold()
        if not found:
            self._lookahead.add(name)
        return found

    async def clock(self) -> datetime:
        [now] = await self.fetch(self._statements.plain["clock"].sql, ())
        assert isinstance(now, datetime)
        return now

    async def begin(self) -> None:
        if not self.is_open:
            with self._heard("beginning a transaction"):
                await self._connection.execute(self._begin)
            self.is_open = True

    async def write(self, deletes: Puts, puts: Puts, *, last: bool, news: bool) -> None:
        """Write what was gathered: all of it, or Conflict. If it is the `last` of this line, it is committed."""
        writes = _in_order(self._statements, deletes, puts)
        self._has_news |= news
        alone = writes[0][1] if len(writes) == 1 else None
        if last and not self.is_open and not self._eager and alone is not None:
            rows = writes[0][2]
            announced = (self._channel, self._sender) if self._has_news else (None, None)
            with self._heard(COMMITTING):
                await self._connection.execute(alone, *rows.parameters, *announced)
            return
        if writes:
            await self.begin()
        for statement, _, rows in writes:
            self._has_written = True
            with self._heard("writing"):
                found = await self._connection.fetchval(statement, *rows.parameters)
            if found != len(rows.ids):
                ids = ", ".join(rows.ids[:10])
                self.failure = Conflict(f"changed or removed by someone else: one of {ids}")
                raise self.failure
        if last:
            await self.commit()

    async def commit(self) -> None:
        if not self.is_open:
            return
        name = "notify_and_commit" if self._has_written and self._has_news else "commit"
        text = self._statements.plain[name].sql
        with self._heard(COMMITTING if self._has_written else "ending a transaction"):
            await self._connection.execute(
                text.replace("{channel}", self._channel).replace("{sender}", self._sender)
            )
        self.is_open = False

    async def roll_back(self) -> None:
        if self.is_open and not self.is_lost:
            self.is_open = False
            with self._heard("rolling back"):
                await self._connection.execute(self._statements.plain["rollback"].sql)

    @contextmanager
    def _heard(self, doing: str) -> Iterator[None]:
        """What the driver raises is kept, in words: a work that catches it does not make it good."""
        try:
            yield
        except FAILURES as error:
            self.failure = in_words(error, self._place, doing)
            self.is_lost = self.is_lost or is_lost(error)
            raise self.failure from error


Write = tuple[str, str | None, Rows]
"""A statement, the one that is a commit of its own (if there is one), and the rows."""


def _in_order(statements: Statements, deletes: Puts, puts: Puts) -> list[Write]:
    """Deletes, replacements, inserts. Everything is encoded here."""
    writes: list[Write] = []
    inserts: list[Write] = []
    for of_type, gone in deletes.items():
        own, writer = statements.of[of_type], WRITERS[of_type]
        rows = writer.rows(gone.values(), identities=True)
        writes.append((writer.compose(own.delete, rows.varying), None, rows))
    for of_type, records in puts.items():
        own, writer = statements.of[of_type], WRITERS[of_type]
        old = [record for record in records.values() if record.version > 1]
        new = [record for record in records.values() if record.version == 1]
        for part in _deleted_first(old):
            writes.append(_write(writer, own.replace, own.replace_alone, part))
        if new:
            inserts.append(_write(writer, own.insert, own.insert_alone, new))
    return writes + inserts


def _deleted_first(records: list[Record]) -> list[list[Record]]:
    """In statements of their own, since within one the rows come in any order: a deleted schedule frees its key."""
    deleted: list[Record] = []
    others: list[Record] = []
    for record in records:
        is_deleted = isinstance(record, Schedule) and record.deleted_at is not None
        (deleted if is_deleted else others).append(record)
    return [part for part in (deleted, others) if part]


def _write(writer: Writer, statement: str, alone: str, records: list[Record]) -> Write:
    rows = writer.rows(records)
    return writer.compose(statement, rows.varying), writer.compose(alone, rows.varying), rows
