"""The calls of a queue that are about workflows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from msgspec.structs import replace

from ....domain.checks import check_input, check_text, shown
from ....domain.errors import Invalid
from ....domain.ids import derived_id
from ....domain.model import Limits, Task
from ....domain.options import SubmitManyOptions, SubmitOptions
from ....domain.task import Submission
from ....domain.workflow import Signal, Step
from ....engine import commands, queries
from ....engine.queries.workflows import RunTree, tree_of
from .. import arguments
from .tasks import TaskCalls, Tasks, task_id_of

Steps = list[Step]


class WorkflowCalls(TaskCalls):
    """Start workflows, send them signals, and see what they did."""

    async def start_workflow(
        self,
        kind: str,
        input: Any = None,
        *,
        signals: Mapping[str, Any] | None = None,
        connection: Any = None,
        **options: Unpack[SubmitOptions],
    ) -> Task:
        """Start a workflow, which runs as a task of its own. Options as in `submit`. `signals` (payloads by name) are
        there when it begins; with an `idempotency_key` they reach the run that is there already."""
        asked = replace(arguments.submission(kind, input, options), is_workflow=True)
        self._check_input(kind, input)
        task = await self._started(asked, _pairs(signals or {}), connection)
        await self._warn_of_unhandled((task.kind, task.queue))
        return task

    async def start_workflows(
        self, workflows: Iterable[tuple[str, Any]], **options: Unpack[SubmitManyOptions]
    ) -> Tasks:
        """Start a workflow for each `(kind, input)` pair in one transaction: all of them or none. Options as in
        `submit`."""
        return await self._submit_pairs(workflows, options, is_workflow=True)

    async def _started(self, asked: Submission, signals: Sequence[tuple[str, Any]], connection: Any) -> Task:
        if not signals:
            return await self._submit(asked, connection)
        if asked.unique_by:
            problem = "unique_for or unique_by is given, too"
            raise Invalid("signals", problem, "give an idempotency_key: the signals then reach that run")
        sent = [self._signal("", name, payload, None) for name, payload in signals]
        work = commands.start_workflow(self._new_id(), asked, sent, self.tenant, self.actor)
        return await (self._commit(work) if connection is None else self.store.join(connection, work))

    async def signal(
        self, task_id: str, name: str, payload: Any = None, *, idempotency_key: str | None = None
    ) -> Task:
        """Send a signal to a workflow that has not ended. When this returns it is kept until `ctx.receive(name)` takes
        it, once. The same `idempotency_key` is the same signal."""
        signal = self._signal(task_id_of(task_id), name, payload, idempotency_key)
        return await self._commit(commands.send_signal(self.tenant, signal))

    async def steps(self, task_id: str) -> Steps:
        """What a workflow did and waits for, oldest first."""
        return await self.store.read(queries.steps_of_task(self.tenant, task_id_of(task_id)))

    async def unread_signals(self, task_id: str) -> list[Signal]:
        """What was sent to a workflow and not received yet, oldest first."""
        return await self.store.read(queries.unread_signals(self.tenant, task_id_of(task_id)))

    async def run_tree(self, task_id: str) -> RunTree:
        """A workflow with what it started: its steps, and the tasks and workflows below them."""
        return await self.store.read(tree_of(self.tenant, task_id_of(task_id)))

    def _signal(self, task_id: str, name: str, payload: Any, key: str | None) -> Signal:
        if key is not None and not check_text("idempotency_key", key, most=255):
            raise Invalid("idempotency_key", "it is empty", "give a text of 1 to 255 characters")
        if not check_text("name", name, most=100):
            raise Invalid("name", "it is empty", "give the name that the workflow receives")
        return Signal(
            id=self._new_id() if key is None else derived_id("signal", self.tenant, task_id, key),
            tenant=self.tenant,
            task_id=task_id,
            name=name,
            payload=check_input(payload, Limits(), "payload"),
            at=self.clock.now(),
            actor=self.actor,
        )


def _pairs(signals: object) -> list[tuple[str, Any]]:
    if not isinstance(signals, Mapping):
        raise Invalid("signals", f"{shown(signals)} is not a dict", "give payloads by name")
    return list(signals.items())
