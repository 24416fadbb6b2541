"""`/api/v1`: the API of document 004, in snake_case, for the tenant `default`."""

from __future__ import annotations

from fastapi import APIRouter

from . import jobs_v1, tasks_v1

__all__ = ["router"]

router = APIRouter(prefix="/api/v1")
router.include_router(tasks_v1.router)
router.include_router(jobs_v1.router)
