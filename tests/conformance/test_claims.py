"""Claims and results: plain tasks and workflows are taken in one order, and what is claimed or settled is stored as the
domain says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from records import gate, paused_queue, task
from rota.domain import task as life
from rota.domain import workflow
from rota.domain.errors import Refused
from rota.domain.model import FOREVER, Failure, Gate, Limit, StepKind, Task, TaskStatus
from rota.domain.task import Completed, Defaults, Failed, Released
from rota.engine.commands import Claim, Result, claim_tasks, settle_tasks
from rota.stores.base import Store
from rota.stores.queries import ReturnedTasks
from stores import START, find, get, put

LEASE = timedelta(seconds=30)
PLAIN = Defaults(max_retries=7)
FLOW = Defaults(max_retries=7, workflow_version=3)


async def claimed(store: Store, limit: int = 10, **values: Any) -> list[Task]:
    shape: dict[str, Any] = {"worker_id": "w", "lease_id": "l", "kinds": {"report": PLAIN, "flow": FLOW}}
    ask = Claim(lease=LEASE, limit=limit, **(shape | values))
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
    wait = workflow.Wait(key="sleep", kind=StepKind.SLEEP, delay=timedelta(0))
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
    wait = workflow.Wait(key="receive:paid", kind=StepKind.RECEIVE, name="paid")
    step = workflow.open_wait(begun, wait, begun.updated_at)
    [parked] = await put(store, workflow.park(begun, [wait], [step], begun.updated_at))
    assert await get(store, Task, "a") == parked
    assert parked.available_at == FOREVER
    assert await claimed(store) == []
    sent = workflow.Signal(id="g", task_id="a", name="paid", at=START, actor="me")
    await put(store, workflow.send(parked, sent, begun.updated_at))
    assert [each.id for each in await claimed(store)] == ["a"]


async def test_a_batch_of_results_is_stored_as_the_domain_says_and_answered_in_order(store: Store) -> None:
    """Completions that are one update, among others that are settled one by one."""
    failed = Failed(failure=Failure(type="E", message="m"))
    outcomes: dict[str, Any] = {
        "a": Completed({"n": 1}),
        "b": failed,
        "c": Completed(),
        "d": Released(),
        "e": Completed("ü"),
        "f": Completed(),
    }
    of_gate = {"f": {"gates": ("g",), "passed": 1}}
    await put(store, *(task(id, **of_gate.get(id, {})) for id in outcomes))
    held = {each.id: each for each in await claimed(store)}
    results = [Result(task=held[id], outcome=outcome) for id, outcome in outcomes.items()]
    answers = await store.transact(settle_tasks(results))
    for (id, outcome), answer in zip(outcomes.items(), answers, strict=True):
        assert isinstance(answer, Task)
        said = life.settle(held[id], outcome, lease_id="l", now=answer.updated_at)
        left = {"passed": answer.passed} if id in of_gate else {}
        assert answer == replace(said, version=3, **left) == await get(store, Task, id)


async def test_results_that_came_too_late_hold_up_no_others(store: Store) -> None:
    """The same again for a work whose first run trusts what is no longer true."""
    await put(store, *(task(id) for id in "abc"))
    first = {each.id: each for each in await claimed(store)}
    [renewed] = await put(
        store, life.renew(first["b"], lease_id="l", lease=LEASE, now=START, progress="half")
    )
    await put(store, life.settle(first["c"], Released(), lease_id="l", now=START))
    [again] = await claimed(store, lease_id="l2")
    late = [*first.values(), again]
    a, b, lost, c = await store.transact(
        settle_tasks([Result(task=each, outcome=Completed(each.lease_id)) for each in late])
    )
    assert isinstance(lost, Refused)
    assert lost.code == "lease_lost"
    for answer, before in ((a, first["a"]), (b, renewed), (c, again)):
        assert isinstance(answer, Task)
        outcome = Completed(before.lease_id)
        said = life.settle(before, outcome, lease_id=before.lease_id or "", now=answer.updated_at)
        assert answer == replace(said, version=before.version + 1) == await get(store, Task, before.id)
    again_a, *_ = await store.transact(
        settle_tasks([Result(task=first["a"], outcome=Completed("l"))])
    )  # the answer was lost, and it is asked again
    assert again_a == a


async def test_tasks_that_limits_turn_away_hide_none_behind_them(store: Store) -> None:
    """One claim puts all of them in the line, also if it has a slot for one task only."""
    full = gate("queue-g", limit=Limit(concurrency=1), inside=1)
    asking = [task(f"asks-{n:02}", gates=("queue-g",), available_at=START - LEASE) for n in range(50)]
    await put(store, full, *asking, task("free", available_at=START))
    assert [each.id for each in await claimed(store, 1)] == ["free"]
    after = await get(store, Gate, full.id)
    assert after is not None
    assert (after.inside, after.has_line) == (1, True)


async def test_a_gate_that_one_leaves_and_another_enters_is_not_written(store: Store) -> None:
    [full] = await put(store, gate("kind-g", limit=Limit(concurrency=1), inside=1, has_line=True))
    inside = {"gates": ("kind-g",), "passed": 1}
    in_line = {"gates": ("kind-g",), "line": "kind-g"}
    await put(store, task("a", **inside), task("b", **in_line), task("c", **in_line))
    for id in "ab":
        [held] = await claimed(store, kinds={"report": Defaults(limit=full.limit)})
        assert (held.id, held.passed, held.line) == (id, 1, None)
        assert await get(store, Gate, full.id) == full
        await store.transact(settle_tasks([Result(task=held, outcome=Completed())]))
        ended = await get(store, Task, id)
        assert ended is not None
        assert (ended.status, ended.passed) == (TaskStatus.COMPLETED, 0)
    [last] = await claimed(store)
    await store.transact(settle_tasks([Result(task=last, outcome=Completed())]))
    empty = await get(store, Gate, full.id)
    assert empty is not None
    assert (last.id, empty.inside, empty.has_line, empty.idle_since) == ("c", 0, False, empty.updated_at)


async def test_results_of_all_kinds_leave_a_gate_together(store: Store) -> None:
    """Completions that are one update, one that is not, a failure and a retry."""
    await put(store, gate("kind-g", limit=Limit(concurrency=6), inside=6, has_line=True))
    places = {"gates": ("kind-g",), "passed": 1}
    await put(store, *(task(id, **places, max_retries=0 if id == "d" else 3) for id in "abcdef"))
    await put(store, *(task(f"in line {n}", gates=("kind-g",), line="kind-g") for n in range(4)))
    held = {each.id: each for each in await claimed(store)}
    failed = Failed(failure=Failure(type="E", message="m"), delay=timedelta(hours=1))
    results = [
        Result(task=held["a"], outcome=Completed()),
        Result(task=held["b"], outcome=Completed(), progress=1.0),
        Result(task=held["c"], outcome=failed),
        Result(task=held["d"], outcome=failed),
        Result(task=held["e"], outcome=Completed(5)),
    ]
    answers = await store.transact(settle_tasks(results))
    statuses = [answer.status for answer in answers if isinstance(answer, Task)]
    assert statuses == ["completed", "completed", "pending", "failed", "completed"]
    after = await get(store, Gate, "kind-g")
    assert after is not None
    assert (after.inside, after.has_line) == (5, False)
    let_in = [await get(store, Task, f"in line {n}") for n in range(4)]
    assert [(each.passed, each.line) for each in let_in if each is not None] == [(1, None)] * 4


async def test_a_claim_brings_along_what_one_took_whose_answer_was_lost(store: Store) -> None:
    ids = ["a", "b", "c", "d", "e", "f"]
    await put(store, *(task(id, priority=9 - number) for number, id in enumerate(ids)))
    lost = [*await claimed(store, 1, lease_id="lost"), *await claimed(store, 1, lease_id="lost too")]
    await claimed(store, 1, lease_id="answered")
    await claimed(store, 1, worker_id="other", lease_id="lost")  # which is not ours
    unanswered = frozenset({"lost", "lost too", "never was"})
    found = await claimed(store, 3, lease_id="next", unanswered=unanswered)
    assert found[:2] == lost
    assert [(each.id, each.lease_id) for each in found] == [("a", "lost"), ("b", "lost too"), ("e", "next")]


async def test_a_claim_leaves_alone_what_was_taken_so_long_ago_that_others_may_have_it(store: Store) -> None:
    past = await store.now() - LEASE
    held = {"status": TaskStatus.RUNNING, "worker_id": "w", "lease_id": "lost", "lease_expires_at": past}
    await put(store, task("a", **held), task("b"))
    assert [each.id for each in await claimed(store, unanswered=frozenset({"lost"}))] == ["b"]
