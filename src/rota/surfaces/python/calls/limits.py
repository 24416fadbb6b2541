"""The calls of a queue that are about the limits of its tasks: how many at once, and how many in a while."""

from __future__ import annotations

from ....domain import gate
from ....domain.checks import check_kind, check_queue
from ....domain.model import Limit
from ....engine import commands, queries
from ....engine.app import App
from .base import Calls

__all__ = ["LimitCalls"]

PAGE = 200


class LimitCalls(Calls):
    """The limits of kinds and queues, which hold for all workers together."""

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

    async def task_limits(self) -> dict[str, Limit]:
        """The limits of kinds ("kind:send") and queues ("queue:mail")."""
        return await self.store.read(queries.task_limits(self.tenant))

    async def declare_limits(self, app: App) -> None:
        """Set the limits that the handlers of an app have."""
        limits = app.limits()
        if limits:
            await self._commit(commands.limit_tasks(self.tenant, limits, self.actor))
        for subject, limit in limits.items():
            if not await self.store.read(queries.are_gates_under(self.tenant, subject, limit)):
                await self._replan(subject)

    async def _limit(self, subject: str, limit: Limit) -> Limit | None:
        wanted = (
            None if limit.concurrency is None and limit.rate is None else gate.check_limit("limit", limit)
        )
        await self._commit(commands.limit_tasks(self.tenant, {subject: wanted}, self.actor))
        if wanted is not None:
            await self._commit_pages(lambda after: commands.gate_waiting(self.tenant, subject, after, PAGE))
        await self._replan(subject)
        return wanted

    async def _replan(self, subject: str) -> None:
        await self._commit_pages(lambda after: commands.replan_lines(self.tenant, subject, after, PAGE))
        await self._commit_pages(lambda after: commands.replan_moments(self.tenant, subject, after, PAGE))
