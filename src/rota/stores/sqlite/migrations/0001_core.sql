-- One table per record type. `body` is the record, as JSON; the other columns repeat what the indexes need.
-- Times are microseconds since 1970, UTC. Indexes are partial where a state selects few rows, so that a task that
-- is inserted, claimed and completed touches few of them.

create table task (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  created_at integer not null,
  schedule_id text,
  kind text not null,
  queue text not null,
  priority integer not null,
  status text not null,
  available_at integer not null,
  expires_at integer,
  lease_expires_at integer,
  worker_id text,
  cancel_requested integer not null,
  completed_at integer,
  body text not null,
  is_workflow integer not null default 0,
  returned_at integer,
  line text,
  lined_at integer,
  planned_by text
) strict;

create index task_created on task (tenant, created_at, id);
create index task_of_schedule on task (schedule_id, created_at, id) where schedule_id is not null;
create index task_pending on task (queue, kind, priority desc, available_at, id, tenant) where status = 'pending';
create index task_lease on task (lease_expires_at, id) where status = 'running';
create index task_cancelling on task (worker_id, id) where status = 'running' and cancel_requested = 1;
create index task_expiry on task (expires_at, id) where status = 'pending' and expires_at is not null;
create index task_live on task (schedule_id, created_at, id)
  where schedule_id is not null and status in ('pending', 'running');
create index task_finished on task (completed_at, id) where status not in ('pending', 'running');
-- Not `in ('failed', 'cancelled', …)`: SQLite would make a table of three or more, twice for every task that is written.
create index task_unusual on task (tenant, status, created_at, id)
  where status not in ('pending', 'running') and status <> 'completed';
create index task_workflow on task (tenant, created_at, id) where is_workflow = 1;
create index task_line on task (line, priority desc, lined_at, id) where line is not null;
create index task_planned on task (planned_by, available_at, id) where status = 'pending' and planned_by is not null;
create index task_returned on task (tenant, returned_at, id) where returned_at is not null;

create table schedule (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  created_at integer not null,
  key text not null,
  status text not null,
  due_at integer,
  deleted_at integer,
  completed_at integer,
  zone_data text not null,
  timezone text not null,
  watch_at integer,
  kind text,
  template_id text,
  search text not null,
  body text not null
) strict;

create index schedule_created on schedule (tenant, created_at, id);
create index schedule_unusual on schedule (tenant, status, created_at, id) where status <> 'active';
create index schedule_of_all on schedule (created_at, id);
create index schedule_due on schedule (due_at, id)
  where deleted_at is null and due_at is not null;
create index schedule_next_time on schedule (tenant, coalesce(due_at, 253402300799999999), id) where deleted_at is null;
create unique index schedule_living_key on schedule (tenant, key) where deleted_at is null;
create index schedule_deleted_key on schedule (tenant, key, created_at, id) where deleted_at is not null;
create index schedule_zone on schedule (zone_data, id)
  where status = 'active' and deleted_at is null and zone_data <> '';
create index schedule_watch on schedule (watch_at, id) where watch_at is not null;
create index schedule_completed on schedule (completed_at, id) where completed_at is not null;

-- How many schedules of a tenant are neither deleted nor completed: to count them takes as long as there are many.
create table schedule_count (
  tenant text primary key not null,
  number integer not null
) strict, without rowid;

create trigger schedule_created_counted after insert on schedule
when new.deleted_at is null and new.status <> 'completed'
begin
  insert into schedule_count values (new.tenant, 1) on conflict (tenant) do update set number = number + 1;
end;

create trigger schedule_changed_counted after update of status, deleted_at on schedule
when (new.deleted_at is null and new.status <> 'completed') <> (old.deleted_at is null and old.status <> 'completed')
begin
  insert into schedule_count values (new.tenant, 1)
  on conflict (tenant) do update
  set number = number + case when new.deleted_at is null and new.status <> 'completed' then 1 else -1 end;
end;

create trigger schedule_removed_counted after delete on schedule
when old.deleted_at is null and old.status <> 'completed'
begin
  update schedule_count set number = number - 1 where tenant = old.tenant;
end;

create table run (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  schedule_id text not null,
  scheduled_at integer not null,
  status text not null,
  completed_at integer,
  body text not null
) strict;

create index run_of_schedule on run (schedule_id, scheduled_at, id);
create index run_ended on run (completed_at, id) where status <> 'running';

create table event (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  at integer not null,
  subject_id text not null,
  body text not null
) strict;

create index event_at on event (at, id);
create index event_of_tenant on event (tenant, at, id);
create index event_of_subject on event (tenant, subject_id, at, id);

create table template (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  alias_key text not null,
  body text not null
) strict;

create unique index template_alias on template (tenant, alias_key);
create index template_of_tenant on template (tenant, id);

create table tenant (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  body text not null
) strict;

create table apikey (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  body text not null
) strict;

create index apikey_of_tenant on apikey (tenant, id);

create table receipt (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  at integer not null,
  body text not null
) strict;

create index receipt_at on receipt (at, id);

create table nodestate (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  seen_at integer not null,
  body text not null
) strict;

create table pausedqueue (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  queue text not null,
  body text not null
) strict;

create index pausedqueue_of_tenant on pausedqueue (tenant, queue, id);

create table calendar (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  name text not null,
  body text not null
) strict;

create index calendar_of_tenant on calendar (tenant, name, id);

create table artifact (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  task_id text not null,
  name text not null,
  content text,
  body text not null
) strict;

create index artifact_of_task on artifact (task_id, name, id);
create index artifact_content on artifact (content, id) where content is not null;

-- What workflows did and wait for, and what was sent to them.
create table step (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  task_id text not null,
  created_at integer not null,
  updated_at integer not null,
  status text not null,
  body text not null
) strict;

create index step_of_task on step (task_id, created_at, id);
create index step_updated on step (tenant, updated_at, id);

create table signal (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  task_id text not null,
  at integer not null,
  received_at integer,
  body text not null
) strict;

create index signal_of_task on signal (task_id, at, id);

-- What is wrong, from when it began until it was over.
create table alarm (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  subject_id text not null,
  began_at integer not null,
  over_at integer,
  tell_at integer,
  body text not null
) strict;

create index alarm_began on alarm (began_at, id);
create index alarm_of_tenant on alarm (tenant, began_at, id);
create index alarm_open on alarm (subject_id, began_at, id) where over_at is null;
create index alarm_untold on alarm (tell_at, id) where tell_at is not null;
create index alarm_over on alarm (over_at, id) where over_at is not null;

-- The state of the limits of tasks. A task in a line has the end of time as its `available_at`.
create table gate (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  subject text not null,
  idle_since integer,
  body text not null
) strict;

create index gate_of_tenant on gate (tenant, id);
create index gate_idle on gate (idle_since, id) where idle_since is not null;
