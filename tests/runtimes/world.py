"""A queue, and a worker that runs the commands of templates in real time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import rota
from rota.domain.model import Task

__all__ = ["Bench", "on_bench"]

LATER = rota.RetryPolicy(initial=timedelta(minutes=1), maximum=timedelta(minutes=1))
"""No retry comes while the first attempt is looked at, however busy the machine is."""


class Bench:
    """Stores a template, runs it, and gives back the task as it ended."""

    def __init__(self, queue: rota.Queue, **options: Any) -> None:
        self.queue = queue
        self.app = rota.App()
        self.worker = rota.Worker(queue, self.app, **options)

    async def shell(self, command: Any, input: dict[str, Any] | None = None, **fields: Any) -> Task:
        return await self.template("shell", command, input, **fields)

    async def http(self, command: Any, input: dict[str, Any] | None = None, **fields: Any) -> Task:
        return await self.template("http", command, input, **fields)

    async def template(
        self, runtime: str, command: Any, input: dict[str, Any] | None = None, **fields: Any
    ) -> Task:
        wanted: Any = {
            "runtime": runtime,
            "command": command,
            "max_retries": 0,
            "retry_policy": LATER,
            **fields,
        }
        made = await self.queue.create_template(None, **wanted)
        return await self.done(await self.queue.execute_template(made.id, input))

    async def done(self, task: Task) -> Task:
        """After one attempt, whatever came of it."""
        await self.worker.run_once()
        return await self.queue.get(task.id)


def on_bench(scenario: Callable[[Bench], Awaitable[None]], store: str = "memory:", **options: Any) -> None:
    async def play() -> None:
        async with rota.connect(store) as queue:
            bench = Bench(queue, **options)
            try:
                await scenario(bench)
            finally:
                bench.worker.tasks.close()
                await bench.worker.tasks.runtimes.close()

    asyncio.run(play())
