"""The records that Rota stores, and the words for their states and policies.

All are frozen. Times are aware UTC datetimes; durations are timedeltas. `version` counts the writes of a record (0: not
stored yet), and only the store moves it. This package has shapes, and questions that a record can answer by itself; the
rules that change a record are in `domain/task` and `domain/schedule`. In such a question a naive datetime is the local
time of the process. A record that one rule alone uses is beside it, as a workflow's steps are.

Begin with `task` (tasks, templates, artifacts, and a line of history in words) and `schedule` (schedules, their targets
and runs). `calendar`, `alarm` and `gate` have what they are called, `serving` nodes and paused queues, `access`
tenants, keys and the audit; `shared` is what every record is made of.
"""

from .access import ApiKey, Event, Limits, Receipt, Role, Tenant, TenantStatus
from .alarm import Alarm, AlarmRule, AlarmRules, Watch
from .calendar import Calendar
from .gate import Gate, Limit, Moving
from .schedule import (
    Backfill,
    BackfillStatus,
    Cause,
    ExcludedPolicy,
    MissedRunPolicy,
    OverlapPolicy,
    Run,
    RunReason,
    RunStatus,
    RunTrigger,
    Schedule,
    ScheduleStatus,
    Target,
    TaskTarget,
    TemplateTarget,
    WorkflowTarget,
)
from .serving import NodeState, PausedQueue
from .shared import Duration, Record, aware, defaults_of, facts_of, is_from_the_future, to_the_second
from .task import (
    FOREVER,
    LIVE,
    Artifact,
    Change,
    ChangeType,
    Failure,
    LogLine,
    OpenWait,
    RetryPolicy,
    Runtime,
    StepKind,
    Task,
    TaskRequest,
    TaskStatus,
    Template,
)

__all__ = [
    "FOREVER",
    "LIVE",
    "Alarm",
    "AlarmRule",
    "AlarmRules",
    "ApiKey",
    "Artifact",
    "Backfill",
    "BackfillStatus",
    "Calendar",
    "Cause",
    "Change",
    "ChangeType",
    "Duration",
    "Event",
    "ExcludedPolicy",
    "Failure",
    "Gate",
    "Limit",
    "Limits",
    "LogLine",
    "MissedRunPolicy",
    "Moving",
    "NodeState",
    "OpenWait",
    "OverlapPolicy",
    "PausedQueue",
    "Receipt",
    "Record",
    "RetryPolicy",
    "Role",
    "Run",
    "RunReason",
    "RunStatus",
    "RunTrigger",
    "Runtime",
    "Schedule",
    "ScheduleStatus",
    "StepKind",
    "Target",
    "Task",
    "TaskRequest",
    "TaskStatus",
    "TaskTarget",
    "Template",
    "TemplateTarget",
    "Tenant",
    "TenantStatus",
    "Watch",
    "WorkflowTarget",
    "aware",
    "defaults_of",
    "facts_of",
    "is_from_the_future",
    "to_the_second",
]
