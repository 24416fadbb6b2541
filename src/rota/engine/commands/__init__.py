"""Every write of the product, each as a `work(tx)` for `store.transact`: it reads, asks the domain, and puts.

Begin with `tick` (what time does to schedules) and `tasks`; `ending` has what follows from the end of a task. With a
tick go `backfill` and `buffer` (times that wait), with an ending `chains` (schedules that come after others) and
`gates` (the next task is let in). `upkeep` is what the janitor does. The others are what people do to `schedules`
and calendars, `templates`, `plans`, `workflows`, `limits`, `alarms` and `tenants`; `serving` is about nodes and paused
queues. `shared` is what several of them need.

A command is a function that returns the work (`as_work`). Ids that the work needs are made before it runs, so that
running it again, after a conflict or after an answer that was lost, does the same thing and not another.
"""

from .alarms import (
    Looked,
    check_fleet,
    claim_notices,
    look_for_alarms,
    look_soon_at_tagged,
    record_notices,
    scan_ledger,
    set_alarm_rules,
)
from .backfill import begin_backfill, cancel_backfill
from .limits import gate_waiting, limit_tasks, replan_lines, replan_moments
from .plans import MakePlan, apply_plan, check_plan_age, read_stored
from .schedules import (
    Declared,
    create_calendar,
    create_schedule,
    create_schedules,
    declare_schedules,
    delete_calendar,
    delete_schedule,
    edit_calendar,
    edit_schedule,
    pause_schedule,
    plan_edit,
    plan_new_schedule,
    purge_schedule,
    restore_schedule,
    resume_schedule,
    spread_schedules,
    trigger_schedule,
)
from .serving import every_node, forget_nodes, pause_queue, remove_node, resume_queue, write_node
from .shared import once, remove_receipt, write_receipt
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
    leave_artifact,
    next_to_claim,
    renew_leases,
    settle_tasks,
    submit_tasks,
)
from .templates import create_template, delete_template, edit_template, execute_template
from .tenants import (
    create_key,
    create_tenant,
    new_secret,
    resume_tenant,
    revoke_key,
    set_limits,
    sign_out,
    suspend_tenant,
)
from .tick import (
    Tick,
    bring_back_leases,
    bring_back_tasks,
    fire_due,
    is_anything_due,
    lies_anything_ahead,
    refresh_zones,
    replan_schedules,
)
from .upkeep import Retention, forget_old, sweep
from .workflows import (
    Parting,
    Waited,
    record_steps,
    replay_task,
    replay_tasks,
    restart_workflow,
    send_signal,
    start_workflow,
    steps_of,
    wait_or_park,
)
