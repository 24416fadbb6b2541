"""Tenants, their limits, keys and templates, and requests that are done once: on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota import RunReason, RunStatus, TenantStatus
from rota.domain import keys
from rota.domain.model import ApiKey, Receipt, Template, Tenant
from rota.domain.task import Submission
from rota.engine import commands
from simulation.faults import Fault, FaultyStore
from worlds import HOUR, MINUTE, START, World


async def audited(queue: rota.Queue, subject: str) -> list[rota.Event]:
    """Its events, also in order if the clock stood still."""

    def version(event: rota.Event) -> int:
        return int((event.after or event.before or {})["version"]) + (event.after is None)

    return sorted(await queue.events(subject), key=version)


async def refusal(call: Coroutine[Any, Any, Any]) -> str:
    """The code with which it is refused."""
    with pytest.raises(rota.Refused) as refused:
        await call
    return refused.value.code


def losing_answers(world: World, first: int = 1) -> rota.Queue:
    """A queue whose n-th commit happens, but is not answered."""
    faulty = FaultyStore(world.store, lambda number: Fault.AFTER if number == first else None)
    return rota.Queue(faulty, clock=world.clock, actor="tester")


# Suspension


async def test_nothing_new_begins_for_a_suspended_tenant(world: World) -> None:
    acme = world.queue.for_tenant("acme")
    failed = await acme.submit("work")
    await acme.cancel(failed.id)
    waiting = await acme.submit("work")
    await acme.create_schedule("s", task_type="work", cron="0 * * * *")
    await acme.create_schedule("gone", task_type="work", cron="0 * * * *")
    await acme.delete_schedule("gone")
    template = await acme.create_template("a", "work")
    before = await world.store.snapshot()
    suspended = await world.queue.suspend_tenant("acme", "unpaid")
    assert suspended.status is TenantStatus.SUSPENDED
    refused: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: acme.submit("work"),
        lambda: acme.submit_many([("work", 1)]),
        lambda: acme.start_workflow("work"),
        lambda: acme.replay(failed.id),
        lambda: acme.create_schedule("t", task_type="work", cron="0 * * * *"),
        lambda: acme.update_schedule("s", description="x"),
        lambda: acme.trigger_schedule("s"),
        lambda: acme.resume_schedule("s"),
        lambda: acme.restore_schedule("gone"),
        lambda: acme.create_template("b", "work"),
        lambda: acme.update_template(template.id, alias="x"),
        lambda: acme.execute_template(template.id),
    ]
    for call in refused:
        assert await refusal(call()) == "tenant_suspended"
    after = await world.store.snapshot()
    assert {kind: records for kind, records in after.items() if kind not in ("tenant", "event")} == {
        kind: records for kind, records in before.items() if kind not in ("tenant", "event")
    }
    await acme.cancel(waiting.id)
    await acme.pause_schedule("s")
    await acme.delete_schedule("s")
    await acme.delete_template(template.id)
    assert (await world.queue.submit("work")).tenant == "default"


async def test_due_times_of_a_suspended_tenant_are_skipped_and_tasks_still_run(world: World) -> None:
    done = []

    @world.app.task("work")
    async def work(input: object) -> None:
        done.append(input)

    acme = world.queue.for_tenant("acme")
    await acme.create_schedule("s", task_type="work", input="fired", cron="0 * * * *")
    await acme.submit("work", "before", schedule_at=START + 90 * MINUTE)
    operator, world.queue = world.queue, acme  # a worker takes the tasks of its own queue's tenant
    await operator.suspend_tenant("acme")
    async with world.running():
        await world.at(150 * MINUTE)
        rows = await acme.runs("s")
        assert [(row.status, row.reason) for row in rows] == [(RunStatus.SKIPPED, RunReason.SUSPENDED)] * 2
        assert done == ["before"]
        said = await acme.why("s", START + HOUR)
        assert said.endswith("It was skipped, because tenant acme was suspended.")
        coming = await acme.why("s", START + 3 * HOUR)
        assert "Tenant acme is suspended: unless it is resumed before, this time will be skipped." in coming
        await operator.resume_tenant("acme")
        assert "suspended" not in await acme.why("s", START + 3 * HOUR)
        await world.at(190 * MINUTE)
    assert done == ["before", "fired"]
    schedule = await acme.get_schedule("s")
    assert (schedule.run_count, schedule.status) == (1, "active")


async def test_a_worker_of_a_suspended_tenant_starts_and_finishes_what_was_submitted(world: World) -> None:
    @world.app.task("work")
    async def work(input: object) -> object:
        return input

    world.app.schedule("declared", task_type="work", cron="0 * * * *")
    waiting = await world.queue.submit("work", 1)
    await world.queue.suspend_tenant("default")
    async with world.running():
        assert (await world.queue.wait(waiting.id, 60)).output == 1
    assert await world.queue.list_schedules() == []


async def test_another_tenant_of_the_same_tick_fires(world: World) -> None:
    acme = world.queue.for_tenant("acme")
    for queue in (world.queue, acme):
        await queue.create_schedule("s", task_type="work", cron="0 * * * *")
    await world.queue.suspend_tenant("acme")
    await world.at(HOUR)
    await world.queue.run_due()
    assert (await world.ledger("s"))[0].status is RunStatus.RUNNING
    assert (await acme.runs("s"))[0].reason is RunReason.SUSPENDED


# Tenants


async def test_a_tenant_is_created_once_and_limited_by_name(world: World) -> None:
    made = await world.queue.create_tenant("acme", schedules=5)
    assert await world.queue.create_tenant("acme", schedules=5) == made
    assert await refusal(world.queue.create_tenant("acme")) == "tenant_exists"
    limited = await world.queue.set_limits("acme", pending_tasks=7, minimum_interval=timedelta(minutes=1))
    assert (limited.limits.schedules, limited.limits.pending_tasks) == (5, 7)
    assert (await world.queue.set_limits("acme", pending_tasks=None)).limits.pending_tasks is None
    assert await world.queue.get_tenant("acme") == await world.queue.set_limits("acme")
    acme = world.queue.for_tenant("acme")
    assert await refusal(acme.create_schedule("s", task_type="work", interval=59)) == "invalid"
    events = await audited(acme, "acme")
    assert [(event.action, event.subject_type, event.actor) for event in events] == [
        ("created", "tenant", "tester"),
        ("limited", "tenant", "tester"),
        ("limited", "tenant", "tester"),
    ]
    assert events[1].before is not None
    assert events[1].after is not None
    assert (events[1].before["limits"]["pending_tasks"], events[1].after["limits"]["pending_tasks"]) == (
        None,
        7,
    )


async def test_a_tenant_that_is_only_used_can_be_suspended_and_a_slip_of_the_pen_cannot(world: World) -> None:
    await world.queue.for_tenant("b c").submit("work")
    assert (await world.queue.suspend_tenant("b c")).id == "b c"
    assert (await world.queue.suspend_tenant("default")).status is TenantStatus.SUSPENDED
    assert await refusal(world.queue.suspend_tenant("acmee")) == "not_found"
    assert await refusal(world.queue.set_limits("acmee", schedules=1)) == "not_found"
    assert await refusal(world.queue.get_tenant("acmee")) == "not_found"
    assert await refusal(world.queue.suspend_tenant("*")) == "invalid"
    snapshot = await world.store.snapshot()
    assert [tenant.id for tenant in snapshot["tenant"]] == ["b c", "default"]


async def test_the_list_shows_what_each_tenant_has(world: World) -> None:
    await world.queue.create_tenant("empty", schedules=0)
    acme = world.queue.for_tenant("acme")
    await acme.create_schedule("s", task_type="work", cron="0 * * * *")
    await acme.create_schedule("t", task_type="work", cron="0 * * * *")
    await acme.delete_schedule("t")
    await world.queue.submit_many([("work", 1), ("work", 2)])
    used = [(use.tenant.id, use.schedules, use.open_tasks) for use in await world.queue.list_tenants()]
    assert used == [("acme", 1, 0), ("default", 0, 2), ("empty", 0, 0)]


async def test_no_queue_is_every_tenants(world: World) -> None:
    with pytest.raises(rota.Invalid, match="stands for every tenant"):
        world.queue.for_tenant("*")


# Limits


async def test_schedules_are_counted_among_the_living(world: World) -> None:
    await world.queue.create_tenant("acme", schedules=2)
    acme = world.queue.for_tenant("acme")
    for key in ("a", "b"):
        await acme.create_schedule(key, task_type="work", cron="0 * * * *")
    with pytest.raises(rota.Refused) as refused:
        await acme.create_schedule("c", task_type="work", cron="0 * * * *")
    assert refused.value.code == "limit_reached"
    assert str(refused.value) == (
        "tenant acme may have 2 schedules and has that many; delete some, or raise the limit"
    )
    await acme.delete_schedule("a")
    await acme.create_schedule("c", task_type="work", cron="0 * * * *")
    assert await refusal(acme.restore_schedule("a")) == "limit_reached"
    await world.queue.set_limits("acme", schedules=1)
    assert await acme.count_schedules() == 2
    await acme.update_schedule("c", description="an edit adds nothing")
    await world.queue.for_tenant("other").create_schedule("c", task_type="work", cron="0 * * * *")


async def test_pending_tasks_are_counted_if_there_is_a_limit(world: World) -> None:
    await world.queue.create_tenant("acme", pending_tasks=3)
    acme = world.queue.for_tenant("acme")
    await acme.submit("work", idempotency_key="k")
    with pytest.raises(rota.Refused) as refused:
        await acme.submit_many([("work", n) for n in range(3)])
    assert str(refused.value) == (
        "tenant acme may have 3 pending tasks and has no room for 3 more; wait until some have run, or raise"
        " the limit"
    )
    some = await acme.submit_many([("work", n) for n in range(2)])
    assert await refusal(acme.submit("work")) == "limit_reached"
    assert await refusal(acme.start_workflow("work")) == "limit_reached"
    await acme.submit("work", idempotency_key="k")
    template = await acme.create_template("t", "work")
    assert await refusal(acme.execute_template(template.id)) == "limit_reached"
    await acme.create_schedule("s", task_type="work", cron="0 * * * *")
    assert await refusal(acme.trigger_schedule("s")) == "limit_reached"
    await acme.cancel(some[0].id)
    await acme.trigger_schedule("s")
    assert await refusal(acme.replay(some[0].id)) == "limit_reached"
    assert await acme.count(status="pending") == 3


async def test_an_expired_task_takes_no_place(world: World) -> None:
    await world.queue.create_tenant("acme", pending_tasks=1)
    acme = world.queue.for_tenant("acme")
    await acme.submit("work", ttl=60)
    await world.at(MINUTE)
    await acme.submit("work")


async def test_a_tick_fills_the_room_and_skips_the_rest(world: World) -> None:
    await world.queue.create_tenant("acme", pending_tasks=2)
    acme = world.queue.for_tenant("acme")
    for key in ("a", "b", "c"):
        await acme.create_schedule(key, task_type="work", cron="0 * * * *", overlap_policy="allow")
    await world.queue.create_schedule("d", task_type="work", cron="0 * * * *")
    await world.at(HOUR)
    await world.queue.run_due()
    rows = [(await acme.runs(key))[0] for key in ("a", "b", "c")]
    assert sorted(str(row.status) for row in rows) == ["running", "running", "skipped"]
    skipped = next(row for row in rows if row.status is RunStatus.SKIPPED)
    assert skipped.reason is RunReason.LIMIT
    assert (await world.ledger("d"))[0].status is RunStatus.RUNNING
    said = [await acme.why(key, START + HOUR) for key in ("a", "b", "c")]
    assert sum("had as many pending tasks as it may have" in each for each in said) == 1
    for key in ("a", "b", "c"):
        assert (await acme.get_schedule(key)).next_run_at == START + 2 * HOUR
    await acme.cancel_many()
    await world.at(2 * HOUR)
    await world.queue.run_due()
    assert await acme.count(status="pending") == 2


# Keys


async def test_a_key_is_made_listed_and_revoked(world: World) -> None:
    made, token = await world.queue.create_key("ci", "operator")
    assert (made.name, made.role, made.tenant, made.created_by) == ("ci", "operator", "default", "tester")
    parsed = keys.parse(token)
    assert parsed is not None
    assert parsed[0] == made.id
    assert keys.matches(made, parsed[1])
    other = world.queue.for_tenant("acme")
    theirs, _ = await other.create_key("ci", "admin")
    every, _ = await world.queue.create_key("ops", "admin", every_tenant=True)
    assert every.tenant == "*"
    assert [key.id for key in await world.queue.list_keys()] == [made.id]
    everyone = await world.queue.list_keys(every_tenant=True, limit=2)
    rest = await world.queue.list_keys(every_tenant=True, cursor=everyone.next_cursor)
    assert {key.id for key in [*everyone, *rest]} == {made.id, theirs.id, every.id}
    assert await refusal(world.queue.revoke_key(theirs.id)) == "not_found"
    assert await refusal(world.queue.revoke_key("nobody")) == "not_found"
    revoked = await world.queue.revoke_key("ci")
    assert (revoked.id, revoked.revoked_by) == (made.id, "tester")
    assert await world.queue.revoke_key(made.id) == revoked
    assert await world.queue.revoke_key("ci") == revoked
    assert (await world.queue.revoke_key(theirs.id, every_tenant=True)).revoked_at is not None
    actions = [(event.action, event.detail, event.actor) for event in await audited(world.queue, made.id)]
    assert actions == [("created", "ci", "tester"), ("revoked", "ci", "tester")]
    assert made.digest not in str(await world.queue.events(made.id))


async def test_a_name_that_two_good_keys_have_is_not_enough(world: World) -> None:
    first, _ = await world.queue.create_key("ci", "viewer")
    second, _ = await world.queue.create_key("ci", "viewer")
    assert await refusal(world.queue.revoke_key("ci")) == "key_ambiguous"
    await world.queue.revoke_key(first.id)
    assert (await world.queue.revoke_key("ci")).id == second.id


async def test_bad_keys_are_refused(world: World) -> None:
    assert await refusal(world.queue.create_key("", "viewer")) == "invalid"
    assert await refusal(world.queue.create_key("x" * 101, "viewer")) == "invalid"
    assert await refusal(world.queue.create_key("x", "boss")) == "invalid"
    assert await world.queue.list_keys(every_tenant=True) == []


async def test_a_key_whose_answer_was_lost_is_one_key_and_the_token_is_good(world: World) -> None:
    made, token = await losing_answers(world).create_key("ci", "viewer")
    parsed = keys.parse(token)
    assert parsed is not None
    stored = await world.queue.list_keys()
    assert [key.id for key in stored] == [made.id]
    assert keys.matches(stored[0], parsed[1])
    assert len(await world.queue.events(made.id)) == 1


# Templates


async def test_a_template_lives_and_is_audited(world: World) -> None:
    made = await world.queue.create_template("mail", "send", parameters={"to": "a"}, queue="slow")
    assert await world.queue.get_template(made.id) == made
    edited = await world.queue.update_template(made.id, version=1, queue="fast", max_retries=1)
    assert (edited.queue, edited.parameters, edited.version) == ("fast", {"to": "a"}, 2)
    assert await refusal(world.queue.update_template(made.id, version=1, queue="x")) == "stale_version"
    assert await world.queue.update_template(made.id, queue="fast") == edited
    whole = await world.queue.update_template(made.id, replace=True, alias="mail", kind="send")
    assert (whole.queue, whole.parameters, whole.max_retries) == ("default", {}, None)
    assert whole.created_at == made.created_at
    assert await refusal(world.queue.update_template(made.id, replace=True, alias="mail")) == "invalid"
    await world.queue.delete_template(made.id)
    assert await refusal(world.queue.get_template(made.id)) == "not_found"
    assert await refusal(world.queue.delete_template(made.id)) == "not_found"
    actions = [(event.action, event.subject_type) for event in await audited(world.queue, made.id)]
    assert actions == [(action, "template") for action in ("created", "updated", "updated", "deleted")]


async def test_templates_are_paged_and_another_tenants_are_not_there(world: World) -> None:
    made = [await world.queue.create_template(f"t{n}", "work") for n in range(5)]
    other = world.queue.for_tenant("acme")
    seen: list[Template] = []
    cursor = None
    while True:
        page = await world.queue.list_templates(limit=2, cursor=cursor)
        seen += page
        cursor = page.next_cursor
        if cursor is None:
            break
    assert {template.id for template in seen} == {template.id for template in made}
    assert len(seen) == 5
    assert await other.list_templates() == []
    for call in (
        other.get_template(made[0].id),
        other.update_template(made[0].id, alias="x"),
        other.delete_template(made[0].id),
        other.execute_template(made[0].id),
    ):
        assert await refusal(call) == "not_found"


async def test_running_a_template_lays_its_input_over_the_parameters(world: World) -> None:
    got = []

    @world.app.task("send")
    async def send(**input: Any) -> Any:
        got.append(input)
        return input

    made = await world.queue.create_template("mail", "send", parameters={"to": "a", "n": 1})
    task = await world.queue.execute_template(made.id, {"n": 2})
    assert (task.kind, task.metadata) == ("send", {"template_id": made.id})
    await world.queue.create_schedule(
        "s", target=rota.TemplateTarget(template_id=made.id, input={"n": 3}), cron="0 * * * *"
    )
    async with world.running():
        await world.at(61 * MINUTE)
    assert got == [{"to": "a", "n": 2}, {"to": "a", "n": 3}]
    await world.queue.update_template(made.id, enabled=False)
    assert await refusal(world.queue.execute_template(made.id)) == "template_disabled"
    assert await refusal(world.queue.execute_template(made.id, [1])) == "template_disabled"
    await world.queue.update_template(made.id, enabled=True)
    assert await refusal(world.queue.execute_template(made.id, [1])) == "invalid"


async def test_deleting_a_template_deletes_its_schedules_a_few_at_a_time(world: World) -> None:
    made = await world.queue.create_template("t", "work")
    kept = await world.queue.create_template("u", "work")
    target = rota.TemplateTarget(template_id=made.id)
    for number in range(5):
        await world.queue.create_schedule(f"s{number}", target=target, cron="0 * * * *")
    await world.queue.create_schedule(
        "kept", target=rota.TemplateTarget(template_id=kept.id), cron="0 * * * *"
    )
    await world.at(HOUR)
    steps = 0
    work = commands.delete_template("default", made.id, "tester", limit=2)
    while not await world.store.transact(work):
        steps += 1
    assert steps == 2
    assert [schedule.key for schedule in await world.queue.list_schedules()] == ["kept"]
    row = (await world.ledger("s0"))[0]
    assert (row.status, row.reason) == (RunStatus.SKIPPED, RunReason.CHANGED)
    event = (await world.queue.schedule_history("s4"))[-1]
    assert (event.action, event.detail) == ("deleted", "its template t was deleted")


async def test_a_deletion_whose_answer_was_lost_is_done(world: World) -> None:
    made = await world.queue.create_template("t", "work")
    await losing_answers(world).delete_template(made.id)
    assert await world.queue.list_templates() == []


async def test_a_template_whose_answer_was_lost_is_one_template(world: World) -> None:
    made = await losing_answers(world).create_template("t", "work")
    task = await losing_answers(world).execute_template(made.id)
    assert [each.id for each in await world.queue.list_templates()] == [made.id]
    assert [each.id for each in await world.tasks()] == [task.id]


# Workflows


async def test_workflows_are_told_from_tasks(world: World) -> None:
    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow, input: int) -> int:
        return input + 1

    started = await world.queue.start_workflow("flow", 1, queue="slow", tags=["x"])
    task = await world.queue.submit("work")
    assert (started.is_workflow, started.queue, task.is_workflow) == (True, "slow", False)
    assert [each.id for each in await world.queue.list(workflow=True)] == [started.id]
    assert [each.id for each in await world.queue.list(workflow=False)] == [task.id]
    assert len(await world.queue.list()) == 2
    assert await world.queue.count(workflow=True) == 1
    untyped: Any = world.queue
    assert await refusal(untyped.list(workflow="yes")) == "invalid"
    async with world.running():
        assert (await world.queue.wait(started.id, 60)).output == 2


# Receipts


def submitted(id: str, kind: str = "work") -> Any:
    """A POST of a task, done once."""
    work = commands.submit_tasks([(id, Submission(kind=kind, input=[id]))], "default", "tester")
    return commands.once("r1", "default", f"POST {kind}", work, lambda tasks: (201, {"id": tasks[0].id}))


async def test_a_request_is_done_once_and_answered_the_same_again(world: World) -> None:
    first = await world.store.transact(submitted("t1"))
    assert first == (201, {"id": "t1"})
    assert await world.store.transact(submitted("t2")) == first
    assert [task.id for task in await world.tasks()] == ["t1"]
    with pytest.raises(rota.Refused) as refused:
        await world.store.transact(submitted("t3", "other"))
    assert refused.value.code == "idempotency_reused"


async def test_of_many_at_once_one_is_done(world: World) -> None:
    answers = await asyncio.gather(*(world.store.transact(submitted(f"t{n}")) for n in range(5)))
    assert len({str(answer) for answer in answers}) == 1
    assert len(await world.tasks()) == 1


async def test_what_is_refused_leaves_no_receipt(world: World) -> None:
    with pytest.raises(rota.Invalid):
        await world.store.transact(submitted("t1", "a b"))
    assert (await world.store.snapshot()).get("receipt", []) == []
    assert (await world.store.transact(submitted("t1"))) == (201, {"id": "t1"})


async def test_receipts_are_kept_for_a_day(world: World) -> None:
    await world.store.transact(submitted("t1"))
    await world.at(22 * HOUR)  # whoever keeps house from here on finds a receipt that is nearly old
    async with world.running():
        await world.at(23 * HOUR)
        assert await world.store.transact(submitted("t2")) == (201, {"id": "t1"})
        await world.at(25 * HOUR)
        snapshot = await world.store.snapshot()
        assert snapshot.get("receipt", []) == []
    assert await world.store.transact(submitted("t2")) == (201, {"id": "t2"})


# Timings that are not saved


async def test_a_timing_can_be_previewed_before_it_is_saved(world: World) -> None:
    timing, times, warnings = await world.queue.preview_timing(
        cron="0 9 13 * 5", timezone="Europe/London", n=2
    )
    assert timing == rota.Cron("0 9 13 * 5", "Europe/London")
    assert len(times) == 2
    assert times[0].local.hour == 9
    assert any("Both day fields" in warning for warning in warnings)
    _, times, _ = await world.queue.preview_timing(interval=60, start_at=START + HOUR, max_runs=3)
    assert [time.at for time in times] == [START + HOUR + n * MINUTE for n in range(3)]
    assert await world.queue.count_schedules() == 0
    for options, field in (
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "* * * * *", "interval": 5}, "interval"),
        ({"cron": "* * * * *", "timezone": "Mars/Base"}, "timezone"),
        ({"run_at": START - HOUR}, "run_at"),
        ({"cron": "* * * * *", "task_type": "x"}, "task_type"),
        ({}, "cron"),
    ):
        with pytest.raises(rota.Invalid) as refused:
            await world.queue.preview_timing(**options)
        assert refused.value.field == field
    assert await refusal(world.queue.preview_timing(cron="* * * * *", n=0)) == "invalid"


async def test_records_of_this_kind_are_in_the_snapshot(world: World) -> None:
    await world.queue.create_tenant("acme")
    await world.queue.create_key("ci", "viewer")
    await world.store.transact(submitted("t1"))
    snapshot = await world.store.snapshot()
    assert [type(snapshot[name][0]) for name in ("tenant", "apikey", "receipt")] == [Tenant, ApiKey, Receipt]
