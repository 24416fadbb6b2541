-- The statements that both dialects of SQL have, each once. They are written as PostgreSQL takes them, with the index that
-- SQLite is told to use; PostgreSQL has one of the same name (`sqlite_autoindex_…` is that of the primary key).
-- `sql_files.py` makes each dialect of them. What differs in more than that is in the `statements.sql` of the dialect.
-- `{…}` is filled in as there.

-- ## Tasks

-- name: lost_leases
select {what} from task indexed by task_lease
where status = 'running' and lease_expires_at <= :at::timestamptz
order by lease_expires_at, id limit :limit::bigint {lock}

-- name: held_tasks
select {what} from task indexed by task_lease
where status = 'running' and lease_expires_at is not null and worker_id = :worker_id::text
order by lease_expires_at, id limit :limit::bigint {lock}

-- name: live_tasks
select {what} from task indexed by task_live
where schedule_id = any(:schedule_ids::text[]) and schedule_id is not null and status in ('pending', 'running')
order by schedule_id, created_at, id limit :limit::bigint {lock}

-- name: finished_tasks
select {what} from task indexed by task_finished
where status not in ('pending', 'running') and completed_at < :before::timestamptz
order by completed_at, id limit :limit::bigint {lock}

-- name: returned_tasks
select {what} from task indexed by task_returned
where returned_at is not null and tenant = :tenant::text
  and (returned_at, id) > (:after_at::timestamptz, :after_id::text)
order by returned_at, id limit :limit::bigint {lock}

-- name: task_list_of_schedule
select {what} from task indexed by task_of_schedule
where schedule_id is not null and schedule_id = :schedule_id::text
  and created_at >= :since::timestamptz and (created_at, id) < (:after_at::timestamptz, :after_id::text)
  and tenant = :tenant::text and {task_filter}
order by created_at desc, id desc limit :limit::bigint {lock}

-- ## Schedules

-- name: due_schedules
select {what} from schedule indexed by schedule_due
where deleted_at is null and due_at is not null and due_at <= :at::timestamptz
order by due_at, id limit :limit::bigint {lock}

-- name: watched_schedules
select {what} from schedule indexed by schedule_watch
where watch_at is not null and watch_at <= :at::timestamptz
order by watch_at, id limit :limit::bigint {lock}

-- name: schedule_by_key
select {what} from schedule indexed by schedule_living_key
where deleted_at is null and tenant = :tenant::text and key = :key::text
limit :limit::bigint {lock}

-- name: schedule_by_key_deleted
select {what} from schedule indexed by schedule_deleted_key
where deleted_at is not null and tenant = :tenant::text and key = :key::text
order by created_at desc, id desc limit :limit::bigint {lock}

-- name: open_schedules
select {what} from schedule indexed by schedule_living_key
where deleted_at is null and tenant = :tenant::text and status <> 'completed'
order by key limit :limit::bigint {lock}

-- name: old_schedules
select {what} from schedule indexed by schedule_completed
where completed_at is not null and completed_at < :before::timestamptz
order by completed_at, id limit :limit::bigint {lock}

-- name: schedules_by_name
select {what} from schedule indexed by schedule_living_key
where deleted_at is null and tenant = :tenant::text and key > :after::text
  and key <= case when :first::bigint is null then :last::text else coalesce((
    select key from schedule indexed by schedule_living_key where deleted_at is null and tenant = :tenant::text
    order by key limit 1 offset :first::bigint - 1
  ), :last::text) end
  and {schedule_filter}
order by key limit :limit::bigint {lock}

-- ## Runs

-- name: run_list
select {what} from run indexed by run_of_schedule
where schedule_id = :schedule_id::text and scheduled_at >= :since::timestamptz
  and (scheduled_at, id) < (:after_at::timestamptz, :after_id::text)
  and scheduled_at <= :until::timestamptz
  and (:status::text is null or status = :status::text)
order by scheduled_at desc, id desc limit :limit::bigint {lock}

-- name: old_runs
select {what} from run indexed by run_ended
where status <> 'running' and completed_at < :before::timestamptz
order by completed_at, id limit :limit::bigint {lock}

-- name: ended_runs
select {what} from run indexed by run_ended
where status <> 'running' and (completed_at, id) > (:after_at::timestamptz, :after_id::text) and tenant = :tenant::text
order by completed_at, id limit :limit::bigint {lock}

-- ## Events

-- name: event_list
select {what} from event indexed by event_of_tenant
where tenant = :tenant::text and (at, id) > (:after_at::timestamptz, :after_id::text)
order by at, id limit :limit::bigint {lock}

-- name: event_list_of_subject
select {what} from event indexed by event_of_subject
where tenant = :tenant::text and subject_id = :subject_id::text and (at, id) > (:after_at::timestamptz, :after_id::text)
order by at, id limit :limit::bigint {lock}

-- name: old_events
select {what} from event indexed by event_at
where at < :before::timestamptz
order by at, id limit :limit::bigint {lock}

-- ## Templates, keys, tenants, receipts, nodes, paused queues, calendars

-- name: template_list
select {what} from template indexed by template_of_tenant
where tenant = :tenant::text and id < :after::text
order by id desc limit :limit::bigint {lock}

-- name: template_by_alias
select {what} from template indexed by template_alias
where tenant = :tenant::text and alias_key = :alias_key::text
limit :limit::bigint {lock}

-- name: api_key_list
select {what} from apikey indexed by apikey_of_tenant
where tenant = :tenant::text and id < :after::text
order by id desc limit :limit::bigint {lock}

-- name: api_key_list_of_all
select {what} from apikey indexed by sqlite_autoindex_apikey_1
where id < :after::text
order by id desc limit :limit::bigint {lock}

-- name: tenant_list
select {what} from tenant indexed by sqlite_autoindex_tenant_1
where id > :after::text
order by id limit :limit::bigint {lock}

-- name: old_receipts
select {what} from receipt indexed by receipt_at
where at < :before::timestamptz
order by at, id limit :limit::bigint {lock}

-- name: node_list
select {what} from nodestate indexed by sqlite_autoindex_nodestate_1
where id > :after::text
order by id limit :limit::bigint {lock}

-- name: paused_queues
select {what} from pausedqueue indexed by pausedqueue_of_tenant
where tenant = :tenant::text
order by queue, id limit :limit::bigint {lock}

-- name: calendar_list
select {what} from calendar indexed by calendar_of_tenant
where tenant = :tenant::text
order by name, id limit :limit::bigint {lock}

-- ## Artifacts

-- name: artifact_list
select {what} from artifact indexed by artifact_of_task
where task_id = any(:task_ids::text[])
order by task_id, name, id limit :limit::bigint {lock}

-- name: artifacts_by_content
select {what} from artifact indexed by artifact_content
where content is not null and content = any(:contents::text[])
order by content, id limit :limit::bigint {lock}

-- ## Workflows

-- name: step_list
select {what} from step indexed by step_of_task
where task_id = any(:task_ids::text[])
order by task_id, created_at, id limit :limit::bigint {lock}

-- name: updated_steps
select {what} from step indexed by step_updated
where tenant = :tenant::text and (updated_at, id) > (:after_at::timestamptz, :after_id::text)
order by updated_at, id limit :limit::bigint {lock}

-- name: signal_list
select {what} from signal indexed by signal_of_task
where task_id = any(:task_ids::text[]) and (not :unread::boolean or received_at is null)
order by task_id, at, id limit :limit::bigint {lock}

-- ## Alarms

-- name: open_alarms
select {what} from alarm indexed by alarm_open
where over_at is null and subject_id = any(:subject_ids::text[])
order by subject_id, began_at, id limit :limit::bigint {lock}

-- name: alarm_list_of_all
select {what} from alarm indexed by alarm_began
where (began_at, id) < (:after_at::timestamptz, :after_id::text)
  and (:subject_id::text is null or subject_id = :subject_id::text) and (not :is_open::boolean or over_at is null)
order by began_at desc, id desc limit :limit::bigint {lock}

-- name: untold_alarms
select {what} from alarm indexed by alarm_untold
where tell_at is not null and tell_at <= :at::timestamptz
order by tell_at, id limit :limit::bigint {lock}

-- name: old_alarms
select {what} from alarm indexed by alarm_over
where over_at is not null and over_at < :before::timestamptz
order by over_at, id limit :limit::bigint {lock}

-- ## Gates

-- name: gate_list
select {what} from gate indexed by gate_of_tenant
where tenant = :tenant::text and id > :after::text and (:subject::text is null or subject = :subject::text)
order by id limit :limit::bigint {lock}

-- name: idle_gates
select {what} from gate indexed by gate_idle
where idle_since is not null and idle_since < :before::timestamptz
order by idle_since, id limit :limit::bigint {lock}
