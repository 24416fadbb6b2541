-- The statements of the SQLite store, beside those that it shares (`../statements.sql`). `{…}` is filled in once, when the
-- file is loaded: {table}, {columns}, {values}
-- and {changes} from the columns in codec.py, since the same seven statements serve every record type; {what} with what
-- to select, since `find`, `count` and `tally` differ in little else. Each query names its index and ends with its order
-- and its limit, on one line: a count and a tally do without.

-- ## The file

-- name: settings
pragma journal_mode = wal;
pragma synchronous = {synchronous};
pragma temp_store = memory;
pragma cache_size = -16384;
pragma wal_autocheckpoint = 4000;
pragma journal_size_limit = 67108864;

-- name: reader_settings
pragma query_only = 1;
pragma cache_size = -65536;
pragma temp_store = memory;

-- name: begin_write
begin immediate

-- name: begin_read
begin

-- name: commit
commit

-- name: rollback
rollback

-- name: savepoint
savepoint work

-- name: rollback_work
rollback to work

-- name: release_work
release work

-- name: data_version
pragma data_version

-- name: migration_table_exists
select count(*) from sqlite_schema where type = 'table' and name = 'rota_migration'

-- name: table_names
select name from sqlite_schema where type in ('table', 'view') order by name

-- name: create_migration_table
create table if not exists rota_migration (
  number integer primary key not null,
  name text not null,
  checksum text not null,
  applied_at text not null
) strict

-- name: applied_migrations
select number, name, checksum from rota_migration order by number

-- name: record_migration
insert into rota_migration (number, name, checksum, applied_at) values (?, ?, ?, ?)

-- ## Every record type (the parameters of insert and replace are one row: ?1 id, ?2 version, columns, body)

-- name: insert
insert into {table} (id, version, {columns}, body) values ({values})

-- name: replace
update {table} set version = ?2, {changes} where id = ?1 and version = ?2 - 1 and {unchanged}

-- name: delete
delete from {table} where id = ?1 and version = ?2 and {unchanged}

-- name: get
select body from {table} where id = ?

-- name: get_many
select body from {table} where id in (select value from json_each(?))

-- name: all
select body from {table} order by id

-- name: number
select count(*) from {table}

-- ## Tasks

-- A task in the line of a gate has the end of time as its available_at: it is never ready, and never next.

-- Pending tasks lie in lanes: one for each (queue, kind, priority), sorted by time. Lanes are found by seeking from
-- one to the next, so neither a million delayed tasks nor a million of another priority are ever walked.

-- name: next_lane
select queue, kind, priority from task indexed by task_pending
where status = 'pending' and (queue, kind) >= (:queue, :kind)
order by queue, kind, priority desc limit 1

-- name: paused_pairs
select queue, tenant from pausedqueue indexed by pausedqueue_of_tenant

-- name: next_lane_in_queue
select queue, kind, priority from task indexed by task_pending
where status = 'pending' and queue = :queue and kind >= :kind
order by kind, priority desc limit 1

-- name: next_priority
select priority from task indexed by task_pending
where status = 'pending' and queue = :queue and kind = :kind and priority < :priority
order by priority desc limit 1

-- name: part ready
status = 'pending' and queue = :queue and kind = :kind and priority = :priority and available_at <= :at
  and (expires_at is null or expires_at > :at)
  and (:tenant is null or tenant = :tenant)
  and (:without = '[]' or id not in (select value from json_each(:without)))

-- name: ready_tasks
select {what} from task indexed by task_pending
where {ready}
order by available_at, id limit :limit

-- name: ready_tasks_unpaused
select {what} from task indexed by task_pending
where {ready}
  and tenant not in (select value from json_each(:paused))
order by available_at, id limit :limit

-- name: upcoming_tasks
select {what} from task indexed by task_pending
where status = 'pending' and queue = :queue and kind = :kind and priority = :priority and available_at > :after
  and available_at < 253402300799999999
  and (expires_at is null or expires_at > :after)
  and (:tenant is null or tenant = :tenant)
order by available_at, id limit :limit

-- name: tasks_in_line
select {what} from (select value as gate from json_each(:gates)) cross join task
where id in (
  select first.id from task as first indexed by task_line
  where first.line is not null and first.line = gate and first.status = 'pending'
    and (first.expires_at is null or first.expires_at > :at)
  order by first.priority desc, first.lined_at, first.id limit :most
)
order by line, priority desc, lined_at, id limit :limit

-- name: planned_tasks
select {what} from task indexed by task_planned
where status = 'pending' and planned_by is not null and planned_by = :gate and available_at > :after
order by available_at, id limit :limit

-- name: past_expiry
select {what} from task indexed by task_expiry
where status = 'pending' and expires_at is not null and expires_at <= :at
order by expires_at, id limit :limit

-- name: cancelling
select {what} from task indexed by task_cancelling
where status = 'running' and cancel_requested = 1 and worker_id = :worker_id
order by id limit :limit

-- name: ended_tasks
select {what} from task indexed by task_finished
where status not in ('pending', 'running') and (completed_at, id) > (:after_at, :after_id) and tenant = :tenant
order by completed_at, id limit :limit

-- name: tasks_by_beginning
select {what} from task indexed by sqlite_autoindex_task_1
where id >= :beginning and id < :beginning || char(1114111) and tenant = :tenant
order by created_at desc, id desc limit :limit

-- name: tasks_by_short_beginning
select {what} from task indexed by task_created
where tenant = :tenant and id >= :beginning and id < :beginning || char(1114111)
order by created_at desc, id desc limit :limit

-- name: open_tasks_pending
select {what} from task indexed by task_pending
where status = 'pending'
order by created_at, id limit :limit

-- name: open_tasks_running
select {what} from task indexed by task_lease
where status = 'running'
order by created_at, id limit :limit

-- The listing of tasks: the same filters over whichever index selects best.

-- name: task_list
select {what} from task indexed by task_created
where tenant = :tenant and created_at >= :since and (created_at, id) < (:after_at, :after_id)
  and {task_filter}
order by created_at desc, id desc limit :limit

-- name: task_list_unusual
select {what} from task indexed by task_unusual
where status not in ('pending', 'running') and status <> 'completed' and tenant = :tenant and status = :status
  and created_at >= :since and (created_at, id) < (:after_at, :after_id)
  and {task_filter}
order by created_at desc, id desc limit :limit

-- name: task_list_workflow
select {what} from task indexed by task_workflow
where is_workflow = 1 and tenant = :tenant and created_at >= :since and (created_at, id) < (:after_at, :after_id)
  and {task_filter}
order by created_at desc, id desc limit :limit

-- name: task_list_running
select {what} from task indexed by task_lease
where status = 'running' and tenant = :tenant and created_at >= :since and (created_at, id) < (:after_at, :after_id)
  and {task_filter}
order by created_at desc, id desc limit :limit

-- name: task_list_pending
select {what} from task indexed by task_pending
where status = 'pending' and tenant = :tenant and created_at >= :since and (created_at, id) < (:after_at, :after_id)
  and {task_filter}
order by created_at desc, id desc limit :limit

-- name: task_list_past_expiry
select {what} from task indexed by task_expiry
where status = 'pending' and expires_at is not null and expires_at <= :at
  and tenant = :tenant and created_at >= :since and (created_at, id) < (:after_at, :after_id)
  and {task_filter}
order by created_at desc, id desc limit :limit

-- name: pending_at_most
select count(*) from (select 1 from task indexed by task_pending where status = 'pending' limit ?)

-- name: part task_filter
(:status is null or :status = case when status = 'pending' and expires_at <= :at then 'expired' else status end)
  and (:kind is null or kind = :kind)
  and (:queue is null or queue = :queue)
  and (:schedule_id is null or schedule_id = :schedule_id)
  and (:is_workflow is null or is_workflow = :is_workflow)
  and (:tag is null or exists (select 1 from json_each(body, '$.tags') where value = :tag))

-- ## Schedules

-- name: outdated_zones_before
select {what} from schedule indexed by schedule_zone
where status = 'active' and deleted_at is null and zone_data <> '' and zone_data < :zone_data
order by id limit :limit

-- name: outdated_zones_after
select {what} from schedule indexed by schedule_zone
where status = 'active' and deleted_at is null and zone_data <> '' and zone_data > :zone_data
order by id limit :limit

-- name: open_schedules_number
select coalesce((select number from schedule_count where tenant = :tenant), 0)

-- name: schedule_list
select {what} from schedule indexed by schedule_created
where tenant = :tenant and (created_at, id) < (:after_at, :after_id)
  and (:deleted or deleted_at is null) and {schedule_filter}
order by created_at desc, id desc limit :limit

-- name: schedule_list_newest
select {what} from schedule indexed by schedule_created
where tenant = :tenant and (created_at, id) < (:after_at, :after_id)
  and (created_at, id) >= (
    coalesce((
      select created_at from schedule indexed by schedule_created where tenant = :tenant
      order by created_at desc, id desc limit 1 offset :newest - 1
    ), -9223372036854775808),
    coalesce((
      select id from schedule indexed by schedule_created where tenant = :tenant
      order by created_at desc, id desc limit 1 offset :newest - 1
    ), '')
  )
  and (:deleted or deleted_at is null) and {schedule_filter}
order by created_at desc, id desc limit :limit

-- name: schedule_list_unusual
select {what} from schedule indexed by schedule_unusual
where status <> 'active' and tenant = :tenant and status = :status and (created_at, id) < (:after_at, :after_id)
  and (:deleted or deleted_at is null) and {schedule_filter}
order by created_at desc, id desc limit :limit

-- name: schedule_list_of_all
select {what} from schedule indexed by schedule_of_all
where (created_at, id) < (:after_at, :after_id)
  and (:deleted or deleted_at is null) and {schedule_filter}
order by created_at desc, id desc limit :limit

-- name: schedules_by_keys
select {what} from schedule indexed by schedule_living_key
where deleted_at is null and tenant = :tenant and key in (select value from json_each(:keys))
order by key limit :limit

-- name: schedules_by_beginning
select {what} from schedule indexed by sqlite_autoindex_schedule_1
where id >= :beginning and id < :beginning || char(1114111) and tenant = :tenant
order by id limit :limit

-- name: schedules_by_next_time
select {what} from schedule indexed by schedule_next_time
where deleted_at is null and tenant = :tenant
  and (coalesce(due_at, 253402300799999999), id) > (:after_at, :after_id)
  and (coalesce(due_at, 253402300799999999), id) <= (
    case when :first is null then :last_at else coalesce((
      select coalesce(due_at, 253402300799999999) from schedule indexed by schedule_next_time
      where deleted_at is null and tenant = :tenant
      order by coalesce(due_at, 253402300799999999), id limit 1 offset :first - 1
    ), :last_at) end,
    case when :first is null then :last_id else coalesce((
      select id from schedule indexed by schedule_next_time
      where deleted_at is null and tenant = :tenant
      order by coalesce(due_at, 253402300799999999), id limit 1 offset :first - 1
    ), :last_id) end
  )
  and {schedule_filter}
order by coalesce(due_at, 253402300799999999), id limit :limit

-- name: part schedule_filter
(:status is null or status = :status)
  and (:kind is null or kind = :kind)
  and (:template_id is null or template_id = :template_id)
  and (:timezone is null or timezone = :timezone)
  and (:tag is null or instr(body, :tag) > 0 and exists (select 1 from json_each(body, '$.target.tags') where value = :tag))
  and (:text is null or instr(search, :text) > 0)

-- ## Runs

-- name: latest_runs
select {what} from (select value as of_schedule from json_each(:schedule_ids)) cross join run
where id in (
  select latest.id from run as latest indexed by run_of_schedule
  where latest.schedule_id = of_schedule
  order by latest.scheduled_at desc, latest.id desc limit :most
)
order by schedule_id, scheduled_at desc, id desc limit :limit

-- ## Alarms

-- name: alarm_list
select {what} from alarm indexed by alarm_of_tenant
where tenant = :tenant and (began_at, id) < (:after_at, :after_id)
  and (:subject_id is null or subject_id = :subject_id) and (not :is_open or over_at is null)
order by began_at desc, id desc limit :limit
