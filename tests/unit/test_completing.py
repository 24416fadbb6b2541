"""The completion that is one update for many tasks: the same as `settle` makes of each, or it is not used."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from records import task
from rota.domain import gate
from rota.domain import task as life
from rota.domain.errors import Refused
from rota.domain.model import Failure, LogLine, Task, TaskStatus
from rota.domain.task import Completed, Defaults
from stores import START

CLAIM: dict[str, Any] = {"worker_id": "w", "lease_id": "l", "lease": timedelta(seconds=30), "now": START}
END = START + timedelta(seconds=9)


def claimed(**values: Any) -> Task:
    return replace(life.claim(task("t"), defaults=Defaults(), **CLAIM), **values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"progress": 0.5, "logs": (LogLine(at=START, attempt=1, message="m"),)},
        {"attempt": 3, "retries": 2, "reschedules": 1, "expires_at": START},
        {"input": [1], "output": "of before", "tags": ("a",), "metadata": {"k": 1}, "trace": "00-1-2-01"},
        {"idempotency_key": "k", "limit_key": "x", "timeout": timedelta(1)},
        {"schedule_id": "s", "run_id": "r", "scheduled_at": START},
        {"history": ()},
        {"history": tuple(replace(claimed().history[0], number=number) for number in range(1, 51))},
    ],
)
@pytest.mark.parametrize("output", [None, {"answer": 42}])
def test_it_does_to_a_task_what_settling_does(values: dict[str, Any], output: Any) -> None:
    before = claimed(**values)
    assert life.completes_alone(before, worker_id="w", lease_id="l")
    outputs = {} if output is None else {"t": output}
    update = life.completing(outputs, worker_id="w", now=END)
    assert update.applied_to([before]) == [life.settle(before, Completed(output), lease_id="l", now=END)]


def test_it_takes_limited_tasks_from_their_gates() -> None:
    before = claimed(gates=("g", "h"), passed=2, slot_until=START)
    assert life.completes_alone(before, worker_id="w", lease_id="l")
    update = life.completing({"t": 1}, worker_id="w", now=END, are_limited=True)
    settled = life.settle(before, Completed(1), lease_id="l", now=END)
    assert update.applied_to([before]) == [gate.without_places(settled)]


@pytest.mark.parametrize(
    "values",
    [
        {"status": TaskStatus.PENDING},
        {"status": TaskStatus.COMPLETED},
        {"lease_id": "another"},
        {"worker_id": "another"},
        {"worker_id": None},
        {"started_at": None},
        {"cancel_requested": True},
        {"error": Failure(type="E", message="m")},
        {"parent_id": "p", "parent_step": "s"},
        {"live_children": 1},
        {"is_workflow": True},
        {"workflow_version": 1},
        {"awaited": True},
    ],
)
def test_it_is_not_for_tasks_whose_end_means_more(values: dict[str, Any]) -> None:
    assert not life.completes_alone(claimed(**values), worker_id="w", lease_id="l")


def test_tasks_that_are_claimed_together_are_as_if_each_were_claimed_alone() -> None:
    kinds = {"plain": Defaults(max_retries=7), "flow": Defaults(workflow_version=3)}
    tasks = [
        replace(task("a"), kind="plain"),
        replace(task("b"), kind="flow", is_workflow=True),
        replace(task("c"), kind="plain", gates=("g",), passed=1, max_retries=1),
        replace(task("d"), kind="plain", history=claimed().history, attempt=1),
    ]
    each = [life.claim(one, defaults=kinds[one.kind], **CLAIM) for one in tasks]
    assert life.claim_all(tasks, defaults=kinds, **CLAIM) == each


def test_none_is_claimed_with_one_that_is_not_available() -> None:
    held = replace(task("b"), line="g")
    with pytest.raises(Refused, match="b"):
        life.claim_all([task("a"), held], defaults={held.kind: Defaults()}, **CLAIM)


def test_tasks_of_a_batch_keep_their_own_histories() -> None:
    alike = claimed().history
    tasks = [
        claimed(history=alike),
        claimed(history=alike),
        claimed(history=(replace(alike[0], number=8),)),
        claimed(history=alike),
    ]
    update = life.completing({}, worker_id="w", now=END)
    made = update.applied_to(tasks)
    assert made == [life.settle(each, Completed(), lease_id="l", now=END) for each in tasks]
    claims = life.claiming(
        worker_id="w", lease_id="l", lease=timedelta(1), defaults={"report": Defaults()}, now=END
    )
    attempts = [task("t", attempt=number, history=alike) for number in (0, 4)]
    assert [each.history[-1].attempt for each in claims.applied_to(attempts)] == [1, 5]
