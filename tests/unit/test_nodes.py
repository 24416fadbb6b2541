"""Who is alive, who handles what, and what a task waits for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from records import node, paused_queue, task
from rota.domain import serving as fleet
from rota.domain.model import FOREVER, NodeState, OpenWait, PausedQueue, StepKind, TaskStatus
from rota.domain.serving import explain
from stores import START

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def test_a_node_is_dead_after_three_silent_heartbeats_and_forgotten_an_hour_later() -> None:
    own = node(heartbeat=30 * SECOND, roles=("janitor",))
    assert fleet.is_alive(own, START + 90 * SECOND)
    assert not fleet.is_alive(own, START + 91 * SECOND)
    assert fleet.forgotten([own], START + 60 * MINUTE) == []
    assert fleet.forgotten([own], START + 61 * MINUTE) == [own]


def test_a_node_with_rare_heartbeats_is_kept_longer_than_it_lives() -> None:
    own = node(heartbeat=60 * MINUTE, roles=("janitor",))
    assert fleet.is_alive(own, START + 180 * MINUTE)
    assert fleet.forgotten([own], START + 300 * MINUTE) == []


def test_the_last_worker_and_the_last_scheduler_are_not_forgotten_before_there_is_another() -> None:
    def dead(id: str, role: str, tenant: str = "default") -> NodeState:
        return node(id, roles=(role,), tenant=tenant, seen_at=START + len(id) * SECOND)

    died = [dead("w", "worker"), dead("w2", "worker"), dead("o", "worker", "other"), dead("s", "scheduler")]
    later = START + 600 * MINUTE
    assert [each.id for each in fleet.forgotten(died, later)] == ["w"]
    alive = [node("w3", roles=("worker",), tenant="default", seen_at=later)]
    assert [each.id for each in fleet.forgotten([*died, *alive], later)] == ["w", "w2"]


NODES = [
    node("mine", tenant="default", kinds=("note", "send"), queues=("mail",)),
    node("anyones", tenant="*", kinds=("report",)),
    node("others", tenant="other", kinds=("secret",)),
    node("scheduler", tenant="*", roles=("scheduler",), kinds=()),
]


@pytest.mark.parametrize(
    ("kind", "queue", "said"),
    [
        ("note", "mail", None),
        ("report", "anything", None),
        ("note", "default", "nobody handles `note` in queue default; its workers serve mail"),
        ("nope", "mail", "nobody handles `nope`; did you mean `note`?"),
        ("repotr", "mail", "nobody handles `repotr`; did you mean `report`?"),
        ("xylophone", "mail", "nobody handles `xylophone`"),
        ("secret", "mail", "nobody handles `secret`"),
    ],
)
def test_a_kind_that_nobody_handles_is_said(kind: str, queue: str, said: str | None) -> None:
    assert fleet.nobody_handles(NODES, START, "default", kind, queue) == said


def test_while_no_worker_is_known_nothing_is_said() -> None:
    assert fleet.nobody_handles(NODES[2:], START, "default", "note", "mail") is None


def test_where_all_workers_have_died_that_is_said_and_not_a_guess_at_a_typo() -> None:
    later = START + 5 * MINUTE
    assert fleet.is_unhandled(NODES, later, "default", "note", "mail")
    said = fleet.nobody_handles(NODES, later, "default", "nope", "mail")
    assert said == "no worker is alive; the last one, mine, was seen 5 minutes ago"
    alive = node("another", tenant="default", kinds=("note",), seen_at=later)
    assert fleet.nobody_handles([*NODES, alive], later, "default", "note", "mail") is None


def test_a_tenant_sees_its_own_nodes_and_those_of_all() -> None:
    assert [each.id for each in fleet.seen_by(NODES, "default")] == ["mine", "anyones", "scheduler"]
    assert [each.id for each in fleet.workers_of(NODES, "other")] == ["anyones", "others"]


def test_a_scheduler_is_silent_if_all_are() -> None:
    early, late = node("a"), node("b", seen_at=START + MINUTE)
    worker = node("c", roles=("worker",), seen_at=START + 9 * MINUTE)
    assert fleet.silent_scheduler([early, late, worker], START + 2 * MINUTE) is None
    assert fleet.silent_scheduler([early, late, worker], START + 9 * MINUTE) is late
    assert fleet.silent_scheduler([worker], START + 9 * MINUTE) is None


FULL = node("w", slots=2, running={"report": 2})
FREE = node("w", slots=2, running={"report": 1})
BILL = OpenWait(StepKind.CHILD, "child:bill")
PAID = OpenWait(StepKind.RECEIVE, "paid")
PAUSED = paused_queue(queue="default", note="moving", paused_by="ann", paused_at=START - MINUTE)


@pytest.mark.parametrize(
    ("own", "nodes", "paused", "reason", "words"),
    [
        ({"available_at": START + MINUTE}, [FREE], None, "not_due", "it is due in 1 minute"),
        (
            {"kind": "sned", "available_at": START + MINUTE},
            [FREE],
            None,
            "not_due",
            "it is due in 1 minute; nobody handles `sned`; did you mean `send`?",
        ),
        (
            {"waits_for": (BILL, PAID), "available_at": FOREVER},
            [FREE],
            PAUSED,
            "dependency",
            "it waits for child:bill or the signal paid",
        ),
        (
            {"waits_for": (OpenWait(StepKind.SLEEP, "sleep"),), "available_at": START + MINUTE},
            [FREE],
            None,
            "dependency",
            "it waits for sleep, at most 1 minute more",
        ),
        ({"waits_for": (BILL,)}, [FREE], None, "ready", "a worker should take it any moment"),
        ({}, [FREE], PAUSED, "queue_paused", "queue default was paused by ann 1 minute ago (moving)"),
        ({}, [], None, "no_worker", "no worker is known; start one with `rota worker module:app`"),
        (
            {},
            [node("w", seen_at=START - 5 * MINUTE)],
            None,
            "no_worker",
            "no worker is alive; the last one, w, was seen 5 minutes ago",
        ),
        ({"kind": "nope"}, [FREE], None, "no_worker", "nobody handles `nope`"),
        ({}, [FULL], None, "busy", "all 2 slots of the only worker for its kind were taken when last seen"),
        ({}, [FREE], None, "ready", "a worker should take it any moment"),
        (
            {"available_at": START - MINUTE},
            [FREE, FREE],
            None,
            "busy",
            "it has been ready for 1 minute; the 2 workers for its kind took others first",
        ),
        (
            {"status": TaskStatus.RUNNING, "worker_id": "w"},
            [node("w", seen_at=START - 5 * MINUTE)],
            None,
            "worker_silent",
            "its worker w has been silent for 5 minutes; the task is taken back when its lease has run out",
        ),
    ],
)
def test_a_task_says_what_it_waits_for(
    own: dict[str, Any], nodes: list[NodeState], paused: PausedQueue | None, reason: str, words: str
) -> None:
    waiting = explain(task(**own), START, nodes, paused)
    assert waiting == words
    assert waiting is not None
    assert waiting.reason == reason


@pytest.mark.parametrize(
    "own",
    [
        {"status": TaskStatus.COMPLETED},
        {"expires_at": START},
        {"status": TaskStatus.RUNNING, "worker_id": "w"},
        {"status": TaskStatus.RUNNING, "worker_id": "unknown"},
    ],
)
def test_a_task_that_ended_or_runs_as_it_should_waits_for_nothing(own: dict[str, Any]) -> None:
    assert explain(task(**own), START, [FREE], PAUSED) is None
