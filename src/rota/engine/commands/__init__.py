"""Every write of the product, each as a `work(tx)` for `store.transact`: it reads, asks the domain, and puts.

A command is a function that returns the work. Ids that the work needs are made before it runs, so that running it
again, after a conflict or after an answer that was lost, does the same thing and not another.
"""

from .schedules import (
    Tick,
    create_schedule,
    delete_schedule,
    edit_schedule,
    fire_due,
    pause_schedule,
    purge_schedule,
    refresh_zones,
    restore_schedule,
    resume_schedule,
    trigger_schedule,
)
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
    renew_leases,
    replay_task,
    settle_tasks,
    submit_tasks,
)
from .templates import save_template
from .upkeep import Retention, Sweep, forget_old, sweep

__all__ = [
    "Claim",
    "Claimed",
    "Renewal",
    "Result",
    "Retention",
    "Sweep",
    "Tick",
    "archive_task",
    "cancel_listed",
    "cancel_task",
    "cancel_tasks",
    "claim_tasks",
    "create_schedule",
    "delete_schedule",
    "edit_schedule",
    "expire_task",
    "fire_due",
    "forget_old",
    "pause_schedule",
    "purge_schedule",
    "refresh_zones",
    "renew_leases",
    "replay_task",
    "restore_schedule",
    "resume_schedule",
    "save_template",
    "settle_tasks",
    "submit_tasks",
    "sweep",
    "trigger_schedule",
]
