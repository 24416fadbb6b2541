"""`/api/tenants/{tenant}/forecast` and `/spread`: how much is coming, and taking the peaks out of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import Query, Response

from ... import forecasts
from ..fields import Time
from ..openapi import documented
from ..reading import Router
from ..service import Admin, Viewer, answer
from . import schemas

router = Router(prefix="/api/tenants/{tenant}", tags=["forecast"])


@router.get("/forecast", **documented(200, forecasts.ForecastAnswer))
async def forecast(
    queue: Viewer,
    start: Annotated[Time | None, Query(description="From when on; now, unless it is given.")] = None,
    end: Annotated[Time | None, Query(description="Until when; 24 hours later, at most 31 days.")] = None,
    by: Annotated[Literal["minute", "hour", "day"], Query(description="How long the spans are.")] = "hour",
) -> Response:
    """How many runs are expected, how much work they are, the busiest minutes, and who is in them."""
    return answer(forecasts.answer(await queue.forecast(start, end, by)))


@router.post("/spread", **documented(200, forecasts.SpreadAnswer))
async def spread(queue: Admin, body: schemas.SpreadBody) -> Response:
    """Spread the schedules that fire in one minute over a while, by an offset for each.
    A schedule that has an offset or a jitter stays, and one that fires again within the while. With the `token` of a
    dry run, exactly its changes are made, or none."""
    over = None if body.over_seconds is None else timedelta(seconds=body.over_seconds)
    found = await queue.spread(body.at, over, token=body.token, dry_run=body.dry_run)
    return answer(forecasts.spread_answer(found))
