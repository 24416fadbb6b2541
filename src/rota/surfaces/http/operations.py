"""`/health` and `/metrics`, for operators."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Literal

from fastapi import APIRouter, Request, Response

from ... import __version__
from ...domain.errors import StoreError, Unavailable
from ..shapes import Answer
from .openapi import documented
from .problems import Problem
from .reading import check_query
from .service import answer, of

router = APIRouter(tags=["operations"])  # whoever checks health may add parameters of their own
READY_WITHIN = timedelta(seconds=2)


class HealthAnswer(Answer, frozen=True, kw_only=True):
    """The state of this server."""

    status: Literal["live", "ready"]
    version: str
    alarms: list[str]


@router.get("/health", **documented(200, HealthAnswer))
@router.get("/health/ready", **documented(200, HealthAnswer))
async def ready(request: Request) -> Response:
    """Ready: the store answers. `alarms` say what nobody seems to do: all schedulers are silent, or tasks wait of a
    kind that no live worker handles; then the rules of alarms that are open. `rota alarms` and `rota doctor` say
    more."""
    service = of(request)
    try:
        async with asyncio.timeout(READY_WITHIN.total_seconds()):
            await (await service.opened()).now()
            alarms = await service.alarms()
    except (TimeoutError, StoreError):  # which store, and what is wrong with it, is for the log
        sentence = f"the store did not answer within {READY_WITHIN.total_seconds():g} s"
        raise Problem(503, "unavailable", sentence, headers={"Retry-After": "1"}) from None
    return answer(HealthAnswer(status="ready", version=__version__, alarms=alarms))


@router.get("/health/live", **documented(200, HealthAnswer))
async def live() -> Response:
    """Live: the process answers."""
    return answer(HealthAnswer(status="live", version=__version__, alarms=[]))


@router.get("/metrics", **documented(200))
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus. They are about all tenants, so they need a key to all of them (`--tenant '*'`). While the
    store does not answer, no key can be looked up in it: then the metrics say only that, to anyone."""
    check_query(request, ())
    service = of(request)
    if service.metrics is None:
        raise Problem(404, "not_found", "this application was made without metrics")
    from ...engine.observe.metrics import CONTENT_TYPE, store_away

    try:
        async with asyncio.timeout(READY_WITHIN.total_seconds()):
            access = await service.access()
        caller = await access.caller(request, patience=READY_WITHIN)
    except (TimeoutError, Unavailable):
        return Response(store_away(), media_type=CONTENT_TYPE)
    caller.check_all_tenants("metrics are")
    assert service.queue is not None
    return Response(await service.metrics.render(service.queue.store), media_type=CONTENT_TYPE)
