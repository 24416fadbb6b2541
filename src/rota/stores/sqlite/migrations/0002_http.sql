-- What the HTTP API asks for: keys and receipts; workflows by themselves; what waits again; schedules of all tenants.
-- A task that is inserted, claimed and completed touches neither of the two new indexes on tasks.

alter table task add column is_workflow integer not null default 0;
alter table task add column returned_at integer;

create index task_workflow on task (tenant, created_at, id) where is_workflow = 1;
create index task_returned on task (tenant, returned_at, id) where returned_at is not null;

-- Times in a body are as 2026-03-01T12:00:00.123456Z, the fraction only if there is one.
update task
set returned_at = unixepoch(substr(body ->> 'updated_at', 1, 19)) * 1000000
  + cast(substr(rtrim(substr(body ->> 'updated_at', 21), 'Z') || '000000', 1, 6) as integer)
where status = 'pending' and case when json_valid(body) then body ->> 'updated_at' <> body ->> 'created_at' end;

create index schedule_of_all on schedule (created_at, id);

create index template_of_tenant on template (tenant, id);

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
