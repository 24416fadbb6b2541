"""The calls of a queue that are about who serves what: nodes, the queues that they take tasks from, and the limits of
tasks, which hold for all workers together."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from datetime import timedelta

from ....domain import gate
from ....domain.checks import check_duration, check_kind, check_queue, check_text
from ....domain.model import Limit, NodeState, PausedQueue, TaskStatus
from ....domain.options import Duration
from ....domain.serving import Waiting
from ....engine import commands, queries
from ....engine.app import App
from ....engine.clock import is_virtual, sleep
from ....engine.limits import plan_anew
from ....engine.queries import serving
from ....engine.queries.serving import QueueUse
from .base import Calls, Report

LOOK_AGAIN = timedelta(seconds=5)


class ServingCalls(Calls):
    """Which nodes are alive, what is in which queue, what a task waits for, and how many may be at work."""

    async def nodes(self, *, dead: bool = False) -> list[NodeState]:
        """The live nodes that work for this tenant; with `dead`, also those that were not heard of for too long."""
        found = await self.store.read(serving.fleet_of(self.tenant))
        return list(found.nodes) if dead else found.alive

    async def waiting(self, task_id: str) -> Waiting | None:
        """Why a task does not run: its time, its queue, its worker. None: it runs, or has ended."""
        return await self.store.read(serving.waiting_of(self.tenant, check_text("task_id", task_id)))

    async def list_queues(self) -> list[QueueUse]:
        """Every queue that has open tasks, is paused, or is served by name, with how much is in it; by name."""
        return await self.store.read(serving.queues_in_use(self.tenant))

    async def pause_queue(self, name: str, note: str = "") -> PausedQueue:
        """Let no worker take tasks of this queue until it is resumed. What runs goes on; tasks can be submitted."""
        queue, why = check_queue(name, "name"), check_text("note", note)
        return await self._commit(commands.pause_queue(self._new_id(), self.tenant, queue, self.actor, why))

    async def resume_queue(self, name: str) -> bool:
        """Let workers take tasks of this queue again; whether it was paused."""
        queue = check_queue(name, "name")
        return await self._commit(commands.resume_queue(self._new_id(), self.tenant, queue, self.actor))

    async def drain_queue(
        self,
        name: str,
        note: str = "",
        timeout: Duration | None = None,  # noqa: ASYNC109  a word of the API
        *,
        report: Report | None = None,
    ) -> PausedQueue:
        """Pause the queue, and wait until nothing of it runs any more. It stays paused, also if that takes longer than
        `timeout`, which is a TimeoutError. `report` is called with how many tasks have ended since
        the call before."""
        at_most = None if timeout is None else check_duration("timeout", timeout).total_seconds()
        paused = await self.pause_queue(name, note)
        running = await self._number_running(paused.queue)
        async with asyncio.timeout(at_most):
            while True:
                changed = asyncio.ensure_future(self.store.wait(None))
                try:
                    await sleep(timedelta(0))
                    before, running = running, await self._number_running(paused.queue)
                    if report is not None:
                        report(before - running)
                    if not running:
                        return paused
                    await asyncio.wait({changed}, timeout=self._patience())
                finally:
                    changed.cancel()

    async def limit_queue(
        self, queue: str, *, concurrency: int | None = None, rate: str | None = None
    ) -> Limit | None:
        """Let at most `concurrency` tasks of the queue be at work at once, and at most `rate` of them ("50/s") begin.
        What waits is planned anew. Without either, the limit is taken away."""
        subject = gate.of_queue(check_queue(queue))
        return await self._limit(subject, Limit(concurrency=concurrency, rate=rate))

    async def limit_kind(
        self, kind: str, *, concurrency: int | None = None, rate: str | None = None, key: str | None = None
    ) -> Limit | None:
        """The same for tasks of a kind; with `key`, for each value that this field of their input has. A worker that
        has a handler with another limit sets that one when it starts."""
        subject = gate.of_kind(check_kind(kind))
        return await self._limit(subject, Limit(concurrency=concurrency, rate=rate, key=key))

    async def task_limits(self, *, declared: bool | None = None) -> dict[str, Limit]:
        """The limits of kinds ("kind:send") and queues ("queue:mail"). With `declared`: only those that handlers have;
        with False: only those that were set by calls."""
        return await self.store.read(queries.task_limits(self.tenant, declared=declared))

    async def declare_limits(self, app: App) -> None:
        """Set the limits that the handlers of an app have, as a worker does when it starts. A limit that was declared
        for a kind is taken away if its handler has none here. A change of a limit that was interrupted is ended."""
        limits = app.limits()
        if await self.store.read(queries.has_limits_to_set(self.tenant, limits)):
            await self._set_limits(limits, are_declared=True)

    def _patience(self) -> float | None:
        """Seconds until it is looked again."""
        return None if is_virtual() else LOOK_AGAIN.total_seconds()

    async def _number_running(self, queue: str) -> int:
        return await self.store.read(
            queries.count_matching(self.tenant, queue=queue, status=TaskStatus.RUNNING)
        )

    async def _limit(self, subject: str, limit: Limit) -> Limit | None:
        wanted = None if limit == Limit() else gate.check_limit("", limit)
        await self._set_limits({subject: wanted})
        return wanted

    async def _set_limits(self, limits: Mapping[str, Limit | None], *, are_declared: bool = False) -> None:
        work = commands.limit_tasks(self.tenant, limits, self.actor, are_declared=are_declared)
        if not await plan_anew(self.store, self.clock, self.tenant, await self._commit(work)):
            warnings.warn(
                "the limit is set, but transactions that have submitted tasks are still open: those tasks are not"
                " bound by it until a worker has found them, within ten minutes, or it is set again",
                RuntimeWarning,
                stacklevel=4,
            )
