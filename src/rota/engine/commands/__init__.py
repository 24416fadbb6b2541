"""Every write of the product, each as a `work(tx)` for `store.transact`: it reads, asks the domain, and puts.

Begin with `tick` (what time does to schedules) and `tasks`. A command is a function that returns the work. Ids that
the work needs are made before it runs, so that running it again, after a conflict or after an answer that was lost,
does the same thing and not another.
"""

from .tenants import create_key, new_secret, revoke_key
from .tenants import once
from .schedules import (
    Declared,
    create_schedule,
    declare_schedules,
    delete_schedule,
    edit_schedule,
    naming_schedule,
    pause_schedule,
    purge_schedule,
    restore_schedule,
    resume_schedule,
    trigger_schedule,
)
from .tick import bring_back_leases, bring_back_tasks, lies_anything_ahead, replan_schedules
from .tasks import (
    Claim,
    Claimed,
    Renewal,
    Result,
    archive_task,
    cancel_listed,
    cancel_task,
    cancel_tasks,
    claim_tasks,
    expire_task,
    next_to_claim,
    renew_leases,
    replay_task,
    settle_tasks,
    submit_tasks,
)
from .templates import create_template, delete_template, edit_template, execute_template
from .tenants import create_tenant, resume_tenant, set_limits, suspend_tenant
from .tick import Tick, fire_due, is_anything_due, refresh_zones
from .upkeep import Retention, Sweep, forget_old, sweep

__all__ = [
    "Claim",
    "Claimed",
    "Declared",
    "Renewal",
    "Result",
    "Retention",
    "Sweep",
    "Tick",
    "archive_task",
    "bring_back_leases",
    "bring_back_tasks",
    "cancel_listed",
    "cancel_task",
    "cancel_tasks",
    "claim_tasks",
    "create_key",
    "create_schedule",
    "create_template",
    "create_tenant",
    "declare_schedules",
    "delete_schedule",
    "delete_template",
    "edit_schedule",
    "edit_template",
    "execute_template",
    "expire_task",
    "fire_due",
    "forget_old",
    "is_anything_due",
    "lies_anything_ahead",
    "naming_schedule",
    "new_secret",
    "next_to_claim",
    "once",
    "pause_schedule",
    "purge_schedule",
    "refresh_zones",
    "renew_leases",
    "replan_schedules",
    "replay_task",
    "restore_schedule",
    "resume_schedule",
    "resume_tenant",
    "revoke_key",
    "set_limits",
    "settle_tasks",
    "submit_tasks",
    "suspend_tenant",
    "sweep",
    "trigger_schedule",
]
