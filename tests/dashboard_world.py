"""A tenant worth looking at: schedules with a ledger of every outcome, tasks in every state."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from rota import Queue
from rota.domain.ids import derived_id
from rota.domain.model import (
    Alarm,
    AlarmRule,
    Change,
    ChangeType,
    Failure,
    LogLine,
    NodeState,
    OpenWait,
    Run,
    RunReason,
    RunStatus,
    RunTrigger,
    Schedule,
    StepKind,
    Task,
    TaskStatus,
)
from rota.domain.schedule.run import run_id
from rota.domain.workflow import Step, StepStatus, step_id
from rota.engine.queries.schedules import next_times
from rota.stores.base import Tx

__all__ = ["furnish", "with_ledger"]

_TRACE = """Traceback (most recent call last):
  File "/srv/shop/orders.py", line 41, in sync_orders
    page = await client.orders(since=cursor)
TimeoutError: orders.example did not answer
"""


async def furnish(queue: Queue) -> None:
    """Schedules and tasks as a small shop has them."""
    shop: dict[str, dict[str, Any]] = {
        "daily-report": {
            "cron": "0 9 * * 1-5",
            "timezone": "Europe/London",
            "task_type": "report",
            "tags": ["finance"],
            "input": {"region": "EMEA", "format": "pdf"},
            "description": "Sales of the day before, for the finance team.",
            "exclude": ["closing-days"],
        },
        "sync-orders": {"interval": timedelta(minutes=5), "task_type": "sync_orders", "tags": ["shop"]},
        "nightly-backup": {
            "cron": "30 1 * * *",
            "timezone": "America/New_York",
            "task_type": "backup",
            "tags": ["ops"],
            "max_runs": 500,
        },
        "month-close": {
            "cron": "0 18 L * *",
            "timezone": "Europe/Berlin",
            "task_type": "close_month",
            "tags": ["finance"],
            "missed_run_policy": "execute_once",
        },
        "cleanup-sessions": {"cron": "0 * * * *", "task_type": "cleanup", "tags": ["shop"]},
        "price-feed": {
            "interval": timedelta(minutes=1),
            "task_type": "prices",
            "tags": ["shop"],
            "overlap_policy": "cancel_previous",
        },
        "newsletter": {
            "rrule": "FREQ=WEEKLY;BYDAY=TU;BYHOUR=8;BYMINUTE=0;BYSECOND=0",
            "timezone": "Europe/Paris",
            "task_type": "newsletter",
        },
    }
    await queue.create_calendar(
        "closing-days",
        days=["2026-12-24", "2026-12-31", "2027-12-24"],
        rules=["FREQ=YEARLY;BYMONTH=1;BYMONTHDAY=1", "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=25,26"],
        timezone="Europe/London",
        description="The shop is closed, and nobody reads reports.",
    )
    for number, region in enumerate(("north", "south", "east", "west", "harbour", "airport", "online") * 2):
        await queue.create_schedule(
            f"stock-{region}-{number // 7 + 1}", cron="0 6 * * *", timezone="Europe/London", task_type="stock"
        )
    for key, options in reversed(shop.items()):
        schedule = await queue.create_schedule(key, **options)
        bad = {"sync-orders": 0.12, "price-feed": 0.03}.get(key, 0.02)
        await with_ledger(
            queue, schedule, {"month-close": 11}.get(key, 60), bad=bad, failing=key == "sync-orders"
        )
    await queue.update_schedule(
        "daily-report", cron="0 9 * * 1-5", input={"region": "EMEA", "format": "xlsx"}
    )
    await queue.pause_schedule("cleanup-sessions", "until the migration is done")
    await queue.create_schedule("archive-orders", after=["sync-orders"], after_delay=60, task_type="archive")
    await _tasks(queue)
    await _fleet(queue)
    await _workflows(queue)


async def _fleet(queue: Queue) -> None:
    """Two nodes that are alive and one that fell silent, and a queue that is paused."""
    now = await queue.now()

    async def work(tx: Tx) -> None:
        for id, host, silent, running in (
            ("worker-a", "shop-1", 2, {"report": 1, "backup": 1}),
            ("worker-b", "shop-2", 8, {"sync_orders": 3}),
            ("worker-c", "shop-3", 600, {"export": 1}),
        ):
            tx.put(
                NodeState(
                    id=id,
                    host=host,
                    pid=4100 + silent,
                    release="0.1.0",
                    roles=("worker",) if id != "worker-b" else ("scheduler", "worker", "janitor"),
                    kinds=("backup", "cleanup", "export", "order", "report", "send_mail", "sync_orders"),
                    queues=None if id != "worker-c" else ("default", "slow"),
                    slots=4,
                    running=running,
                    started_at=now - timedelta(hours=5),
                    seen_at=now - timedelta(seconds=silent),
                    heartbeat=timedelta(minutes=2),
                )
            )

    await queue.store.transact(work)
    await _alarms(queue, now)
    await queue.pause_queue("mail", "the provider is down")


async def _alarms(queue: Queue, now: datetime) -> None:
    """One that goes on, and one that is over."""
    schedules = {each.key: each for each in await queue.list_schedules()}

    async def work(tx: Tx) -> None:
        for key, rule, detail, over in (
            ("sync-orders", AlarmRule.FAILURES, "the last 3 runs have failed", None),
            ("nightly-backup", AlarmRule.LATE, "its time of 01:30 started 12 minutes late", now),
        ):
            tx.put(
                Alarm(
                    id=derived_id("alarm", key), tenant=queue.tenant, rule=rule, subject_type="schedule",
                    subject_id=schedules[key].id, subject=key, detail=detail,
                    began_at=now - timedelta(minutes=17), over_at=over,
                )
            )  # fmt: skip

    await queue.store.transact(work)
    await queue.set_alarm_rules("finance", alarm_late="10m", alarm_failures=2)


async def _workflows(queue: Queue) -> None:
    """One that waits for a signal and for a child, and one that failed."""
    waits = await queue.start_workflow("order", {"order": 4711, "sku": "lamp"})
    broken = await queue.start_workflow("order", {"order": 4712, "sku": "chair"})
    child = await queue.submit("invoice", {"order": 4711})
    now = await queue.now()
    began = now - timedelta(minutes=6)
    waited = (OpenWait(StepKind.RECEIVE, "paid"), OpenWait(StepKind.CHILD, "invoice"))

    async def work(tx: Tx) -> None:
        found = await tx.get_many(Task, [waits.id, broken.id])
        for id, is_broken in ((waits.id, False), (broken.id, True)):
            task = found[id]
            steps = _steps(task, began, is_broken=is_broken, child=child.id)
            changes: dict[str, Any] = {"waits_for": waited, "live_children": 1}
            if is_broken:
                changes = {"status": TaskStatus.FAILED, "completed_at": steps[-1].completed_at}
                changes["error"] = steps[-1].error
            tx.put(
                replace(
                    task, started_at=began, workflow_version=2, **changes,
                    available_at=now + timedelta(days=2),
                )
            )  # fmt: skip
            for step in steps:
                tx.put(step)

    await queue.store.transact(work)


def _steps(task: Task, began: datetime, *, is_broken: bool, child: str) -> list[Step]:
    def step(key: str, kind: StepKind, start: int, end: int | None, **more: Any) -> Step:
        over = None if end is None else began + timedelta(seconds=end)
        status = StepStatus.WAITING if over is None else StepStatus.COMPLETED
        return Step(
            id=step_id(task, key), tenant=task.tenant, task_id=task.id, key=key, kind=kind,
            number=None if over is None else start, created_at=began + timedelta(seconds=start),
            updated_at=over or began,
            started_at=began + timedelta(seconds=start), completed_at=over, **{"status": status, **more},
        )  # fmt: skip

    steps = [
        step("reserve", StepKind.STEP, 2, 9, output={"shelf": "B7", "left": 3}),
        *(
            step(f"render:{page}", StepKind.STEP, 10, 40 + 25 * page, output=f"page-{page}.png")
            for page in range(3)
        ),
        step("cool-down", StepKind.SLEEP, 95, 155),
    ]
    if is_broken:
        failure = Failure(type="CardDeclined", message="the bank said no", traceback=_TRACE)
        return [
            *steps,
            step(
                "charge",
                StepKind.STEP,
                156,
                180,
                status=StepStatus.FAILED,
                error=failure,
                attempts=3,
            ),
        ]
    until = began + timedelta(days=3)
    return [
        *steps,
        step("invoice", StepKind.CHILD, 156, None, child_id=child),
        step("paid", StepKind.RECEIVE, 157, None, name="paid", due_at=until),
    ]


async def with_ledger(
    queue: Queue, schedule: Schedule, number: int, *, bad: float = 0.0, failing: bool = False
) -> None:
    """Past times of a schedule, and what became of them."""
    chance = random.Random(schedule.key)
    now = await queue.now()
    times: list[datetime] = []
    back = now - timedelta(minutes=7)
    step = _step(schedule, now)
    while len(times) < number:
        times.append(back)
        back -= step
    rows: list[Run | Task] = []
    for place, at in enumerate(reversed(times)):
        luck = chance.random()
        status = RunStatus.COMPLETED
        if luck < bad or (failing and place >= number - 3):
            status = RunStatus.FAILED
        elif luck < bad + 0.05:
            status = RunStatus.SKIPPED
        elif luck < bad + 0.06:
            status = RunStatus.CANCELLED
        rows += _row(schedule, at, status, step * chance.uniform(0.0002, 0.02))

    async def work(tx: Tx) -> None:
        known = await tx.get(Schedule, schedule.id)
        assert known is not None
        tx.put(replace(known, run_count=number, last_run_at=times[0]))
        for row in rows:
            tx.put(row)

    await queue.store.transact(work)


def _step(schedule: Schedule, now: datetime) -> timedelta:
    """The least distance of the next times: the same on every day of the week."""
    times = [each.at for each in next_times(schedule, now, 7)]
    return min((later - sooner for sooner, later in pairwise(times)), default=timedelta(days=1))


def _row(schedule: Schedule, at: datetime, status: RunStatus, length: timedelta) -> list[Run | Task]:
    ended = at + length
    if status is RunStatus.SKIPPED:
        return [
            Run(
                id=run_id(schedule, at),
                tenant=schedule.tenant,
                schedule_id=schedule.id,
                scheduled_at=at,
                status=status,
                reason=RunReason.OVERLAP,
                trigger=RunTrigger.SCHEDULED,
                created_at=at,
                completed_at=at,
            )
        ]
    id = derived_id("task", schedule.id, at.isoformat())
    row = Run(
        id=run_id(schedule, at),
        tenant=schedule.tenant,
        schedule_id=schedule.id,
        scheduled_at=at,
        status=status,
        target_id=id,
        created_at=at,
        started_at=at,
        completed_at=ended,
    )
    if status is not RunStatus.FAILED:
        return [row]
    failure = Failure(type="TimeoutError", message="orders.example did not answer", traceback=_TRACE)
    task = Task(
        id=id,
        tenant=schedule.tenant,
        kind=getattr(schedule.target, "kind", "report"),
        status=TaskStatus.FAILED,
        error=failure,
        created_at=at,
        available_at=at,
        started_at=at,
        completed_at=ended,
        updated_at=ended,
        attempt=1,
        schedule_id=schedule.id,
        run_id=row.id,
        scheduled_at=at,
        input={"since": at.isoformat()},
        history=_failed(at, ended),
        logs=(LogLine(at=at, attempt=1, message="reading orders since the last cursor"),),
    )
    return [replace(row, error=str(failure)), task]


def _failed(began: datetime, ended: datetime) -> tuple[Change, ...]:
    return (
        Change(number=1, at=began, status=TaskStatus.PENDING, actor="scheduler", type=ChangeType.CREATED),
        Change(number=2, at=began, status=TaskStatus.RUNNING, actor="w1", type=ChangeType.CLAIMED, attempt=1),
        Change(
            number=3,
            at=ended,
            status=TaskStatus.FAILED,
            actor="w1",
            type=ChangeType.FAILED,
            attempt=1,
            reason="TimeoutError: orders.example did not answer",
        ),
    )


async def _tasks(queue: Queue) -> None:
    now = await queue.now()
    for number in range(6):
        await queue.submit("send_mail", {"to": f"customer{number}@shop.example"}, queue="mail", tags=["shop"])
    long_ago = now - timedelta(minutes=4)
    waiting = await queue.submit("resize", {"image": "1.png"})
    lease: dict[str, Any] = {"lease_id": "l1", "worker_id": "worker-a", "attempt": 1, "started_at": long_ago}

    async def work(tx: Tx) -> None:
        task = await tx.get(Task, waiting.id)
        assert task is not None
        tx.put(replace(task, available_at=long_ago))
        for kind, left in (("report", 20), ("backup", 25), ("export", -40)):
            until = now + timedelta(seconds=left)
            tx.put(
                Task(
                    id=derived_id("running", kind),
                    kind=kind,
                    status=TaskStatus.RUNNING,
                    created_at=long_ago,
                    available_at=long_ago,
                    updated_at=long_ago,
                    lease_expires_at=until,
                    **lease,
                )
            )

    await queue.store.transact(work)
