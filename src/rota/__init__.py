"""Rota: a durable scheduler and task queue for Python, on the store you already have.

import rota

app = rota.App()

@app.task("greet")
async def greet(name): ...

async with rota.connect() as queue:              # the file rota.db
    await queue.submit("greet", {"name": "Ada"})
    await rota.Worker(queue, app).run()
"""

# ruff: noqa: F403, F405  the names are those of public.py, loaded at first use; a test compares the two lists

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .public import *

__version__ = "0.1.0"

__all__ = [
    "ApiKey",
    "App",
    "Change",
    "ChangeType",
    "Conflict",
    "Context",
    "Corrupt",
    "Cron",
    "DayOfWeek",
    "DueRuns",
    "Event",
    "Failure",
    "Frequency",
    "HandlerError",
    "Interval",
    "Invalid",
    "Limit",
    "Limits",
    "LogLine",
    "MissedRunPolicy",
    "MonthOfYear",
    "Node",
    "NotFound",
    "Occurrence",
    "Once",
    "OverlapPolicy",
    "Page",
    "PermanentError",
    "Queue",
    "RRule",
    "RecurrenceRule",
    "Refused",
    "RescheduleError",
    "Retention",
    "RetryPolicy",
    "RetryableError",
    "Role",
    "RotaError",
    "Run",
    "RunReason",
    "RunStatus",
    "RunTrigger",
    "Runtime",
    "Schedule",
    "ScheduleStatus",
    "StoreError",
    "Task",
    "TaskStatus",
    "TaskTarget",
    "Template",
    "TemplateTarget",
    "Tenant",
    "TenantStatus",
    "TenantUse",
    "Unavailable",
    "Why",
    "Worker",
    "WorkflowTarget",
    "__version__",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import public

    globals().update({each: getattr(public, each) for each in public.__all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
