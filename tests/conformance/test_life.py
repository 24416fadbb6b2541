"""Opening, closing, and what is there in between."""

from __future__ import annotations

import asyncio

import pytest

from records import (
    alarm,
    api_key,
    artifact,
    calendar,
    event,
    gate,
    node,
    paused_queue,
    receipt,
    run,
    schedule,
    signal,
    step,
    task,
    template,
    tenant,
)
from rota.domain.errors import Unavailable
from rota.domain.model import Task
from rota.stores.base import RECORD_TYPES, Store, Tx
from stores import put


async def test_opening_and_closing_twice_is_fine(store: Store) -> None:
    await store.open()
    await put(store, task("a"))
    await store.close()
    await store.close()


async def test_a_closed_store_says_so(store: Store) -> None:
    async def work(tx: Tx) -> None:
        await tx.get(Task, "a")

    await store.close()
    for use in (store.transact(work), store.read(work), store.wait(None), store.snapshot()):
        with pytest.raises(Unavailable, match="not open"):
            await use


async def test_works_handed_in_before_closing_are_finished(store: Store) -> None:
    """Reads, too: more than there may be connections."""

    async def work(tx: Tx) -> str:
        tx.put(task())
        return "done"

    works = [asyncio.create_task(store.transact(work)) for _ in range(300)]
    reads = [asyncio.create_task(store.read(count_nothing)) for _ in range(40)]
    await asyncio.sleep(0)
    await store.close()
    answers = await asyncio.gather(*works, *reads, return_exceptions=True)
    assert answers == ["done"] * len(works) + [None] * len(reads)


async def count_nothing(tx: Tx) -> None:
    await tx.get(Task, "a")


async def test_migrating_again_does_nothing(store: Store) -> None:
    assert list(await store.migrate()) == []


async def test_snapshot_is_everything_by_type_sorted_by_id(store: Store) -> None:
    names = [of_type.__name__.lower() for of_type in RECORD_TYPES]
    assert await store.snapshot() == {name: [] for name in names}
    each_type = (
        *(task, schedule, run, event, template, tenant, api_key, receipt),
        *(gate, node, paused_queue, artifact, step, signal, alarm, calendar),
    )
    makers = dict(zip(names, each_type, strict=True))
    stored = {name: await put(store, make("b"), make("a"), make("c")) for name, make in makers.items()}
    snapshot = await store.snapshot()
    assert list(snapshot) == names
    for name, (b, a, c) in stored.items():
        assert snapshot[name] == [a, b, c]


async def test_url_names_the_store(store: Store) -> None:
    assert ":" in store.url
