"""`/api/v1`: the API of document 004, in snake_case, for the tenant of the key, or `default`."""

from __future__ import annotations

from ..reading import Router
from . import jobs as jobs_v1
from . import tasks as tasks_v1

__all__ = ["router"]

router = Router(prefix="/api/v1")
router.include_router(tasks_v1.router)
router.include_router(jobs_v1.router)
