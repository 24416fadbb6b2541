"""Definitions of schedules and templates from end to end, on every store: limits, keys, aliases, declarations."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota.domain.errors import Invalid, NotFound, Refused
from rota.engine.commands import Retention, forget_old
from worlds import HOUR, MINUTE, SECOND, START, World

DAY = timedelta(days=1)


async def limited(world: World, schedules: int) -> rota.Queue:
    await world.queue.create_tenant("acme", schedules=schedules)
    return world.queue.for_tenant("acme")


async def once(queue: rota.Queue, key: str, at: Any = START + MINUTE) -> rota.Schedule:
    return await queue.create_schedule(key, task_type="work", run_at=at)


async def test_a_completed_schedule_leaves_room_for_others(world: World) -> None:
    queue = await limited(world, 2)
    await once(queue, "a")
    await once(queue, "b", START + 2 * HOUR)
    with pytest.raises(Refused, match="tenant acme may have 2 schedules and has that many"):
        await once(queue, "c", START + 3 * HOUR)
    await world.at(HOUR)
    await queue.run_due()
    assert (await queue.get_schedule("a")).status == "completed"
    await once(queue, "c", START + 3 * HOUR)
    with pytest.raises(Refused, match="has that many"):
        await once(queue, "d", START + 3 * HOUR)
    with pytest.raises(Refused, match="has that many"):
        await queue.update_schedule("a", run_at=START + 3 * HOUR)
    await queue.delete_schedule("b")
    await queue.update_schedule("a", run_at=START + 3 * HOUR)
    with pytest.raises(Refused, match="has that many"):
        await queue.restore_schedule("b")
    await queue.delete_schedule("c", hard=True)
    await queue.restore_schedule("b")


async def test_the_limit_is_exact_when_many_create_at_once(world: World) -> None:
    queue = await limited(world, 5)
    answers = await asyncio.gather(
        *(once(queue, f"s{number}") for number in range(20)), return_exceptions=True
    )
    refused = [each for each in answers if isinstance(each, Refused)]
    assert [each.code for each in refused] == ["limit_reached"] * 15
    assert await queue.count_schedules() == 5


async def test_a_schedule_is_found_by_an_id_that_its_program_made(world: World) -> None:
    queue = rota.Queue(world.queue.store, clock=world.queue.clock, new_id=lambda: "mine")
    made = await once(queue, "report")
    assert made.id == "mine"
    assert (await queue.get_schedule("mine")).key == "report"


async def test_who_takes_the_key_of_a_completed_schedule_retires_it(world: World) -> None:
    queue = world.queue
    first = await once(queue, "report")
    await once(queue, "other", START + 5 * HOUR)
    await world.at(HOUR)
    await queue.run_due()
    second = await once(queue, "report", START + 2 * HOUR)
    assert (await queue.get_schedule("report")).id == second.id != first.id
    assert [row.scheduled_at for row in await queue.runs(first.id)] == [START + MINUTE]
    history = await queue.schedule_history(first.id)
    assert [event.action for event in history] == ["created", "completed", "deleted"]
    assert history[-1].detail == f"its key was taken by schedule {second.id}"
    with pytest.raises(Refused, match="'report' is already in use"):
        await once(queue, "report", START + 3 * HOUR)
    await world.at(2 * HOUR)
    await queue.run_due()
    await queue.update_schedule("other", key="report")
    assert (await queue.get_schedule("report")).id not in (first.id, second.id)
    assert [row.scheduled_at for row in await queue.runs(second.id)] == [START + 2 * HOUR]


async def test_a_restored_schedule_takes_its_key_from_a_completed_one(world: World) -> None:
    queue = world.queue
    kept = await queue.create_schedule("s", task_type="work", cron="0 0 * * *")
    await queue.delete_schedule("s")
    await once(queue, "s")
    await world.at(HOUR)
    await queue.run_due()
    assert (await queue.restore_schedule(kept.id)).key == "s"
    assert (await queue.get_schedule("s")).id == kept.id


async def test_a_schedule_whose_template_was_deleted_is_not_restored(world: World) -> None:
    queue = world.queue
    template = await queue.create_template("nightly", kind="work")
    await queue.create_schedule("s", target=rota.TemplateTarget(template_id="nightly"), cron="0 0 * * *")
    await queue.delete_template("nightly")
    await queue.create_template("nightly", kind="work")  # another one of the same alias
    with pytest.raises(Refused, match=f"cannot be restored: its template {template.id} was deleted"):
        await queue.restore_schedule("s")
    assert await queue.list_schedules() == []
    kept = await queue.create_schedule(
        "kept", target=rota.TemplateTarget(template_id="nightly"), cron="0 0 * * *"
    )
    await queue.delete_schedule("kept")
    assert (await queue.restore_schedule("kept")).id == kept.id


async def test_completed_schedules_are_forgotten_with_their_ledgers(world: World) -> None:
    queue = world.queue
    old = await once(queue, "old")
    await queue.create_schedule("young", task_type="work", run_at=START + 20 * DAY)
    await queue.create_schedule("lasting", task_type="work", cron="0 0 * * *")
    await world.at(HOUR)
    await queue.run_due()

    async def forget() -> int:
        return await world.store.transact(forget_old(Retention(), 500))

    await world.at(30 * DAY + HOUR)
    await queue.run_due()
    assert await forget() == 0
    await world.at(30 * DAY + HOUR + SECOND)
    assert await forget() == 0, "its task has not run yet"
    for task in await queue.list(schedule="old"):
        await queue.cancel(task.id)
    assert await forget() == 2
    with pytest.raises(NotFound):
        await queue.runs(old.id)
    assert {each.key for each in await queue.list_schedules()} == {"young", "lasting"}
    assert [event.action for event in await queue.events() if event.subject_id == old.id][-1] == "purged"


async def test_a_template_is_found_by_its_alias(world: World) -> None:
    queue = world.queue
    made = await queue.create_template("Daily-Report", "work", parameters={"a": 1})
    for name in (made.id, "Daily-Report", "daily_report", "DAILYREPORT"):
        assert (await queue.get_template(name)).id == made.id
        with pytest.raises(Refused, match=r"alias '.*' is already in use by template 'Daily-Report'"):
            await queue.create_template("daily__REPORT", "work")
    assert (await queue.execute_template("daily_report")).input == {"a": 1}
    schedule = await queue.create_schedule(
        "s", target=rota.TemplateTarget(template_id="daily_report"), cron="0 * * * *"
    )
    assert schedule.target == rota.TemplateTarget(template_id=made.id)
    assert [each.key for each in await queue.list_schedules(template_id="dailyreport")] == ["s"]
    assert await queue.count_schedules(template_id="nobody") == 0
    other = await queue.create_template("other", "work")
    with pytest.raises(Refused, match="already in use"):
        await queue.update_template("other", alias="daily_report")
    with pytest.raises(Refused, match="is already in use by template 'Daily-Report'"):
        await queue.create_template(made.id, kind="work")  # one would get the other by it
    await queue.update_template(made.id, alias="DailyReport")
    await queue.for_tenant("acme").create_template("daily-report", "work")
    with pytest.raises(NotFound):
        await queue.for_tenant("umbrella").get_template("daily-report")
    await queue.delete_template("daily-report")
    assert await queue.count_schedules() == 0
    assert (await queue.update_template("other", alias="daily-report")).id == other.id


async def test_a_schedule_of_a_template_that_cannot_run_is_refused(world: World) -> None:
    queue = world.queue
    template = await queue.create_template("report", "work")

    async def schedule(name: str) -> rota.Schedule:
        return await queue.create_schedule(
            "s", target=rota.TemplateTarget(template_id=name), cron="0 * * * *"
        )

    with pytest.raises(Invalid, match=r"^template_id: there is no template 'nowhere'; create it first"):
        await schedule("nowhere")
    await queue.update_template("report", enabled=False)
    with pytest.raises(Invalid, match=r"^template_id: template 'report' is disabled; enable it first"):
        await schedule("report")
    assert await queue.count_schedules() == 0
    await queue.update_template("report", enabled=True)
    await schedule("report")
    await queue.update_template("report", enabled=False)
    await queue.update_schedule("s", input={"b": 2})
    with pytest.raises(Invalid, match="there is no template"):
        await queue.update_schedule("s", target=rota.TemplateTarget(template_id="gone"))
    assert (await queue.get_schedule("s")).target == rota.TemplateTarget(
        template_id=template.id, input={"b": 2}
    )


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (rota.TaskTarget(kind="rota.shell"), "'rota.shell' runs the commands of templates"),
        (rota.TaskTarget(kind="rota.http"), "'rota.http' runs the commands of templates"),
        (rota.WorkflowTarget(kind="rota.shell"), "'rota.shell' runs the commands of templates"),
        (rota.WorkflowTarget(kind="work"), "'work' is registered as a task; give a rota.TaskTarget"),
        (rota.TaskTarget(kind="flow"), "'flow' is registered as a workflow; give a rota.WorkflowTarget"),
    ],
)
async def test_a_schedule_of_a_kind_that_cannot_be_what_it_says_is_refused(
    world: World, target: rota.Target, problem: str
) -> None:
    @world.app.task("work")
    async def work() -> None: ...

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None: ...

    queue = rota.Queue(world.store, clock=world.clock, app=world.app)
    there = await queue.create_schedule("there", task_type="work", cron="0 * * * *")
    options: Any = {"target": target, "cron": "0 * * * *"}
    world.app.schedules["declared"] = options
    word = "workflow" if isinstance(target, rota.WorkflowTarget) else "task_type"
    of_a_file = {"schedules": {"s": {word: target.kind, "cron": "0 * * * *"}}}
    for attempt in (
        lambda: queue.create_schedule("s", **options),
        lambda: queue.create_schedules({"s": options}),
        lambda: queue.update_schedule("there", target=target),
        lambda: queue.plan_create("s", **options),
        lambda: queue.plan_update("there", target=target),
        lambda: queue.plan(of_a_file),
        lambda: queue.apply(of_a_file),
        lambda: queue.declare_schedules(world.app),
    ):
        with pytest.raises(Invalid, match=f"task_type: {problem}"):
            await attempt()
    assert await queue.list_schedules() == [there]


async def test_declared_schedules_are_applied_together_or_not_at_all(world: World) -> None:
    queue, app = world.queue, rota.App()
    await queue.create_schedule("b", task_type="work", cron="0 1 * * *")
    app.schedule("a", task_type="work", cron="0 2 * * *")
    app.schedule("b", task_type="work", cron="0 3 * * *")
    app.schedule("c", task_type="work", cron="61 * * * *")
    with pytest.raises(Invalid, match=r"^schedule 'c': cron: "):
        await queue.declare_schedules(app)
    assert [each.key for each in await queue.list_schedules()] == ["b"]
    assert (await queue.get_schedule("b")).version == 1
    app.schedules["c"] = {"target": rota.TemplateTarget(template_id="nowhere"), "cron": "0 * * * *"}
    with pytest.raises(Invalid, match=r"^schedule 'c': template_id: there is no template 'nowhere'"):
        await queue.declare_schedules(app)
    assert [each.key for each in await queue.list_schedules()] == ["b"]
    await queue.create_template("report", "work")
    app.schedules["c"]["target"] = rota.TemplateTarget(template_id="Report")
    for _ in range(2):
        await queue.declare_schedules(app)
        versions = {each.key: each.version for each in await queue.list_schedules()}
        assert versions == {"a": 1, "b": 2, "c": 1}, "what is as declared stays as it is"


async def test_declared_schedules_keep_to_the_limit_together(world: World) -> None:
    queue, app = await limited(world, 2), rota.App()
    await once(queue, "there")
    for key in "ab":
        app.schedule(key, task_type="work", cron="0 2 * * *")
    with pytest.raises(Refused, match="tenant acme may have 2 schedules and has no room for 2 more"):
        await queue.declare_schedules(app)
    assert await queue.count_schedules() == 1


async def test_a_declared_schedule_that_completed_stays_so(world: World) -> None:
    queue, app = world.queue, rota.App()
    app.schedule("once", task_type="work", run_at=START + MINUTE)
    await queue.declare_schedules(app)
    await world.at(HOUR)
    await queue.run_due()
    await queue.declare_schedules(app)
    schedule = await queue.get_schedule("once")
    assert (schedule.status, schedule.run_count) == ("completed", 1)


async def test_a_declared_kind_is_what_it_is_registered_as(world: World) -> None:
    queue, app = world.queue, rota.App()

    @app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None: ...

    app.schedule("s", task_type="flow", cron="0 2 * * *")
    with pytest.raises(Invalid, match=r"^schedule 's': task_type: 'flow' is registered as a workflow; give"):
        await queue.declare_schedules(app)


async def test_an_unknown_option_names_all_that_are_accepted(world: World) -> None:
    await world.schedule("s", cron="0 * * * *")
    untyped: Any = world.queue
    for call in (untyped.create_schedule, untyped.update_schedule):
        with pytest.raises(Invalid) as caught:
            await call("s", task_type="work", cron="0 * * * *", every=5)
        accepted = str(caught.value)
        assert accepted.startswith("every: there is no such option; accepted are ")
        for name in (
            "cron",
            "interval",
            "rule",
            "task_type",
            "target",
            "input",
            "tags",
            "timezone",
            "jitter",
        ):
            assert f" {name}" in accepted


async def test_parameters_are_checked_when_they_are_given(world: World) -> None:
    schema = {"required": ["day"], "properties": {"day": {"type": "integer"}}}
    await world.queue.create_template("report", "work", parameters={"day": 1}, parameters_schema=schema)
    wrong = rota.TemplateTarget(template_id="report", input={"day": "one"})
    with pytest.raises(Invalid, match=r"^input\.day: expected integer, got 'one'$"):
        await world.queue.create_schedule("bad", target=wrong, cron="0 * * * *")
    with pytest.raises(Invalid, match=r"^input\.day: expected integer, got 'one'$"):
        await world.queue.execute_template("report", {"day": "one"})
    assert (await world.queue.execute_template("report", {"day": 2})).input == {"day": 2}
    with pytest.raises(Invalid, match=r"^parameters_schema\.pattern: this keyword"):
        await world.queue.update_template("report", parameters_schema={"pattern": "x"})
    await world.queue.update_template("report", parameters_schema=None)
    assert (await world.queue.execute_template("report", {"day": "one"})).input == {"day": "one"}
    assert not await world.queue.list_schedules()


def test_what_is_refused_where_it_is_declared_names_the_schedule() -> None:
    app = rota.App()
    problem = "schedule 'nightly': timezone: 'Mars/Base' is not a known time zone"
    with pytest.raises(rota.Invalid, match=problem):
        app.schedule("nightly", task_type="work", cron="0 2 * * *", timezone="Mars/Base")
    with pytest.raises(rota.Invalid, match=problem):
        app.task("nightly", cron="0 2 * * *", timezone="Mars/Base")(lambda: None)
