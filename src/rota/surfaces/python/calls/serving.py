"""The calls of a queue that are about who serves what: nodes, and the queues that they take tasks from."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from ....domain.checks import check_duration, check_queue, check_text
from ....domain.model import NodeState, PausedQueue, TaskStatus
from ....domain.options import Duration
from ....domain.serving import Waiting
from ....engine import commands, queries
from ....engine.clock import SystemClock, sleep
from ....engine.queries import serving
from ....engine.queries.serving import QueueUse
from .base import Calls, Report

__all__ = ["ServingCalls"]

LOOK_AGAIN = timedelta(seconds=5)


class ServingCalls(Calls):
    """Which nodes are alive, what is in which queue, and what a task waits for."""

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

    def _patience(self) -> float | None:
        """Seconds until it is looked again: in virtual time no hint is late."""
        return LOOK_AGAIN.total_seconds() if isinstance(self.clock, SystemClock) else None

    async def _number_running(self, queue: str) -> int:
        return await self.store.read(
            queries.count_matching(self.tenant, queue=queue, status=TaskStatus.RUNNING)
        )
