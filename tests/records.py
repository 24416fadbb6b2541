"""Records for tests: `task(...)`, `schedule(...)`, … with whatever matters given, and populations of all
shapes."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import count
from typing import Any

from rota.domain.model import (
    LIVE,
    Alarm,
    AlarmRule,
    ApiKey,
    Artifact,
    Calendar,
    Event,
    Gate,
    Limit,
    NodeState,
    PausedQueue,
    Receipt,
    Record,
    Role,
    Run,
    RunStatus,
    Schedule,
    ScheduleStatus,
    StepKind,
    Task,
    TaskStatus,
    TaskTarget,
    Template,
    TemplateTarget,
    Tenant,
    TenantStatus,
    Watch,
    WorkflowTarget,
)
from rota.domain.recurrence import Cron, Interval
from rota.domain.workflow import Signal, Step, StepStatus
from stores import START

_numbers = count(1)

TENANTS = ("default", "other")
QUEUES = ("default", "mail", "ärger")
KINDS = ("report", "send", "send_later")
TAGS = ("nightly", "urgent")
WORKERS = ("w1", "w2")
SCHEDULES = ("s1", "s2", "s3")
GATES = ("kind-1", "queue-1")
OWNERS = ("t1", "t2", "t3")
CONTENTS = ("a" * 64, "b" * 64)
FLOWS = ("t1", "t2", "t3")
ZONES = ("", "2025b", "2026a", "2026b")


def fresh_id(prefix: str = "") -> str:
    return f"{prefix}{next(_numbers):06d}"


def task(id: str | None = None, **values: Any) -> Task:
    defaults: dict[str, Any] = {
        "kind": "report",
        "created_at": START,
        "available_at": START,
        "updated_at": START,
    }
    return Task(id=id or fresh_id("t"), **(defaults | values))


def schedule(id: str | None = None, **values: Any) -> Schedule:
    own_id = id or fresh_id("s")
    defaults: dict[str, Any] = {
        "key": f"key-{own_id}",
        "timing": Interval(every=timedelta(minutes=5), anchor=START),
        "target": TaskTarget(kind="report"),
        "created_at": START,
        "updated_at": START,
    }
    return Schedule(id=own_id, **(defaults | values))


def run(id: str | None = None, **values: Any) -> Run:
    defaults: dict[str, Any] = {"schedule_id": "s1", "scheduled_at": START, "created_at": START}
    return Run(id=id or fresh_id("r"), **(defaults | values))


def event(id: str | None = None, **values: Any) -> Event:
    defaults: dict[str, Any] = {
        "at": START,
        "actor": "test",
        "action": "create",
        "subject_type": "schedule",
        "subject_id": "s1",
    }
    return Event(id=id or fresh_id("e"), **(defaults | values))


def template(id: str | None = None, **values: Any) -> Template:
    id = id or fresh_id("m")
    defaults: dict[str, Any] = {
        "alias": f"alias of {id}",
        "kind": "report",
        "created_at": START,
        "updated_at": START,
    }
    return Template(id=id, **(defaults | values))


def tenant(id: str | None = None, **values: Any) -> Tenant:
    defaults: dict[str, Any] = {"created_at": START}
    return Tenant(id=id or fresh_id("n"), **(defaults | values))


def api_key(id: str | None = None, **values: Any) -> ApiKey:
    defaults: dict[str, Any] = {
        "name": "ci",
        "role": Role.VIEWER,
        "digest": "0" * 64,
        "created_at": START,
        "created_by": "cli",
    }
    return ApiKey(id=id or fresh_id("k"), **(defaults | values))


def receipt(id: str | None = None, **values: Any) -> Receipt:
    defaults: dict[str, Any] = {"at": START, "fingerprint": "f", "status": 201}
    return Receipt(id=id or fresh_id("q"), **(defaults | values))


def node(id: str | None = None, **values: Any) -> NodeState:
    defaults: dict[str, Any] = {
        "host": "here",
        "pid": 1,
        "release": "0.2.0",
        "roles": ("scheduler", "worker", "janitor"),
        "kinds": KINDS,
        "slots": 10,
        "started_at": START,
        "seen_at": START,
        "heartbeat": timedelta(seconds=30),
    }
    return NodeState(id=id or fresh_id("w"), **(defaults | values))


def paused_queue(id: str | None = None, **values: Any) -> PausedQueue:
    defaults: dict[str, Any] = {"queue": "mail", "paused_at": START, "paused_by": "test"}
    return PausedQueue(id=id or fresh_id("p"), **(defaults | values))


def calendar(id: str | None = None, **values: Any) -> Calendar:
    defaults: dict[str, Any] = {"name": "holidays", "created_at": START, "updated_at": START}
    return Calendar(id=id or fresh_id("c"), **(defaults | values))


def any_calendar(random: random.Random, **values: Any) -> Calendar:
    shape = {
        "tenant": random.choice(("default", "other", "nobody")),
        "name": random.choice(("holidays", "ä", "nights")),
        "days": random.choice(((), (START.date(),))),
        "windows": random.choice(((), ("22:00-06:00",))),
        "updated_at": minutes(random),
    }
    return calendar(**(shape | values))


def gate(id: str | None = None, **values: Any) -> Gate:
    defaults: dict[str, Any] = {"subject": "kind:send", "limit": Limit(concurrency=1), "updated_at": START}
    return Gate(id=id or fresh_id("g"), **(defaults | values))


def minutes(random: random.Random, low: int = -5, high: int = 5) -> Any:
    """A time near START, one of few, so that many are equal."""
    return START + timedelta(minutes=random.randint(low, high))


def any_task(random: random.Random, **values: Any) -> Task:
    status = random.choice([*TaskStatus, TaskStatus.PENDING, TaskStatus.RUNNING])
    running = status is TaskStatus.RUNNING
    created_at = minutes(random)
    line = random.choice((None, None, *GATES)) if status is TaskStatus.PENDING else None
    shape = {
        "line": line,
        "tenant": random.choice(TENANTS),
        "kind": random.choice(KINDS),
        "queue": random.choice(QUEUES),
        "priority": random.choice((0, 128, 200, 255)),
        "tags": tuple(tag for tag in TAGS if random.random() < 0.5),
        "status": status,
        "is_workflow": random.random() < 0.3,
        "created_at": created_at,
        "updated_at": random.choice((created_at, minutes(random))),
        "available_at": minutes(random),
        "expires_at": minutes(random) if random.random() < 0.4 else None,
        "lease_expires_at": minutes(random) if running and random.random() < 0.9 else None,
        "worker_id": random.choice(WORKERS) if running else None,
        "cancel_requested": running and random.random() < 0.5,
        "completed_at": minutes(random) if status not in LIVE and random.random() < 0.9 else None,
        "schedule_id": random.choice((None, *SCHEDULES)),
        "input": {"n": random.randint(0, 9), "text": random.choice(("", "ä", "\u0000", '"'))},
    }
    if line is None and shape["priority"] in (128, 200):  # its gate gave it a moment
        passed = 1 if shape["priority"] == 128 else 2
        shape |= {"gates": GATES, "passed": passed, "slot_until": shape["available_at"]}
    return task(**(shape | values))


def any_schedule(random: random.Random, **values: Any) -> Schedule:
    kind, queue, tags = random.choice(KINDS), random.choice(QUEUES), random.sample(TAGS, random.randint(0, 2))
    target = random.choice(
        (
            TaskTarget(kind=kind, queue=queue, tags=tuple(tags)),
            WorkflowTarget(kind=kind, tags=tuple(tags)),
            TemplateTarget(template_id=random.choice(("m1", "m2"))),
        )
    )
    shape = {
        "tenant": random.choice(TENANTS),
        "target": target,
        "description": random.choice(("", "Every morning", "ÜBERSICHT jeden Tag", "100% of_it")),
        "status": random.choice(list(ScheduleStatus)),
        "due_at": random.choice((None, minutes(random))),
        "created_at": minutes(random),
        "deleted_at": random.choice((None, None, minutes(random))),
        "zone_data": random.choice(ZONES),
        "timing": random.choice(
            (Interval(every=timedelta(minutes=5), anchor=START), Cron("@daily", "Asia/Tokyo"))
        ),
        "watch": random.choice((None, Watch(at=random.choice((None, minutes(random))), since=START))),
    }
    return schedule(**(shape | values))


def any_run(random: random.Random, **values: Any) -> Run:
    status = random.choice(list(RunStatus))
    shape = {
        "tenant": random.choice(TENANTS),
        "schedule_id": random.choice(SCHEDULES),
        "scheduled_at": minutes(random),
        "status": status,
        "completed_at": None if status is RunStatus.RUNNING else random.choice((None, minutes(random))),
    }
    return run(**(shape | values))


def any_event(random: random.Random, **values: Any) -> Event:
    shape = {"tenant": random.choice(TENANTS), "subject_id": random.choice(SCHEDULES), "at": minutes(random)}
    return event(**(shape | values))


def any_template(random: random.Random, **values: Any) -> Template:
    shape = {
        "tenant": random.choice(TENANTS),
        "alias": f"{random.choice(('A-', 'ä_'))}{fresh_id('a')}",
        "kind": random.choice(KINDS),
    }
    return template(**(shape | values))


def any_api_key(random: random.Random, **values: Any) -> ApiKey:
    shape = {
        "tenant": random.choice((*TENANTS, "*")),
        "name": random.choice(("ci", "Büro \u0000", "")),
        "role": random.choice(list(Role)),
        "revoked_at": random.choice((None, minutes(random))),
        "revoked_by": random.choice((None, "admin")),
    }
    return api_key(**(shape | values))


def any_tenant(random: random.Random, **values: Any) -> Tenant:
    shape = {"status": random.choice(list(TenantStatus)), "created_at": minutes(random)}
    return tenant(**(shape | values))


def any_receipt(random: random.Random, **values: Any) -> Receipt:
    shape = {
        "tenant": random.choice(TENANTS),
        "at": minutes(random),
        "status": random.choice((201, 409)),
        "answer": random.choice((None, {"id": "x", "text": "\u0000"})),
    }
    return receipt(**(shape | values))


def any_node(random: random.Random, **values: Any) -> NodeState:
    shape = {
        "tenant": random.choice((*TENANTS, "*")),
        "host": random.choice(("here", "Büro \u0000")),
        "queues": random.choice((None, QUEUES)),
        "running": random.choice(({}, {"send": 2})),
        "seen_at": minutes(random),
    }
    return node(**(shape | values))


def any_paused_queue(random: random.Random, **values: Any) -> PausedQueue:
    """One of few, so that most queues of the population are open."""
    tenant, queue = random.choice((("other", "mail"), ("default", "nowhere"), ("nobody", "default")))
    shape = {
        "tenant": tenant,
        "queue": queue,
        "note": random.choice(("", "\u0000 ä")),
        "paused_at": minutes(random),
    }
    return paused_queue(**(shape | values))


def artifact(id: str | None = None, **values: Any) -> Artifact:
    defaults: dict[str, Any] = {
        "task_id": "t1",
        "name": "report.txt",
        "media_type": "text/plain",
        "size": 2,
        "digest": "f" * 64,
        "attempt": 1,
        "created_at": START,
        "inline": b"hi",
    }
    return Artifact(id=id or fresh_id("a"), **(defaults | values))


def any_artifact(random: random.Random, **values: Any) -> Artifact:
    content = random.choice((None, *CONTENTS))
    shape = {
        "tenant": random.choice(TENANTS),
        "task_id": random.choice(OWNERS),
        "name": random.choice(("report.txt", "Ärger.bin", "stdout", "😀")),
        "size": random.choice((0, 2, 2**40)),
        "content": content,
        "inline": random.choice((b"", b"\x00\xff")) if content is None else None,
    }
    return artifact(**(shape | values))


def step(id: str | None = None, **values: Any) -> Step:
    defaults: dict[str, Any] = {"task_id": "t1", "key": "charge", "created_at": START, "updated_at": START}
    return Step(id=id or fresh_id("p"), **(defaults | values))


def signal(id: str | None = None, **values: Any) -> Signal:
    defaults: dict[str, Any] = {"task_id": "t1", "name": "paid", "at": START, "actor": "test"}
    return Signal(id=id or fresh_id("g"), **(defaults | values))


def any_step(random: random.Random, **values: Any) -> Step:
    shape = {
        "tenant": random.choice(TENANTS),
        "task_id": random.choice(FLOWS),
        "key": random.choice(("charge", "ä \u0000", "render[1]")),
        "kind": random.choice(list(StepKind)),
        "status": random.choice(list(StepStatus)),
        "created_at": minutes(random),
        "updated_at": minutes(random),
        "due_at": random.choice((None, minutes(random))),
        "completed_at": random.choice((None, minutes(random))),
        "output": random.choice((None, {"text": "\u0000"})),
    }
    return step(**(shape | values))


def any_signal(random: random.Random, **values: Any) -> Signal:
    shape = {
        "tenant": random.choice(TENANTS),
        "task_id": random.choice(FLOWS),
        "name": random.choice(("paid", "ä \u0000")),
        "at": minutes(random),
        "received_at": random.choice((None, minutes(random))),
    }
    return signal(**(shape | values))


def alarm(id: str | None = None, **values: Any) -> Alarm:
    defaults: dict[str, Any] = {
        "rule": AlarmRule.LATE,
        "subject_type": "schedule",
        "subject_id": "s1",
        "subject": "report",
        "detail": "it started 5 minutes late",
        "began_at": START,
    }
    return Alarm(id=id or fresh_id("l"), **(defaults | values))


def any_alarm(random: random.Random, **values: Any) -> Alarm:
    shape = {
        "tenant": random.choice((*TENANTS, "*")),
        "subject_id": random.choice((*SCHEDULES, "fleet")),
        "subject": random.choice(("report", "Ärger \u0000")),
        "detail": random.choice(("", "ä \u0000")),
        "began_at": minutes(random),
        "over_at": random.choice((None, minutes(random))),
        "tell_at": random.choice((None, minutes(random))),
    }
    return alarm(**(shape | values))


def any_gate(random: random.Random, **values: Any) -> Gate:
    shape = {
        "tenant": random.choice(TENANTS),
        "subject": random.choice(("kind:send", "queue:mail", "queue:ärger")),
        "key": random.choice((None, "7", "\u0000")),
        "inside": random.choice((0, 0, 3)),
        "has_line": random.choice((False, False, True)),
        "next_at": random.choice((None, minutes(random))),
        "updated_at": minutes(random),
    }
    return gate(**(shape | values))


MAKERS: dict[type[Record], Any] = {
    Task: any_task,
    Schedule: any_schedule,
    Run: any_run,
    Event: any_event,
    Template: any_template,
    ApiKey: any_api_key,
    Tenant: any_tenant,
    Receipt: any_receipt,
    Gate: any_gate,
    NodeState: any_node,
    PausedQueue: any_paused_queue,
    Artifact: any_artifact,
    Step: any_step,
    Signal: any_signal,
    Alarm: any_alarm,
    Calendar: any_calendar,
}
"""For each type that has queries: one of any shape."""

FIXED = (
    *("id", "version", "tenant", "created_at", "schedule_id", "is_workflow"),
    *("scheduled_at", "at", "began_at", "subject_id", "subject", "task_id", "name"),
)
"""What a record keeps when it becomes another of its type."""


def population(seed: int, size: int) -> list[Record]:
    """`size` records of each type that has queries, shuffled."""
    chance = random.Random(seed)
    records: list[Record] = [make(chance) for make in MAKERS.values() for _ in range(size)]
    chance.shuffle(records)
    return records
