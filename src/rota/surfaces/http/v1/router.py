"""`/api/v1`: stored tasks and jobs, in snake_case. The tenant is the one of the key, or `default`."""

from __future__ import annotations

from ..reading import Router
from . import jobs as jobs_v1
from . import tasks as tasks_v1

__all__ = ["router"]

router = Router(prefix="/api/v1")
router.include_router(tasks_v1.router)
router.include_router(jobs_v1.router)
