"""Versions, identities and keys: what a store accepts, and what is a Conflict."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from records import api_key, event, receipt, run, schedule, task, template, tenant
from rota.domain.errors import Conflict
from rota.domain.model import Schedule, Task
from rota.stores.base import Store, Tx
from stores import START, get, put

_LATER = START + timedelta(minutes=1)


async def delete(store: Store, *records: Any) -> None:
    async def work(tx: Tx) -> None:
        for record in records:
            tx.delete(record)

    await store.transact(work)


@pytest.mark.parametrize("make", [task, schedule, run, event, template, tenant, api_key, receipt])
async def test_put_inserts_then_replaces_and_counts_versions(store: Store, make: Any) -> None:
    first = make("a")
    [stored] = await put(store, first)
    assert stored == replace(first, version=1)
    [again] = await put(store, stored)
    assert again.version == 2
    assert await get(store, type(first), "a") == again


async def test_nothing_there(store: Store) -> None:
    assert await get(store, Task, "nobody") is None


async def test_ids_of_different_types_do_not_meet(store: Store) -> None:
    await put(store, task("same"), schedule("same"), run("same"))
    assert (await get(store, Schedule, "same")) is not None


async def test_insert_of_an_existing_id_conflicts(store: Store) -> None:
    [stored] = await put(store, task("a"))
    with pytest.raises(Conflict):
        await put(store, task("a", kind="other"))
    assert await get(store, Task, "a") == stored


async def test_stale_version_conflicts(store: Store) -> None:
    [first] = await put(store, task("a"))
    [second] = await put(store, replace(first, kind="second"))
    with pytest.raises(Conflict):
        await put(store, replace(first, kind="late"))
    with pytest.raises(Conflict):
        await put(store, replace(second, version=7))
    assert await get(store, Task, "a") == second


async def test_replacing_what_is_not_there_conflicts(store: Store) -> None:
    with pytest.raises(Conflict):
        await put(store, task("ghost", version=3))
    assert await get(store, Task, "ghost") is None


async def test_a_conflict_in_one_record_writes_none_of_them(store: Store) -> None:
    [first] = await put(store, task("a"))
    await put(store, first)
    with pytest.raises(Conflict):
        await put(store, task("b"), run("b"), first, task("c"))
    assert await get(store, Task, "b") is None
    assert (await store.snapshot())["run"] == []


async def test_delete(store: Store) -> None:
    [first] = await put(store, task("a"))
    await delete(store, first)
    assert await get(store, Task, "a") is None
    [anew] = await put(store, task("a"))
    assert anew.version == 1


async def test_delete_of_a_stale_version_conflicts(store: Store) -> None:
    [first] = await put(store, task("a"))
    [second] = await put(store, first)
    with pytest.raises(Conflict):
        await delete(store, first)
    assert await get(store, Task, "a") == second


async def test_delete_of_what_is_not_there_conflicts(store: Store) -> None:
    with pytest.raises(Conflict):
        await delete(store, task("ghost", version=1))


@pytest.mark.parametrize(
    "change",
    [{"tenant": "thief"}, {"created_at": _LATER}, {"schedule_id": "s9"}, {"is_workflow": True}],
    ids=lambda change: next(iter(change)),
)
async def test_what_identifies_a_record_never_changes(store: Store, change: dict[str, Any]) -> None:
    [stored] = await put(store, task("a"))
    with pytest.raises(Conflict):
        await put(store, replace(stored, **change))
    with pytest.raises(Conflict):
        await delete(store, replace(stored, **change))
    assert await get(store, Task, "a") == stored


async def test_a_living_key_is_unique_in_its_tenant(store: Store) -> None:
    await put(store, schedule("a", key="daily"))
    await put(store, schedule("b", key="daily", tenant="other"))
    with pytest.raises(Conflict):
        await put(store, schedule("c", key="daily"))
    assert await get(store, Schedule, "c") is None


async def test_renaming_to_a_living_key_conflicts(store: Store) -> None:
    await put(store, schedule("a", key="daily"))
    [weekly] = await put(store, schedule("b", key="weekly"))
    with pytest.raises(Conflict):
        await put(store, replace(weekly, key="daily"))


async def test_two_inserts_of_one_key_in_one_work_conflict(store: Store) -> None:
    with pytest.raises(Conflict):
        await put(store, schedule("a", key="daily"), schedule("b", key="daily"))
    assert (await store.snapshot())["schedule"] == []


async def test_a_deleted_key_is_free_and_may_be_taken_many_times(store: Store) -> None:
    for name in ("a", "b", "c"):
        [stored] = await put(store, schedule(name, key="daily"))
        await put(store, replace(stored, deleted_at=_LATER))
    await put(store, schedule("d", key="daily"))
    with pytest.raises(Conflict):
        await put(store, replace(stored, version=2, deleted_at=None))


async def test_a_key_is_freed_and_taken_in_one_work(store: Store) -> None:
    [old] = await put(store, schedule("a", key="daily"))
    await put(store, schedule("b", key="daily"), replace(old, deleted_at=_LATER))
    living = await get(store, Schedule, "b")
    assert living is not None

    async def swap(tx: Tx) -> None:
        tx.put(schedule("c", key="daily"))
        tx.delete(living)

    await store.transact(swap)
    assert [each.id for each in (await store.snapshot())["schedule"]] == ["a", "c"]


async def test_a_work_writes_records_of_several_types(store: Store) -> None:
    """As a tick does; a store may send them together, and still finds the one that was changed meanwhile."""
    [plan] = await put(store, schedule("s1"))
    [changed] = await put(store, replace(plan, description="changed meanwhile"))
    with pytest.raises(Conflict):
        await put(store, replace(plan, run_count=1), run("r"), task("t"), event("e"), schedule("s2"))
    assert await get(store, Schedule, "s2") is None
    written = await put(store, replace(changed, run_count=1), run("r"), task("t"), event("e"), schedule("s2"))
    assert [each.version for each in written] == [3, 1, 1, 1, 1]
    assert [await get(store, type(each), each.id) for each in written] == written
