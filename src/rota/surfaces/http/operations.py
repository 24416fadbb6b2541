"""`/health` and `/metrics`: for those who run it."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter, Request, Response

from ... import __version__
from ...domain.errors import StoreError
from .access import ALL_TENANTS
from .documents import Answer, documented
from .problems import Problem
from .service import answer, of

__all__ = ["router"]

router = APIRouter(tags=["operations"])
READY_WITHIN = 2.0


class HealthAnswer(Answer):
    status: Literal["live", "ready"]
    version: str


@router.get("/health", **documented(200, answers_with=HealthAnswer))
@router.get("/health/ready", **documented(200, answers_with=HealthAnswer))
async def ready(request: Request) -> Response:
    """Whether it can work: the store answers."""
    try:
        async with asyncio.timeout(READY_WITHIN):
            queue = await of(request).open()
            await queue.now()
    except (TimeoutError, StoreError):  # which store, and what is wrong with it, is for the log
        sentence = f"the store did not answer within {READY_WITHIN:g} s"
        raise Problem(503, "unavailable", sentence, headers={"Retry-After": "1"}) from None
    return answer({"status": "ready", "version": __version__})


@router.get("/health/live", **documented(200, answers_with=HealthAnswer))
async def live() -> Response:
    """Whether it runs at all."""
    return answer({"status": "live", "version": __version__})


@router.get("/metrics", **documented(200))
async def metrics(request: Request) -> Response:
    """For Prometheus. They are about all tenants, so they need a key to all of them (`--tenant '*'`)."""
    service = of(request)
    caller = await (await service.access()).caller(request)
    if caller.tenant != ALL_TENANTS:
        sentence = "metrics are about all tenants; use a key made with --tenant '*'"
        raise Problem(403, "role_needed", sentence)
    if service.metrics is None:
        raise Problem(404, "not_found", "this application was made without metrics")
    from ...engine.metrics import CONTENT_TYPE

    queue = await service.open()
    return Response(await service.metrics.render(queue.store), media_type=CONTENT_TYPE)
