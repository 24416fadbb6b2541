"""Rota in a FastAPI application: the queue is open while the application runs, and a worker beside it.

api = FastAPI(lifespan=rota_lifespan(app))

@api.post("/orders")
async def order(queue: RotaQueue) -> str:
    return (await queue.submit("send_receipt", {"order": 17})).id
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection

from ..domain.errors import Invalid
from ..engine.node import Worker
from ..surfaces.python.app import App
from ..surfaces.python.client import Queue

__all__ = ["RotaQueue", "rota_lifespan"]


def rota_lifespan(
    app: App, store: str | None = None, *, tenant: str = "default", worker: bool = True, **options: Any
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """The lifespan of an application that submits tasks and, unless `worker` is False, runs them. Without an address:
    ROTA_STORE, else the file rota.db. The options are those of `rota.Worker`."""

    @asynccontextmanager
    async def lifespan(api: Any) -> AsyncIterator[None]:
        async with app.connect(store, tenant=tenant) as queue:
            api.state.rota_queue = queue
            async with Worker(queue, app, **options) if worker else nullcontext():
                yield

    return lifespan


def _queue_of(connection: HTTPConnection) -> Queue:
    queue = getattr(connection.app.state, "rota_queue", None)
    if not isinstance(queue, Queue):
        raise Invalid("lifespan", "the application has no queue", "make it with lifespan=rota_lifespan(app)")
    return queue


RotaQueue = Annotated[Queue, Depends(_queue_of)]
"""The type of a parameter that is given the queue."""
