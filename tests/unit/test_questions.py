"""How many questions are asked of a store: few if nothing is due, and as many about thirty schedules as about three."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from records import run, schedule, task
from rota.domain.model import Run, RunStatus, Schedule, ScheduleStatus, Watch
from rota.engine.commands import look_for_alarms, scan_ledger, sweep
from rota.engine.queries import last_runs
from rota.engine.queries.forecasts import forecast
from rota.stores.base import Store, Work
from rota.stores.memory.store import MemoryStore, MemoryTx
from stores import START, TestClock, put

HOUR, DAY, MONTH = timedelta(hours=1), timedelta(days=1), timedelta(days=30)
LIMIT = 50
Ask = Callable[[Store, Sequence[Schedule]], Awaitable[Any]]
ASKS: dict[str, Ask] = {
    "a look for alarms": lambda store, _: store.transact(look_for_alarms(LIMIT, DAY)),
    "a scan of the ledger": lambda store, _: store.transact(scan_ledger(None, LIMIT, DAY, ())),
    "the strips of last runs": lambda store, made: store.read(last_runs(made, 20)),
    "a forecast": lambda store, _: forecast(store, "default", START, START + DAY),
}


@pytest.fixture
def store(runner: asyncio.Runner) -> Iterator[MemoryStore]:
    store = MemoryStore(TestClock(runner.get_loop()))
    runner.run(store.open())
    yield store
    runner.run(store.close())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was asked so far."""
    questions: list[Any] = []
    for name in ("find", "get_many"):
        answer = getattr(MemoryTx, name)

        async def counted(tx: Any, question: Any, *args: Any, answer: Any = answer, **options: Any) -> Any:
            questions.append(question)
            return await answer(tx, question, *args, **options)

        monkeypatch.setattr(MemoryTx, name, counted)
    return questions


def watched(number: int) -> Schedule:
    return schedule(
        f"s{number:02}",
        status=ScheduleStatus.ACTIVE,
        next_run_at=START + HOUR,
        due_at=START + HOUR,
        created_at=START - 2 * MONTH,
        watch=Watch(at=START, since=START - 2 * MONTH),
    )


def rows(of: Schedule) -> list[Run]:
    """Of a month ago, so that a forecast has to look for them."""
    times = [START - MONTH - hours * HOUR for hours in range(3)]
    return [
        run(schedule_id=of.id, scheduled_at=at, started_at=at, completed_at=at, status=RunStatus.COMPLETED)
        for at in times
    ]


@pytest.mark.parametrize(
    ("work", "number"),
    [(look_for_alarms(LIMIT, DAY), 1), (sweep(LIMIT), 2)],
    ids=["a look for alarms", "a sweep"],
)
@pytest.mark.parametrize("is_empty", [True, False], ids=["empty", "not yet"])
async def test_who_finds_nothing_due_asks_once(
    store: MemoryStore, asked: list[Any], work: Work[Any], number: int, is_empty: bool
) -> None:
    """The first that will be due says that none is, and when to look again. A sweep asks for two things."""
    if not is_empty:
        later = Watch(at=START + HOUR, since=START)
        await put(store, replace(watched(1), watch=later), task(expires_at=START + HOUR))
    asked.clear()
    answer = await store.transact(work)
    assert (answer.next_in is None) == is_empty
    assert len(asked) == number


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
async def test_many_schedules_are_asked_about_at_once(store: MemoryStore, asked: list[Any], ask: Ask) -> None:
    numbers = []
    for some in (range(3), range(3, 33)):
        made = [watched(number) for number in some]
        await put(store, *made, *(row for each in made for row in rows(each)))
        asked.clear()
        await ask(store, made)
        numbers.append(len(asked))
    assert numbers[1] == numbers[0] > 0
