-- The statements of the PostgreSQL store, beside those that it shares (`../statements.sql`). `{…}` is filled in once, when
-- a store is made: {schema} with where its tables
-- are, {table}, {columns}, … by rows.py, since the same statements serve every
-- record type; {what} with what to select, since `find`, `count` and `tally` differ in little else; {lock} with how.
-- `:name` is a parameter. Each query ends with its order and its limit, on one line, and its filter repeats the predicate of
-- the partial index that it means. One that ends with {lock} walks that index in its order. The others sort what they have
-- gathered, which a count and a tally leave out.

-- ## The connection

-- name: begin
begin isolation level read committed

-- name: begin_read
begin isolation level repeatable read, read only

-- As part of a beginning: as long as a statement may take.
-- name: wait_for_locks
set local lock_timeout = 0

-- name: commit
commit

-- name: rollback
rollback

-- name: savepoint
savepoint rota_submit

-- name: rollback_to_savepoint
rollback to savepoint rota_submit

-- name: release_savepoint
release savepoint rota_submit

-- name: notify
select pg_notify($1::text, $2::text)

-- name: notify_and_commit
notify "{channel}", '{notice}'; commit

-- name: clock
select clock_timestamp()

-- How many rows were written to our tables so far, as the server's statistics have it; without heartbeats, of which nobody
-- is told. Whatever happens in other schemas and databases of the server makes no difference.
-- name: rows_written
select coalesce(
  sum(pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid)), 0
)::bigint
from pg_catalog.pg_class
where relkind = 'r' and relname <> 'nodestate'
  and relnamespace = (select oid from pg_catalog.pg_namespace where nspname = '{schema}')

-- Different after every commit of the server, in other databases, too.
-- name: look
select pg_current_snapshot()::text

-- A statement of the simple protocol, which a transaction pooler passes on as it is: "SELECT 1" if something changed.
-- name: look_again
select 1 where pg_current_snapshot()::text <> '{seen}'

-- The transactions that have not ended and write tasks, by the lock that each has from its first such statement on.
-- name: writers_of_tasks
select distinct virtualtransaction from pg_catalog.pg_locks
where locktype = 'relation' and mode = 'RowExclusiveLock' and granted and pid is distinct from pg_backend_pid()
  and database = (select oid from pg_catalog.pg_database where datname = current_database())
  and relation = '{schema}.task'::regclass

-- name: pause
select pg_sleep(:seconds::double precision)

-- ## Migrations

-- A migration may take as long as it takes, and so may those who wait for it.
-- name: migration_patience
set local statement_timeout = 0; set local lock_timeout = 0; set local standard_conforming_strings = on

-- name: migration_lock
select pg_advisory_xact_lock(:key::bigint)

-- Asked of the catalog itself: to_regclass() may answer from a cache that is older than the lock that we waited for.
-- name: migration_table_exists
select exists (select 1 from pg_catalog.pg_tables where schemaname = '{schema}' and tablename = 'migration')

-- name: schema_exists
select exists (select 1 from pg_catalog.pg_namespace where nspname = '{schema}')

-- name: create_schema
create schema {schema}

-- name: create_migration_table
create table {schema}.migration (
  number integer primary key,
  name text not null,
  checksum text not null,
  applied_at timestamptz not null default now()
);
-- Whoever may use the schema may see whether it is the one that they know.
grant select on {schema}.migration to public

-- name: applied_migrations
select number, name, checksum from {schema}.migration order by number

-- name: record_migration
insert into {schema}.migration (number, name, checksum) values ({number}, '{name}', '{checksum}')

-- Until the transaction ends.
-- name: lock_count
select pg_advisory_xact_lock(hashtextextended('{schema} ' || :of::text, 0))

-- ## Every record type (a column that varies is an array, and `given` has it; any other is one value for all rows)

-- `case` hides from the planner what is compared besides the id. Behind a pooler, where it is free to choose, it would take
-- that for rare and compare each row of a small table with each that is given: 21 µs of the server for a task, not 13.

-- These three are sent as parts of one statement, which counts the rows of each: `together` in transaction.py.

-- name: insert
insert into {schema}.{table} ({columns}) select {values} from unnest({arrays}) as given ({varying})
returning 1

-- name: replace
update {schema}.{table} as stored set version = {version}, {changes}
from unnest({arrays}) as given ({varying})
where stored.id = given.id and case when stored.version = {version} - 1 and {unchanged} then true end
returning 1

-- name: delete
delete from {schema}.{table} as stored
using unnest({arrays}) as given ({varying})
where stored.id = given.id and case when stored.version = {version} and {unchanged} then true end
returning 1

-- As another part, the last one: of the records that were read and must still be the same, those that are. A record that
-- was not there has version 0. The statement has locked the tables that it writes by now, so `writers_of_tasks` shows it
-- to everyone whose commit it does not see.

-- name: held
select 1 from unnest(:ids::text[], :versions::bigint[]) as given (id, version)
where given.version = coalesce((select stored.version from {schema}.{table} as stored where stored.id = given.id), 0)

-- Two of them as a whole commit in one statement: it fails unless every row was found, and it notifies others. It ends
-- with its list of columns, to which another can be added.

-- name: insert_and_commit
with new as (
  insert into {schema}.{table} ({columns}) select {values} from unnest({arrays}) as given ({varying})
  returning 1
)
select {notified}

-- name: replace_and_commit
with new as (
  update {schema}.{table} as stored set version = {version}, {changes}
  from unnest({arrays}) as given ({varying})
  where stored.id = given.id and case when stored.version = {version} - 1 and {unchanged} then true end
  returning 1
)
select {schema}.expect((select count(*) from new), cardinality($1)), {notified}

-- name: get
select {record} from {schema}.{table} where id = :id::text

-- name: get_many
select {record} from {schema}.{table} where id = any(:ids::text[])

-- The greatest id first: whoever locks several does so in this order.
-- name: get_and_lock
select {record} from {schema}.{table} where id = any(:ids::text[]) order by id desc for update

-- name: get_and_lock_free
select {record} from {schema}.{table} where id = any(:ids::text[]) order by id desc for update skip locked

-- name: all
select {record} from {schema}.{table} where id > :after order by id limit :limit

-- name: number
select count(*) from {schema}.{table}

-- ## Tasks

-- A task in the line of a gate has the end of time as its available_at: it is never ready, and never next.

-- Pending tasks lie in lanes: one for each (queue, kind, priority), sorted by time. Lanes are found by seeking from one
-- to the next, so neither a million delayed tasks nor a million of another kind are ever walked. A lane of a kind that is
-- not wanted is where a seek for one that is wanted ended: from there the next wanted kind is sought, so of thousands of
-- other kinds few are seen. `share` is how many of the best :limit lie in which lane; so many are then taken, and locked,
-- from each. If there is but one lane, all of them lie in it, and nothing is walked twice: a claim behind 20,000 tasks of
-- another tenant takes 4 instead of 7 ms of the server.

-- name: part lanes
lane (queue, kind, priority) as (
  (
    select first.queue, first.kind, first.priority
    from unnest(coalesce(:queues::text[], array[''])) as wanted (queue)
    cross join lateral (
      select queue, kind, priority from {schema}.task
      where status = 'pending' and (queue, kind) >= (
          wanted.queue, coalesce((select min(one collate "C") from unnest(:kinds::text[]) as one), '')
        )
        and (:queues::text[] is null or queue = wanted.queue)
      order by queue, kind, priority desc limit 1
    ) as first
  )
  union
  select next.queue, next.kind, next.priority
  from lane
  cross join lateral (
    select case
      when :kinds::text[] is null then lane.kind || chr(1)
      else coalesce(
        (select min(one collate "C") from unnest(:kinds::text[]) as one where one collate "C" > lane.kind), chr(1114111)
      )
    end as kind
  ) as sought
  cross join lateral (
    (
      select queue, kind, priority from {schema}.task
      where status = 'pending' and queue = lane.queue and kind = lane.kind and priority < lane.priority
        and (:kinds::text[] is null or lane.kind = any(:kinds::text[]))
      order by priority desc limit 1
    )
    union all
    (
      select queue, kind, priority from {schema}.task
      where status = 'pending' and (queue, kind) >= (lane.queue, sought.kind)
        and (:queues::text[] is null or queue = lane.queue)
      order by queue, kind, priority desc limit 1
    )
    limit 1
  ) as next
),
open_lane as (
  select * from lane where :kinds::text[] is null or kind = any(:kinds::text[])
)

-- name: part ready
task.status = 'pending' and task.queue = lane.queue and task.kind = lane.kind and task.priority = lane.priority
  and task.available_at <= :at::timestamptz
  and (task.expires_at is null or task.expires_at > :at::timestamptz)
  and (:tenant::text is null or task.tenant = :tenant::text)
  and task.id <> all(:without::text[])
  and ((select count(*) from paused) = 0 or (task.queue, task.tenant) not in (select queue, tenant from paused))

-- name: part upcoming
task.status = 'pending' and task.queue = lane.queue and task.kind = lane.kind and task.priority = lane.priority
  and task.available_at > :after::timestamptz
  and task.available_at < timestamptz '9999-12-31 23:59:59.999999+00'
  and (task.expires_at is null or task.expires_at > :after::timestamptz)
  and (:tenant::text is null or task.tenant = :tenant::text)

-- A lane of a queue that is paused for the only tenant that is asked for is not looked into.
-- name: part shares
paused as (
  select queue, tenant from {schema}.pausedqueue
),
ready_lane as (
  select * from open_lane
  where not exists (select 1 from paused where paused.queue = open_lane.queue and paused.tenant = :tenant::text)
),
best as (
  select lane.*
  from ready_lane as lane
  cross join lateral (
    select task.available_at, task.id from {schema}.task where {ready}
    order by task.available_at, task.id limit :limit::bigint
  ) as candidate
  where (select count(*) from ready_lane) > 1
  order by lane.priority desc, candidate.available_at, candidate.id limit :limit::bigint
),
share as (
  select queue, kind, priority, count(*) as most from best group by queue, kind, priority
  union all
  select queue, kind, priority, :limit::bigint from ready_lane where (select count(*) from ready_lane) = 1
)

-- name: ready_tasks
with recursive {lanes}, {shares}
select {what}
from share as lane
cross join lateral (
  select task.* from {schema}.task where {ready}
  order by task.available_at, task.id limit lane.most
) as task
order by lane.priority desc, task.available_at, task.id

-- name: part held
held as (
  select found.id, found.asks_at, found.kind, found.passed
  from share as lane
  cross join lateral (
    select task.available_at, task.id, task.asks_at, task.kind, task.passed from {schema}.task where {ready}
    order by task.available_at, task.id limit lane.most for update skip locked
  ) as found
  order by lane.priority desc, found.available_at, found.id limit :most::bigint
)

-- The same rows, locked. The first column is the number of the best of several lanes. If fewer were locked, others hold
-- some of them, and there may be more behind those. There is always a row: without a task, if there is none.
-- name: lock_ready_tasks
with recursive {lanes}, {shares}, {held}
select (select count(*) from best), {what}
from (select) as one left join (
  select task.* from {schema}.task where task.id = any(array(select id from held))
) as task on true
order by task.priority desc, task.available_at, task.id

-- The same rows, changed; none of them, if one has to ask first, as the second column says.
-- name: update_ready_tasks
with recursive {lanes}, {shares}, {held},
asking as (
  select exists (
    select 1 from held where asks_at <= :at::timestamptz or passed = 0 and kind = any(:limited::text[])
  ) as is_there
),
changed as (
  update {schema}.task set {changes}
  where task.id = any(array(select id from held where not (select is_there from asking))) returning task.*
)
select (select count(*) from best), (select is_there from asking), {what}
from (select) as one left join changed as task on true
order by task.priority desc, task.available_at, task.id

-- name: update_tasks
update {schema}.task set {changes}
from unnest(:ids::text[], :versions::bigint[]{arrays}) as given (id, version{varying})
where task.id = given.id and case when task.version = given.version then true end
returning 1

-- name: update_tasks_and_commit
with new as (
  update {schema}.task set {changes}
  from unnest(:ids::text[], :versions::bigint[]{arrays}) as given (id, version{varying})
  where task.id = given.id and case when task.version = given.version then true end
  returning 1
)
select
  {schema}.expect((select count(*) from new), cardinality(:ids::text[])),
  case when :channel::text is not null then pg_notify(:channel::text, :notice::text) end

-- name: upcoming_tasks
with recursive {lanes}
select {what}
from open_lane as lane
cross join lateral (
  select task.* from {schema}.task where {upcoming}
  order by task.available_at, task.id limit :limit::bigint
) as task
order by task.available_at, task.id limit :limit::bigint

-- Here `status || ''` keeps the planner from the index on pending tasks: while the server has no statistics of a table that
-- has grown, all of them would be read for each line.
-- name: tasks_in_line
select {what} from unnest(:gates::text[]) as gate (id)
cross join lateral (
  select task.* from {schema}.task
  where line is not null and line = gate.id collate "C" and status || '' = 'pending'
    and (expires_at is null or expires_at > :at::timestamptz)
  order by priority desc, lined_at, task.id limit :most::bigint
) as task
order by task.line, task.priority desc, task.lined_at, task.id limit :limit::bigint

-- The same tasks, taken out of their lines; none of them, if one has to ask further or is not available yet, as the second
-- column says. So those that are taken out have passed their only gate. The first column is the number of those found: if
-- fewer were changed, another transaction has changed the rest meanwhile. There is always a row.
-- name: update_lines
with next as (
  select task.id, task.asks_at is not null or task.lined_at > :at::timestamptz as is_asking
  from unnest(:gates::text[], :numbers::bigint[]) as gate (id, most)
  cross join lateral (
    select task.id, task.asks_at, task.lined_at from {schema}.task
    where line is not null and line = gate.id collate "C" and status || '' = 'pending'
      and (expires_at is null or expires_at > :at::timestamptz)
    order by priority desc, lined_at, task.id limit gate.most
  ) as task
),
asking as (
  select exists (select 1 from next where is_asking) as is_there
),
changed as (
  update {schema}.task set {changes},
    available_at = task.lined_at, lined_at = null, asks_at = null, planned_by = null
  where task.id = any(array(select id from next where not (select is_there from asking)))
    and case when task.line = any(:gates::text[]) and task.status = 'pending' and task.asks_at is null then true end
  returning task.*
)
select (select count(*) from next), (select is_there from asking), {what}
from (select) as one left join changed as task on true

-- name: planned_tasks
select {what} from {schema}.task
where status = 'pending' and planned_by is not null and planned_by = :gate::text
  and available_at > :after::timestamptz
order by available_at, id limit :limit::bigint

-- A range, since the planner takes `<=` alone for a third of the table if no task has an expiry, and walks all of it.
-- name: past_expiry
select {what} from {schema}.task
where status = 'pending' and expires_at between '-infinity' and :at::timestamptz
order by expires_at, id limit :limit::bigint {lock}

-- name: cancelling
select {what} from {schema}.task
where status = 'running' and cancel_requested and worker_id = :worker_id::text
order by id limit :limit::bigint {lock}

-- Here `tenant || ''` keeps the planner from an index that begins with the tenant.
-- name: ended_tasks
select {what} from {schema}.task
where status not in ('pending', 'running') and (completed_at, id) > (:after_at::timestamptz, :after_id::text)
  and tenant || '' = :tenant::text
order by completed_at, id limit :limit::bigint {lock}

-- name: tasks_by_beginning
select {what} from {schema}.task
where id >= :beginning::text and id < :beginning::text || chr(1114111) and tenant || '' = :tenant::text
order by created_at desc, id desc limit :limit::bigint {lock}

-- Here `id || ''` keeps the planner from the primary key, which has the tasks of all tenants.
-- name: tasks_by_short_beginning
select {what} from (
  (
    select * from {schema}.task
    where status <> 'running' and tenant = :tenant::text
      and id || '' >= :beginning::text and id || '' < :beginning::text || chr(1114111)
    order by created_at desc, id desc limit :limit::bigint
  )
  union all
  (
    select * from {schema}.task
    where status = 'running' and tenant = :tenant::text
      and id || '' >= :beginning::text and id || '' < :beginning::text || chr(1114111)
  )
) as task
order by created_at desc, id desc limit :limit::bigint

-- name: open_tasks
select {what} from (
  select * from {schema}.task where status = 'pending'
  union all
  select * from {schema}.task where status = 'running'
) as task
order by created_at, id limit :limit::bigint

-- The listing of tasks: the same filters over whichever index selects best. What is few is gathered first, then sorted.

-- name: task_list
select {what} from {schema}.task
where status <> 'running' and tenant = :tenant::text and created_at >= :since::timestamptz and (created_at, id) < (:after_at::timestamptz, :after_id::text)
  and {task_filter}
order by created_at desc, id desc limit :limit::bigint {lock}

-- name: task_list_any
select {what} from (
  (
    select * from {schema}.task
    where status <> 'running' and tenant = :tenant::text and created_at >= :since::timestamptz and (created_at, id) < (:after_at::timestamptz, :after_id::text)
      and {task_filter}
    order by created_at desc, id desc limit :limit::bigint
  )
  union all
  (
    select * from {schema}.task
    where status = 'running' and tenant = :tenant::text and created_at >= :since::timestamptz and (created_at, id) < (:after_at::timestamptz, :after_id::text)
      and {task_filter}
  )
) as task
order by created_at desc, id desc limit :limit::bigint

-- name: task_list_unusual
select {what} from {schema}.task
where status in ('failed', 'cancelled', 'expired', 'archived') and tenant = :tenant::text and status = :status::text
  and created_at >= :since::timestamptz and (created_at, id) < (:after_at::timestamptz, :after_id::text)
  and {task_filter}
order by created_at desc, id desc limit :limit::bigint {lock}

-- name: task_list_workflow
select {what} from {schema}.task
where is_workflow and tenant = :tenant::text and created_at >= :since::timestamptz and (created_at, id) < (:after_at::timestamptz, :after_id::text)
  and {task_filter}
order by created_at desc, id desc limit :limit::bigint {lock}

-- name: task_list_running
with task as materialized (select * from {schema}.task where status = 'running')
select {what} from task
where tenant = :tenant::text and created_at >= :since::timestamptz and (created_at, id) < (:after_at::timestamptz, :after_id::text)
  and {task_filter}
order by created_at desc, id desc limit :limit::bigint

-- name: task_list_pending
with task as materialized (select * from {schema}.task where status = 'pending')
select {what} from task
where tenant = :tenant::text and created_at >= :since::timestamptz and (created_at, id) < (:after_at::timestamptz, :after_id::text)
  and {task_filter}
order by created_at desc, id desc limit :limit::bigint

-- name: task_list_expired
with task as materialized (
  (
    select * from {schema}.task
    where status in ('failed', 'cancelled', 'expired', 'archived') and tenant = :tenant::text and status = 'expired'
      and created_at >= :since::timestamptz and (created_at, id) < (:after_at::timestamptz, :after_id::text)
      and {task_filter}
    order by created_at desc, id desc limit :limit::bigint
  )
  union all
  (
    select * from {schema}.task
    where status = 'pending' and expires_at is not null and expires_at <= :at::timestamptz
  )
)
select {what} from task
where tenant = :tenant::text and created_at >= :since::timestamptz and (created_at, id) < (:after_at::timestamptz, :after_id::text)
  and {task_filter}
order by created_at desc, id desc limit :limit::bigint

-- name: pending_at_most
select count(*) from (select 1 from {schema}.task where status = 'pending' limit :limit::bigint) as found

-- name: part task_filter
(:status::text is null or :status::text = case when status = 'pending' and expires_at <= :at::timestamptz then 'expired' else status end)
  and (:kind::text is null or kind = :kind::text)
  and (:queue::text is null or queue = :queue::text)
  and (:schedule_id::text is null or schedule_id = :schedule_id::text)
  and (:is_workflow::boolean is null or is_workflow = :is_workflow::boolean)
  and (:tag::text is null or :tag::text = any(tags))

-- ## Schedules

-- name: outdated_zones
select {what} from {schema}.schedule
where status = 'active' and deleted_at is null and zone_data <> '' and zone_data <> :zone_data::text
order by id limit :limit::bigint {lock}

-- name: open_schedules_number
select coalesce((select number from {schema}.schedule_count where tenant = :tenant::text), 0)

-- Comparing the tenant with the rest keeps the planner from the index over all tenants, whose order is the same.
-- name: schedule_list
select {what} from {schema}.schedule
where tenant = :tenant::text and (tenant, created_at, id) < (:tenant::text, :after_at::timestamptz, :after_id::text)
  and (:deleted::boolean or deleted_at is null) and {schedule_filter}
order by created_at desc, id desc limit :limit::bigint {lock}

-- name: schedule_list_newest
select {what} from {schema}.schedule
where tenant = :tenant::text and (tenant, created_at, id) < (:tenant::text, :after_at::timestamptz, :after_id::text)
  and (tenant, created_at, id) >= (
    :tenant::text,
    coalesce((
      select created_at from {schema}.schedule where tenant = :tenant::text
      order by created_at desc, id desc limit 1 offset :newest::bigint - 1
    ), '-infinity'),
    coalesce((
      select id from {schema}.schedule where tenant = :tenant::text
      order by created_at desc, id desc limit 1 offset :newest::bigint - 1
    ), '')
  )
  and (:deleted::boolean or deleted_at is null) and {schedule_filter}
order by created_at desc, id desc limit :limit::bigint {lock}

-- name: schedule_list_unusual
select {what} from {schema}.schedule
where status <> 'active' and tenant = :tenant::text and status = :status::text
  and (tenant, status, created_at, id) < (:tenant::text, :status::text, :after_at::timestamptz, :after_id::text)
  and (:deleted::boolean or deleted_at is null) and {schedule_filter}
order by created_at desc, id desc limit :limit::bigint {lock}

-- Here `coalesce` keeps the planner from the index on living keys, which is in another order.
-- name: schedule_list_of_all
select {what} from {schema}.schedule
where (created_at, id) < (:after_at::timestamptz, :after_id::text)
  and (:deleted::boolean or coalesce(deleted_at, 'infinity') = 'infinity') and {schedule_filter}
order by created_at desc, id desc limit :limit::bigint {lock}

-- Here a subquery keeps the planner from the index by next time, which would have all schedules of the tenant read while
-- the server has no statistics of a table that has grown.
-- name: schedules_by_keys
select {what} from {schema}.schedule
where deleted_at is null and (tenant, key) in (select :tenant::text, unnest(:keys::text[]))
order by key limit :limit::bigint {lock}

-- name: schedules_by_beginning
select {what} from {schema}.schedule
where id >= :beginning::text and id < :beginning::text || chr(1114111) and tenant || '' = :tenant::text
order by id limit :limit::bigint {lock}

-- name: schedules_by_next_time
select {what} from {schema}.schedule
where deleted_at is null and tenant = :tenant::text
  and (coalesce(due_at, 'infinity'::timestamptz), id) > (:after_at::timestamptz, :after_id::text)
  and (coalesce(due_at, 'infinity'::timestamptz), id) <= (
    case when :first::bigint is null then :last_at::timestamptz else coalesce((
      select coalesce(due_at, 'infinity'::timestamptz) from {schema}.schedule
      where deleted_at is null and tenant = :tenant::text
      order by coalesce(due_at, 'infinity'::timestamptz), id limit 1 offset :first::bigint - 1
    ), :last_at::timestamptz) end,
    case when :first::bigint is null then :last_id::text else coalesce((
      select id from {schema}.schedule
      where deleted_at is null and tenant = :tenant::text
      order by coalesce(due_at, 'infinity'::timestamptz), id limit 1 offset :first::bigint - 1
    ), :last_id::text) end
  )
  and {schedule_filter}
order by coalesce(due_at, 'infinity'::timestamptz), id limit :limit::bigint {lock}

-- name: part schedule_filter
(:status::text is null or status = :status::text)
  and (:kind::text is null or kind = :kind::text)
  and (:template_id::text is null or template_id = :template_id::text)
  and (:timezone::text is null or timezone = :timezone::text)
  and (:tag::text is null or :tag::text = any(tags))
  and (:text::text is null or strpos(search, :text::text) > 0)

-- ## Runs

-- name: latest_runs
select {what} from unnest(:schedule_ids::text[]) as of (schedule)
cross join lateral (
  select * from {schema}.schedule_run
  where schedule_id = of.schedule collate "C"
  order by scheduled_at desc, id desc limit :most::bigint
) as latest
order by schedule_id, scheduled_at desc, id desc limit :limit::bigint

-- ## Alarms

-- As in `schedule_list`: the tenant is compared with the rest.
-- name: alarm_list
select {what} from {schema}.alarm
where tenant = :tenant::text and (tenant, began_at, id) < (:tenant::text, :after_at::timestamptz, :after_id::text)
  and (:subject_id::text is null or subject_id = :subject_id::text) and (not :is_open::boolean or over_at is null)
order by began_at desc, id desc limit :limit::bigint {lock}

-- ## Artifacts

-- name: write_content
insert into {schema}.content (key, number, bytes) values ($1::text, $2::integer, $3::bytea)

-- name: read_content
select substring(bytes from $3::integer for $4::integer) from {schema}.content where key = $1::text and number = $2::integer

-- name: content_keys
select key from {schema}.content where number = 0 order by key

-- name: delete_contents
delete from {schema}.content where key = any($1::text[])
