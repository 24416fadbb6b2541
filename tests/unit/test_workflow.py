"""Rules of workflows that hardly ever apply: what comes from before a restart."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from records import task
from rota.domain import workflow
from rota.domain.model import StepKind, TaskStatus
from rota.domain.workflow import Wait
from stores import START

LATER = START + timedelta(minutes=1)


def test_the_end_of_a_child_from_before_a_restart_changes_nothing() -> None:
    parent = task("p", status=TaskStatus.PENDING, is_workflow=True, workflow_version=1, live_children=1)
    step = workflow.open_wait(parent, Wait(key="c", kind=StepKind.CHILD), START)
    child = task("c", status=TaskStatus.COMPLETED, output=5, parent_id="p", parent_step=step.id)
    restarted = replace(parent, rewinds=1)
    assert workflow.child_ended(restarted, step, child, LATER) == (restarted, step)
    ended, answered = workflow.child_ended(parent, step, child, LATER)
    assert (ended.live_children, answered.output, answered.completed_at) == (0, 5, LATER)
