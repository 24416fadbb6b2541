"""Whether code fits what is recorded, without running anything: a replay that nobody answers."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain import workflow
from ...domain.model import (
    Task,
)
from ...domain.workflow import Step
from ..app import App
from ..handlers.handler import Handler
from ..handlers.signature import injected
from .context import Workflow
from .replay import Replay

__all__ = ["check_run"]


def check_run(app: App, handler: Handler, task: Task, steps: Sequence[Step]) -> None:
    """`Refused`, if the code of the handler does not fit the steps of this run."""
    unfit = workflow.misfit(task, handler.version, handler.accepts)
    if unfit is not None:
        raise unfit
    replay = Replay(task, [step for step in steps if step.rewinds == task.rewinds])
    try:
        nothing = dict.fromkeys(handler.signature.asks_for, injected)
        args, kwargs = handler.arguments(task.input, Workflow(replay, app, None), nothing)
        replay.begin(handler.function(*args, **kwargs))
        replay.advance()
        change = replay.change()
        if change is not None:
            raise change
    finally:
        replay.close()
