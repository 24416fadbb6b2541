CREATE TRIGGER schedule_changed_counted after update of status, deleted_at on schedule
when (new.deleted_at is null and new.status <> 'completed') <> (old.deleted_at is null and old.status <> 'completed')
begin
  insert into schedule_count values (new.tenant, 1)
  on conflict (tenant) do update
  set number = number + case when new.deleted_at is null and new.status <> 'completed' then 1 else -1 end;
end;

CREATE TRIGGER schedule_created_counted after insert on schedule
when new.deleted_at is null and new.status <> 'completed'
begin
  insert into schedule_count values (new.tenant, 1) on conflict (tenant) do update set number = number + 1;
end;

CREATE TRIGGER schedule_removed_counted after delete on schedule
when old.deleted_at is null and old.status <> 'completed'
begin
  update schedule_count set number = number - 1 where tenant = old.tenant;
end;

CREATE TABLE alarm (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  subject_id text not null,
  began_at integer not null,
  over_at integer,
  tell_at integer,
  body text not null
) strict;

CREATE TABLE apikey (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  body text not null
) strict;

CREATE TABLE artifact (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  task_id text not null,
  name text not null,
  content text,
  body text not null
) strict;

CREATE TABLE calendar (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  name text not null,
  body text not null
) strict;

CREATE TABLE event (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  at integer not null,
  subject_id text not null,
  body text not null
) strict;

CREATE TABLE gate (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  subject text not null,
  idle_since integer,
  body text not null
) strict;

CREATE TABLE nodestate (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  seen_at integer not null,
  body text not null
) strict;

CREATE TABLE pausedqueue (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  queue text not null,
  body text not null
) strict;

CREATE TABLE receipt (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  at integer not null,
  body text not null
) strict;

CREATE TABLE rota_migration (
  number integer primary key not null,
  name text not null,
  checksum text not null,
  applied_at text not null
) strict;

CREATE TABLE run (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  schedule_id text not null,
  scheduled_at integer not null,
  status text not null,
  completed_at integer,
  body text not null
) strict;

CREATE TABLE schedule (
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

CREATE TABLE schedule_count (
  tenant text primary key not null,
  number integer not null
) strict, without rowid;

CREATE TABLE signal (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  task_id text not null,
  at integer not null,
  received_at integer,
  body text not null
) strict;

CREATE TABLE step (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  task_id text not null,
  created_at integer not null,
  updated_at integer not null,
  status text not null,
  body text not null
) strict;

CREATE TABLE task (
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

CREATE TABLE template (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  alias_key text not null,
  body text not null
) strict;

CREATE TABLE tenant (
  id text primary key not null,
  version integer not null,
  tenant text not null,
  body text not null
) strict;

CREATE INDEX alarm_began on alarm (began_at, id);

CREATE INDEX alarm_of_tenant on alarm (tenant, began_at, id);

CREATE INDEX alarm_open on alarm (subject_id, began_at, id) where over_at is null;

CREATE INDEX alarm_over on alarm (over_at, id) where over_at is not null;

CREATE INDEX alarm_untold on alarm (tell_at, id) where tell_at is not null;

CREATE INDEX apikey_of_tenant on apikey (tenant, id);

CREATE INDEX artifact_content on artifact (content, id) where content is not null;

CREATE INDEX artifact_of_task on artifact (task_id, name, id);

CREATE INDEX calendar_of_tenant on calendar (tenant, name, id);

CREATE INDEX event_at on event (at, id);

CREATE INDEX event_of_subject on event (tenant, subject_id, at, id);

CREATE INDEX event_of_tenant on event (tenant, at, id);

CREATE INDEX gate_idle on gate (idle_since, id) where idle_since is not null;

CREATE INDEX gate_of_tenant on gate (tenant, id);

CREATE INDEX pausedqueue_of_tenant on pausedqueue (tenant, queue, id);

CREATE INDEX receipt_at on receipt (at, id);

CREATE INDEX run_ended on run (completed_at, id) where status <> 'running';

CREATE INDEX run_of_schedule on run (schedule_id, scheduled_at, id);

CREATE INDEX schedule_completed on schedule (completed_at, id) where completed_at is not null;

CREATE INDEX schedule_created on schedule (tenant, created_at, id);

CREATE INDEX schedule_deleted_key on schedule (tenant, key, created_at, id) where deleted_at is not null;

CREATE INDEX schedule_due on schedule (due_at, id)
  where deleted_at is null and due_at is not null;

CREATE UNIQUE INDEX schedule_living_key on schedule (tenant, key) where deleted_at is null;

CREATE INDEX schedule_next_time on schedule (tenant, coalesce(due_at, 253402300799999999), id) where deleted_at is null;

CREATE INDEX schedule_of_all on schedule (created_at, id);

CREATE INDEX schedule_unusual on schedule (tenant, status, created_at, id) where status <> 'active';

CREATE INDEX schedule_watch on schedule (watch_at, id) where watch_at is not null;

CREATE INDEX schedule_zone on schedule (zone_data, id)
  where status = 'active' and deleted_at is null and zone_data <> '';

CREATE INDEX signal_of_task on signal (task_id, at, id);

CREATE INDEX step_of_task on step (task_id, created_at, id);

CREATE INDEX step_updated on step (tenant, updated_at, id);

CREATE INDEX task_cancelling on task (worker_id, id) where status = 'running' and cancel_requested = 1;

CREATE INDEX task_created on task (tenant, created_at, id);

CREATE INDEX task_expiry on task (expires_at, id) where status = 'pending' and expires_at is not null;

CREATE INDEX task_finished on task (completed_at, id) where status not in ('pending', 'running');

CREATE INDEX task_lease on task (lease_expires_at, id) where status = 'running';

CREATE INDEX task_line on task (line, priority desc, lined_at, id) where line is not null;

CREATE INDEX task_live on task (schedule_id, created_at, id)
  where schedule_id is not null and status in ('pending', 'running');

CREATE INDEX task_of_schedule on task (schedule_id, created_at, id) where schedule_id is not null;

CREATE INDEX task_pending on task (queue, kind, priority desc, available_at, id, tenant) where status = 'pending';

CREATE INDEX task_planned on task (planned_by, available_at, id) where status = 'pending' and planned_by is not null;

CREATE INDEX task_returned on task (tenant, returned_at, id) where returned_at is not null;

CREATE INDEX task_unusual on task (tenant, status, created_at, id)
  where status not in ('pending', 'running') and status <> 'completed';

CREATE INDEX task_workflow on task (tenant, created_at, id) where is_workflow = 1;

CREATE UNIQUE INDEX template_alias on template (tenant, alias_key);

CREATE INDEX template_of_tenant on template (tenant, id);

