"""How many there are of which kind: `count` that stops, `tally` by columns; each against the same in Python."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from records import population, schedule, task
from rota.domain.model import LIVE, Record, Schedule, ScheduleStatus, Task, TaskStatus, TemplateTarget
from rota.stores.base import Store, Tx
from rota.stores.queries import OpenTasks, PastExpiry, Query, ScheduleList, TaskList
from stores import START, find, put, reading

TASK = ("tenant", "status", "queue", "kind", "schedule_id", "worker_id")
SCHEDULE = ("tenant", "status", "kind", "template_id")
TALLIED = [
    *((OpenTasks(), by) for by in (TASK, *((name,) for name in TASK), ("status", "tenant"))),
    *((PastExpiry(at=at), by) for at in (None, START) for by in (("tenant",), ("queue", "kind"))),
    *((ScheduleList(tenant=tenant), by) for tenant in (None, "default") for by in (SCHEDULE, ("status",))),
    (ScheduleList(tenant="other", deleted=True, status=ScheduleStatus.PAUSED, text="KEY"), ("status",)),
    (ScheduleList(tenant=None, tag="urgent"), ("kind", "tenant")),
]


def column(record: Any, name: str) -> str:
    of_target = isinstance(record, Schedule) and name in ("kind", "template_id")
    return str(getattr(record.target if of_target else record, name, None) or "")


@pytest.fixture
def filled(store: Store, runner: asyncio.Runner) -> list[Record]:
    return runner.run(put(store, *population(seed=9, size=120)))


async def test_a_tally_is_what_find_gives_by_its_columns(store: Store, filled: list[Record]) -> None:
    for query, by in TALLIED:
        found = await find(store, query, 10**6)
        wanted = Counter(tuple(column(each, name) for name in by) for each in found)
        assert wanted, query

        async def tally(tx: Tx, query: Query[Record] = query, by: tuple[str, ...] = by) -> Any:
            return await tx.tally(query, *by)

        answer = await reading(store, tally)
        assert answer == wanted, (query, by)
        assert all(type(text) is str for values in answer for text in values)


async def test_nothing_tallies_to_nothing(store: Store) -> None:
    assert await reading(store, lambda tx: tx.tally(OpenTasks(), "tenant")) == {}


async def test_a_schedule_of_a_template_has_no_kind(store: Store) -> None:
    await put(store, schedule(target=TemplateTarget(template_id="m1")), schedule())
    answer = await reading(store, lambda tx: tx.tally(ScheduleList(tenant=None), "kind", "template_id"))
    assert answer == {("", "m1"): 1, ("report", ""): 1}


@pytest.mark.parametrize(
    ("query", "by"),
    [
        (OpenTasks(), ("nothing",)),
        (OpenTasks(), ("created_at",)),
        (OpenTasks(), ("priority",)),
        (OpenTasks(), ("tenant, body",)),
        (OpenTasks(), ()),
        (TaskList(tenant="default", at=START), ("kind",)),
    ],
    ids=repr,
)
async def test_other_tallies_are_not_asked(store: Store, query: Query[Record], by: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError, match="is not tallied by"):
        await reading(store, lambda tx: tx.tally(query, *by))


async def test_a_tally_inside_a_transaction_sees_what_was_committed_before(store: Store) -> None:
    await put(store, task(tenant="a"), task(tenant="a"), task(tenant="b", status=TaskStatus.COMPLETED))
    ask: Callable[[Any], Any] = lambda tx: tx.tally(OpenTasks(), "tenant", "status")  # noqa: E731  as the others

    async def work(tx: Any) -> Any:
        return await ask(tx)

    assert await store.transact(work) == {("a", "pending"): 2}


async def test_a_count_stops_where_it_is_told(store: Store, filled: list[Record]) -> None:
    everything = [each for each in filled if isinstance(each, Task)]
    questions = {
        OpenTasks(): sum(task.status in LIVE for task in everything),
        TaskList(tenant="other", at=START): sum(task.tenant == "other" for task in everything),
    }
    for query, number in questions.items():
        assert number > 3
        for at_most in (0, 1, 3, number - 1, number, number + 1, 10**9):

            async def count(tx: Tx, query: Query[Record] = query, at_most: int = at_most) -> int:
                return await tx.count(query, at_most=at_most)

            answer = await reading(store, count)
            assert answer == min(number, at_most)


async def test_what_waits_again_is_counted_by_no_one_when_it_has_never_run(store: Store) -> None:
    later = START + timedelta(minutes=1)
    new, again = task("new"), task("again", updated_at=later)
    running = task("running", updated_at=later, status=TaskStatus.RUNNING)
    assert [each.returned_at for each in (new, again, running)] == [None, later, None]
    await put(store, new, again, running)
    assert await reading(store, lambda tx: tx.tally(OpenTasks(), "status")) == {
        ("pending",): 2,
        ("running",): 1,
    }
