"""Every question that the product asks of a store, each as a work for `store.read`.

Begin with `schedules`: a page, a ledger, the next times, and why a time became what it did. `tasks` lists tasks, their
steps and what they left, `workflows` has one with all that it started, `tenants` all else that a tenant has: templates,
calendars, keys, alarms, limits. `overview` says how a tenant is doing, `health` how the store is, `serving` who runs
what and what a task waits for, `forecasts` how much is coming. A question that one query answers is asked with `find`
or `count`.
"""

from ..work import count, find
from .forecasts import forecast
from .schedules import (
    Occurrence,
    OrderedSchedules,
    ScheduleOrder,
    deleted_schedule,
    explained_runs,
    first_schedules,
    last_runs,
    next_times,
    number_of_runs,
    occurrences,
    one_schedule,
    schedule_events,
    schedule_runs,
    schedules_by_beginning,
    upcoming,
    why,
)
from .tasks import (
    artifacts_of,
    count_matching,
    named_contents,
    one_artifact,
    one_task,
    recent_tasks,
    some_tasks,
    steps_of_task,
    task_list,
    task_page,
    task_query,
    tasks_by_beginning,
    unread_signals,
)
from .tenants import (
    TenantUse,
    alarm_page,
    alarm_rules,
    are_gates_under,
    one_calendar,
    one_template,
    one_tenant,
    task_limits,
    template_named,
    templates_by_beginning,
    tenants_in_use,
)
