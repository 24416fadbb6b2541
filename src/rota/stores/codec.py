"""Records as stores keep them: one JSON text per record, and beside it the few columns that indexes need.

The text says what it is in its first field (`"record": "task.1"`), so that a later release can change a shape and still
read what this one wrote. Unknown fields are ignored, missing ones have their defaults. A text that cannot be read is
`Corrupt`, with the type and the id. A record that cannot be written as JSON is `Invalid`, before anything is stored.

A `Table` has the name, the columns, the encoder and the decoder of one record type. All stores share it: SQL stores
have its columns as real columns, and the memory store asks it which columns are *fixed*. Those never change once a
record is stored.

`readable` decodes many records at once, of which some may be damaged. It logs a damaged record once, leaves it out, and
asks for more, so that damaged records in front never hide the good ones behind them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ..domain.errors import Corrupt, Invalid
from ..domain.model import (
    Alarm,
    ApiKey,
    Artifact,
    Calendar,
    Event,
    Gate,
    NodeState,
    PausedQueue,
    Receipt,
    Record,
    Run,
    Schedule,
    Task,
    Template,
    TemplateTarget,
    Tenant,
)
from ..domain.template import alias_key
from ..domain.workflow import Signal, Step
from .queries import (
    RECORD_OF,
    OpenTasks,
    PastExpiry,
    Query,
    ScheduleByKey,
    ScheduleList,
    SchedulesByKeys,
)

R = TypeVar("R", bound=Record)

_ID = re.compile(r'"id"\s*:\s*"([^"\\]{1,255})"')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(at: datetime) -> int:
    """Microseconds since 1970: exact, and in the order of time."""
    since = at - _EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


class Column(NamedTuple):
    """A value of a record that an index needs. `is_time`: a datetime, which each dialect writes in its own way.
    `attribute` is the one that `get` reads; None: it computes, from those that it is `made_of`."""

    name: str
    get: Callable[[Any], Any]
    is_time: bool = False
    is_fixed: bool = False
    attribute: str | None = None
    made_of: tuple[str, ...] = ()


def _column(
    name: str, *, attribute: str = "", fixed: bool = False, time: bool = False, made_of: tuple[str, ...] = ()
) -> Column:
    attribute = attribute or name
    return Column(name, attrgetter(attribute), time, fixed, attribute, made_of or (attribute,))


def _columns(names: str) -> tuple[Column, ...]:
    """From words: `name`, `name!` for a fixed column, `name@` for a time."""
    return tuple(_column(word.rstrip("!@"), fixed="!" in word, time="@" in word) for word in names.split())


def getter(columns: Sequence[Column]) -> Callable[[Any], tuple[Any, ...]]:
    """All columns of a record at once; in one call, if all are plain attributes."""
    attributes = [column.attribute for column in columns if column.attribute is not None]
    if len(columns) > 1 and len(attributes) == len(columns):
        return attrgetter(*attributes)
    getters = [column.get for column in columns]
    return lambda record: tuple([get(record) for get in getters])


class Table(Generic[R]):
    """How records of one type are kept. `holds`: what a work has read of them is still true when it is committed, also
    if the work does not write them."""

    def __init__(self, type: type[R], columns: Sequence[Column], *, holds: bool = False) -> None:
        self.type = type
        self.holds = holds
        self.name = type.__name__.lower()
        self.columns = tuple(columns)
        self.encoder = msgspec.json.Encoder()
        self.decoder = msgspec.json.Decoder(type)
        self.values = getter(self.columns)
        self.identity = getter([column for column in self.columns if column.is_fixed])
        assert all(column.made_of for column in self.columns), "else its changes would not be seen"
        self._changing = [column for column in self.columns if not column.is_fixed]
        self._facts = sorted({name for column in self._changing for name in column.made_of})
        self._facts_of = attrgetter(*self._facts, "id")
        self._made_of: dict[frozenset[str], tuple[Column, ...]] = {}

    def changed(self, record: R, was: R) -> tuple[Column, ...]:
        """The columns that may differ. Most fields of a changed record are the same objects as before, and need not be
        compared."""
        facts = zip(self._facts, self._facts_of(record), self._facts_of(was), strict=False)
        return self.made_of(frozenset([name for name, new, old in facts if new is not old and new != old]))

    def made_of(self, fields: frozenset[str]) -> tuple[Column, ...]:
        """The columns that may differ if these fields do."""
        found = self._made_of.get(fields)
        if found is None:
            found = tuple(column for column in self._changing if not fields.isdisjoint(column.made_of))
            self._made_of[fields] = found
        return found

    def encode(self, record: R) -> bytes:
        try:
            return self.encoder.encode(record)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Invalid(f"{self.name} {record.id}", f"cannot be written as JSON ({error})") from error

    def decode(self, body: bytes | str) -> R:
        try:
            return self.decoder.decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Corrupt(f"{self.name} {_id_in(body)} cannot be read: {error}", table=self.name) from error


_TALLIED = (OpenTasks, PastExpiry, ScheduleList)
_NOT_TEXTS = {"is_workflow", "priority", "cancel_requested"}


def tallied(query: Query[Record], by: Sequence[str]) -> list[Column]:
    """The columns of a tally: they are texts, and it is a query that is tallied."""
    table = TABLES[RECORD_OF[type(query)]]
    texts = {each.name: each for each in table.columns if not each.is_time and each.name not in _NOT_TEXTS}
    if not isinstance(query, _TALLIED) or not by or not texts.keys() >= set(by):
        raise AssertionError(f"{type(query).__name__} is not tallied by {', '.join(by) or 'nothing'}")
    return [texts[name] for name in by]


def _id_in(body: bytes | str) -> str:
    """The id in a text that may be anything."""
    try:
        return str(msgspec.json.decode(body)["id"])
    except Exception:  # whatever the text is, the answer is a name for it
        text = body if isinstance(body, str) else body.decode(errors="replace")
        if found := _ID.search(text[:1000]):
            return found[1]
        return f"(no id, begins with {bytes(body[:40], 'utf-8') if isinstance(body, str) else body[:40]!r})"


def search_text(text: str) -> str:
    """How texts are compared when letter case does not matter: the same on every store."""
    return text.casefold()


def searched(schedule: Schedule) -> str:
    """The text in which a search looks: name, description, kind and tags, a line each."""
    kind, tags = target_kind(schedule) or "", getattr(schedule.target, "tags", ())
    return search_text("\n".join((schedule.key, schedule.description, kind, *tags)))


def target_kind(schedule: Schedule) -> str | None:
    return None if isinstance(schedule.target, TemplateTarget) else schedule.target.kind


def template_id(schedule: Schedule) -> str | None:
    return schedule.target.template_id if isinstance(schedule.target, TemplateTarget) else None


_TASK = (
    *_columns("tenant! created_at!@ schedule_id! is_workflow! kind queue priority status"),
    _column("available_at", attribute="ready_at", time=True, made_of=("available_at", "line")),
    *_columns("expires_at@ lease_expires_at@ worker_id cancel_requested completed_at@"),
    _column("returned_at", time=True, made_of=("status", "updated_at", "created_at", "waits_for")),
    _column("line"),
    _column("lined_at", time=True, made_of=("available_at", "line")),
    _column("planned_by", made_of=("gates", "passed", "slot_until")),
)
_SCHEDULE = (
    *_columns(
        "tenant! created_at!@ key status due_at@ deleted_at@ completed_at@ zone_data timezone watch_at@"
    ),
    Column("kind", target_kind, made_of=("target",)),
    Column("template_id", template_id, made_of=("target",)),
    Column("search", searched, made_of=("key", "description", "target")),
)
_RUN = _columns("tenant! schedule_id! scheduled_at!@ status completed_at@")
_EVENT = _columns("tenant! at!@ subject_id!")
_TENANT_ONLY = _columns("tenant!")

TABLES: dict[type[Record], Table[Any]] = {
    table.type: table
    for table in (
        Table(Task, _TASK),
        Table(Schedule, _SCHEDULE),
        Table(Run, _RUN),
        Table(Event, _EVENT),
        Table(
            Template,
            (
                *_TENANT_ONLY,
                Column("alias_key", lambda template: alias_key(template.alias), made_of=("alias",)),
            ),
        ),
        Table(Tenant, _TENANT_ONLY, holds=True),
        Table(ApiKey, _TENANT_ONLY),
        Table(Receipt, _columns("tenant! at@")),
        Table(Gate, _columns("tenant! subject! idle_since@")),
        Table(NodeState, (*_TENANT_ONLY, _column("seen_at", time=True))),
        Table(PausedQueue, _columns("tenant! queue")),
        Table(Artifact, _columns("tenant! task_id! name! content")),
        Table(Step, _columns("tenant! task_id! created_at!@ updated_at@ status")),
        Table(Signal, _columns("tenant! task_id! at!@ received_at@")),
        Table(Alarm, _columns("tenant! subject_id! began_at!@ over_at@ tell_at@")),
        Table(Calendar, _columns("tenant! name!")),
    )
}


log = logging.getLogger("rota")

_REMEMBERED = 10_000
_logged: set[str] = set()


async def readable(
    query: Query[Record],
    limit: int,
    fetch: Callable[[int], Awaitable[Sequence[Any]]],
    read: Callable[[Sequence[Any]], Iterable[Any]],
    left_out: list[Corrupt],
) -> list[Any]:
    """The records of the query: `fetch` gives rows for a limit, and `read` the records of rows. Damaged records go to
    `left_out`."""
    if isinstance(query, ScheduleByKey | SchedulesByKeys):
        return list(read(await fetch(limit)))  # if one were left out, there would be no such schedule
    asked = limit
    while True:
        rows = await fetch(asked)
        problems: list[Corrupt] = []
        records = read_each(rows, read, problems)
        if len(records) >= limit or len(rows) < asked:
            left_out += problems
            return records[:limit]
        asked *= 2


def read_each(
    rows: Sequence[Any], read: Callable[[Sequence[Any]], Iterable[Any]], left_out: list[Corrupt]
) -> list[Any]:
    """The records of these rows. Damaged ones are logged, and go to `left_out`."""
    try:
        return list(read(rows))
    except Corrupt:
        records: list[Any] = []
    problems: list[Corrupt] = []
    for row in rows:
        try:
            records += read([row])
        except Corrupt as problem:
            problems.append(problem)
    _log_once(problems)
    left_out += problems
    return records


def _log_once(problems: Sequence[Corrupt]) -> None:
    """Log each once per process: a worker meets it each time that it looks for work."""
    for problem in problems:
        if str(problem) not in _logged and len(_logged) < _REMEMBERED:
            _logged.add(str(problem))
            log.error("%s; it is left out until it is mended or removed (see `rota doctor`)", problem)
