"""Claims: plain tasks and workflows are taken in one order, and what is claimed is stored as the domain says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from records import paused_queue, task
from rota.domain import task as life
from rota.domain import workflow
from rota.domain.model import FOREVER, Task, TaskStatus
from rota.domain.task import Defaults
from rota.engine.commands import Claim, claim_tasks
from rota.stores.base import Store
from rota.stores.queries import ReturnedTasks
from stores import START, find, get, put

LEASE = timedelta(seconds=30)
PLAIN = Defaults(max_retries=7)
FLOW = Defaults(max_retries=7, workflow_version=3)


async def claimed(store: Store, limit: int = 10, **values: Any) -> list[Task]:
    shape: dict[str, Any] = {"worker_id": "w", "kinds": {"report": PLAIN, "flow": FLOW}}
    ask = Claim(lease_id="l", lease=LEASE, limit=limit, **(shape | values))
    return (await store.transact(claim_tasks(ask))).tasks


def flow(id: str, **values: Any) -> Task:
    return task(id, kind="flow", is_workflow=True, **values)


async def test_workflows_and_plain_tasks_have_one_order(store: Store) -> None:
    await put(
        store,
        task("a", priority=9),
        flow("b", priority=8),
        task("c", priority=7),
        flow("d", priority=6),
        task("e", priority=5),
    )
    assert [each.id for each in await claimed(store, 3)] == ["a", "b", "c"]
    assert [each.id for each in await claimed(store, 3)] == ["d", "e"]
    assert await claimed(store, 3) == []


async def test_what_is_claimed_is_what_the_domain_says(store: Store) -> None:
    records = await put(store, task("a"), flow("b", expires_at=START + timedelta(days=36500)))
    for old, each in zip(records, await claimed(store), strict=True):
        defaults = PLAIN if old.kind == "report" else FLOW
        said = life.claim(
            old, worker_id="w", lease_id="l", lease=LEASE, defaults=defaults, now=each.updated_at
        )
        assert each == replace(said, version=2) == await get(store, Task, old.id)


async def test_a_claim_passes_over_paused_queues_and_what_it_has_begun(store: Store) -> None:
    await put(
        store,
        *(flow("a"), flow("b", queue="mail"), flow("c"), task("d", queue="mail"), task("e"), task("f")),
        paused_queue(queue="mail"),
    )
    begun = frozenset({"a", "f"})
    assert sorted(each.id for each in await claimed(store, begun=begun)) == ["c", "e"]
    assert [each.id for each in await claimed(store, begun=begun)] == []
    assert [each.id for each in await claimed(store, kinds={"flow": FLOW})] == ["a"]


async def test_a_parked_workflow_goes_on_and_did_not_come_back(store: Store) -> None:
    await put(store, flow("a"))
    [begun] = await claimed(store)
    wait = workflow.Wait(key="sleep", kind=workflow.StepKind.SLEEP, delay=timedelta(0))
    now = await store.now()
    step = workflow.open_wait(begun, wait, now)
    [parked] = await put(store, workflow.park(begun, [wait], [step], now + LEASE))
    assert await get(store, Task, "a") == parked
    assert await find(store, ReturnedTasks(tenant="default", since=START - LEASE)) == []
    await put(store, replace(parked, available_at=START))
    [woken] = await claimed(store, worker_id="w2")
    assert woken == await get(store, Task, "a")
    assert (woken.status, woken.attempt, woken.waits_for) == (TaskStatus.RUNNING, 2, ())
    assert (woken.history, woken.started_at) == (begun.history, begun.started_at)


async def test_a_workflow_that_waits_for_no_time_is_parked_until_the_end_of_time(store: Store) -> None:
    await put(store, flow("a"))
    [begun] = await claimed(store)
    wait = workflow.Wait(key="receive:paid", kind=workflow.StepKind.RECEIVE, name="paid")
    step = workflow.open_wait(begun, wait, begun.updated_at)
    [parked] = await put(store, workflow.park(begun, [wait], [step], begun.updated_at))
    assert await get(store, Task, "a") == parked
    assert parked.available_at == FOREVER
    assert await claimed(store) == []
    sent = workflow.Signal(id="g", task_id="a", name="paid", at=START, actor="me")
    await put(store, workflow.send(parked, sent, begun.updated_at))
    assert [each.id for each in await claimed(store)] == ["a"]
