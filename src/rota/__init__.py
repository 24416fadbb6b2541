"""Rota: a durable scheduler and task queue for Python, on the store you already have.

import rota

app = rota.App()

@app.task
async def greet(name: str) -> str: ...

async with app.connect() as queue:               # the file rota.db
    await greet.submit("Ada")                    # or queue.submit("greet", {"name": "Ada"})
    await rota.Worker(queue, app).run()
"""

# ruff: noqa: F403, F405  the names are those of public.py, loaded at first use; a test compares the two lists

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .public import *

__version__ = "0.1.0"

__all__ = [
    "After",
    "Alarm",
    "AlarmRule",
    "AlarmRules",
    "ApiKey",
    "App",
    "Arguments",
    "Artifact",
    "Backfill",
    "BackfillStatus",
    "Calendar",
    "Change",
    "ChangeType",
    "ClockChange",
    "Conflict",
    "Context",
    "Corrupt",
    "Cron",
    "DayMatch",
    "DayOfWeek",
    "DstFold",
    "DstGap",
    "DueRuns",
    "Event",
    "ExcludedPolicy",
    "Failure",
    "Forecast",
    "Frequency",
    "Handle",
    "HandlerError",
    "HttpRequest",
    "Interval",
    "Invalid",
    "Limit",
    "Limits",
    "LogLine",
    "MissedRunPolicy",
    "MonthOfYear",
    "Node",
    "NodeState",
    "NotFound",
    "Occurrence",
    "Once",
    "OpenArtifact",
    "OverlapPolicy",
    "Page",
    "PausedQueue",
    "PermanentError",
    "Plan",
    "Queue",
    "QueueUse",
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
    "Several",
    "ShellCommand",
    "Signal",
    "Spread",
    "Step",
    "StepFailed",
    "StepKind",
    "StepStatus",
    "StoreError",
    "Task",
    "TaskFailed",
    "TaskFunction",
    "TaskStatus",
    "TaskTarget",
    "Template",
    "TemplateTarget",
    "Tenant",
    "TenantStatus",
    "TenantUse",
    "Unavailable",
    "UnhandledKind",
    "Waiting",
    "Why",
    "Worker",
    "Workflow",
    "WorkflowFunction",
    "WorkflowHandle",
    "WorkflowTarget",
    "__version__",
    "connect",
    "injected",
    "verify_signature",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import public

    globals().update({each: getattr(public, each) for each in public.__all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
