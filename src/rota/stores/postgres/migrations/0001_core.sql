-- One table per record type. A task is its columns and a `body` of the rest, as JSON. Of other records the body is all,
-- and the truth; their other columns repeat what indexes need and what people ask for. It is `json` and not `jsonb`: texts
-- come back as they went (the character U+0000 included), and nothing is parsed on the way. Texts sort by code point (collation C), as on every store. Indexes are partial where a
-- state selects few rows. The hot table leaves room for new versions of a row on its page and is vacuumed early.
-- Of a task what people look at comes first, then what is never null: the fewer nulls are before a column, the sooner it is
-- found. `{schema}` is filled in when this is applied.

create table {schema}.task (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  status text collate "C" not null,
  kind text collate "C" not null,
  queue text collate "C" not null,
  priority smallint not null,
  attempt integer not null,
  error text,
  created_at timestamptz not null,
  available_at timestamptz not null,
  updated_at timestamptz not null,
  version bigint not null,
  changes integer not null,
  cancel_requested boolean not null,
  is_workflow boolean not null default false,
  is_parked boolean not null default false,
  started_at timestamptz,
  completed_at timestamptz,
  expires_at timestamptz,
  lease_expires_at timestamptz,
  lined_at timestamptz,
  asks_at timestamptz,
  slot_until timestamptz,
  returned_at timestamptz generated always as (case when status = 'pending' and not is_parked and updated_at <> created_at then updated_at end) stored,
  output json,
  progress json,
  max_retries integer,
  passed integer not null default 0,
  retry_policy json,
  timeout interval,
  tags text[],
  lease_id text collate "C",
  worker_id text collate "C",
  schedule_id text collate "C",
  line text collate "C",
  planned_by text collate "C",
  actor text,
  created_by text,
  body json not null
) with (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.05,
  autovacuum_vacuum_cost_delay = 0
);

-- A running task is in no listing index: those few are added from `task_lease`, which saves two index entries for each
-- task that runs. `task_pending` ends with the tenant, so that a worker of one tenant passes over the tasks of others
-- within the index. `task_expiry` comes last: of two indexes that cost the same, as all do while a table is empty, the
-- planner takes the newer one.
create index task_of_schedule on {schema}.task (schedule_id, created_at, id) where schedule_id is not null;
create index task_lease on {schema}.task (lease_expires_at, id) where status = 'running';
create index task_cancelling on {schema}.task (worker_id, id) where status = 'running' and cancel_requested;
create index task_live on {schema}.task (schedule_id, created_at, id)
  where schedule_id is not null and status in ('pending', 'running');
create index task_finished on {schema}.task (completed_at, id) where status not in ('pending', 'running');
create index task_unusual on {schema}.task (tenant, status, created_at, id)
  where status in ('failed', 'cancelled', 'expired', 'archived');
create index task_workflow on {schema}.task (tenant, created_at, id) where is_workflow;
create index task_line on {schema}.task (line, priority desc, lined_at, id) where line is not null;
create index task_returned on {schema}.task (tenant, returned_at, id) where returned_at is not null;
create index task_created on {schema}.task (tenant, created_at, id) where status <> 'running';
create index task_pending on {schema}.task (queue, kind, priority desc, available_at, id, tenant) where status = 'pending';
create index task_planned on {schema}.task (planned_by, available_at, id)
  where status = 'pending' and planned_by is not null;
create index task_expiry on {schema}.task (expires_at, id) where status = 'pending' and expires_at is not null;

create table {schema}.schedule (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  key text collate "C" not null,
  description text not null,
  status text collate "C" not null,
  enabled boolean generated always as (status = 'active' and deleted_at is null) stored,
  timing json not null,
  target json not null,
  kind text collate "C",
  template_id text collate "C",
  tags text[],
  next_run_at timestamptz,
  due_at timestamptz,
  last_run_at timestamptz,
  run_count bigint not null,
  missed_run_policy text not null,
  overlap_policy text not null,
  zone_data text collate "C" not null,
  timezone text collate "C" not null,
  watch_at timestamptz,
  search text collate "C" not null,
  created_by text,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  completed_at timestamptz,
  deleted_at timestamptz,
  version bigint not null,
  body json not null
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

create index schedule_created on {schema}.schedule (tenant, created_at, id);
create index schedule_unusual on {schema}.schedule (tenant, status, created_at, id) where status <> 'active';
create index schedule_of_all on {schema}.schedule (created_at, id);
create index schedule_due on {schema}.schedule (due_at, id)
  where deleted_at is null and due_at is not null;
create index schedule_next_run on {schema}.schedule (next_run_at) where enabled and next_run_at is not null;
create index schedule_next_time on {schema}.schedule (tenant, coalesce(due_at, 'infinity'::timestamptz), id)
  where deleted_at is null;
create unique index schedule_living_key on {schema}.schedule (tenant, key) where deleted_at is null;
create index schedule_deleted_key on {schema}.schedule (tenant, key, created_at, id) where deleted_at is not null;
create index schedule_zone on {schema}.schedule (zone_data, id)
  where status = 'active' and deleted_at is null and zone_data <> '';
create index schedule_watch on {schema}.schedule (watch_at, id) where watch_at is not null;
create index schedule_completed on {schema}.schedule (completed_at, id) where completed_at is not null;

create table {schema}.schedule_count (
  tenant text collate "C" primary key,
  number bigint not null
) with (fillfactor = 50);

create function {schema}.count_schedule() returns trigger language plpgsql as $$
declare
  is_open constant boolean := tg_op <> 'DELETE' and new.deleted_at is null and new.status <> 'completed';
begin
  insert into {schema}.schedule_count as counted (tenant, number)
  values (case when tg_op = 'DELETE' then old.tenant else new.tenant end, case when is_open then 1 else -1 end)
  on conflict (tenant) do update set number = counted.number + excluded.number;
  return null;
end $$;

-- Many schedules of one statement are counted once: ten thousand changes of one row would each walk over those before.
create function {schema}.count_new_schedules() returns trigger language plpgsql as $$
begin
  insert into {schema}.schedule_count as counted (tenant, number)
  select tenant, count(*) from added where deleted_at is null and status <> 'completed' group by tenant order by tenant
  on conflict (tenant) do update set number = counted.number + excluded.number;
  return null;
end $$;

create trigger schedule_created_counted after insert on {schema}.schedule referencing new table as added
  for each statement execute function {schema}.count_new_schedules();
create trigger schedule_changed_counted after update on {schema}.schedule for each row
  when ((new.deleted_at is null and new.status <> 'completed') <> (old.deleted_at is null and old.status <> 'completed'))
  execute function {schema}.count_schedule();
create trigger schedule_removed_counted after delete on {schema}.schedule for each row
  when (old.deleted_at is null and old.status <> 'completed') execute function {schema}.count_schedule();

create table {schema}.schedule_run (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  schedule_id text collate "C" not null,
  scheduled_at timestamptz not null,
  status text collate "C" not null,
  trigger text not null,
  reason text,
  target_type text not null,
  target_id text collate "C",
  started_at timestamptz,
  completed_at timestamptz,
  error text,
  created_at timestamptz not null,
  version bigint not null,
  body json not null
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

create index schedule_run_of_schedule on {schema}.schedule_run (schedule_id, scheduled_at, id);
create index schedule_run_ended on {schema}.schedule_run (completed_at, id) where status <> 'running';

create table {schema}.event (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  at timestamptz not null,
  actor text not null,
  action text not null,
  subject_type text not null,
  subject_id text collate "C" not null,
  version bigint not null,
  body json not null
);

create index event_at on {schema}.event (at, id);
create index event_of_tenant on {schema}.event (tenant, at, id);
create index event_of_subject on {schema}.event (tenant, subject_id, at, id);

create table {schema}.template (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  alias_key text collate "C" not null,
  version bigint not null,
  body json not null
);

create unique index template_alias on {schema}.template (tenant, alias_key);
create index template_of_tenant on {schema}.template (tenant, id);

create table {schema}.tenant (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  version bigint not null,
  body json not null
);

create table {schema}.apikey (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  name text not null,
  role text not null,
  created_at timestamptz not null,
  created_by text not null,
  revoked_at timestamptz,
  revoked_by text,
  version bigint not null,
  body json not null
);

create index apikey_of_tenant on {schema}.apikey (tenant, id);

create table {schema}.receipt (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  at timestamptz not null,
  status integer not null,
  version bigint not null,
  body json not null
);

create index receipt_at on {schema}.receipt (at, id);

create table {schema}.nodestate (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  seen_at timestamptz not null,
  host text not null,
  pid bigint not null,
  release text not null,
  version bigint not null,
  body json not null
);

create table {schema}.pausedqueue (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  queue text collate "C" not null,
  note text not null,
  paused_at timestamptz not null,
  paused_by text not null,
  version bigint not null,
  body json not null
);

create index pausedqueue_of_tenant on {schema}.pausedqueue (tenant, queue, id);

create table {schema}.calendar (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  name text collate "C" not null,
  updated_at timestamptz not null,
  version bigint not null,
  body json not null
);

create index calendar_of_tenant on {schema}.calendar (tenant, name, id);

create table {schema}.alarm (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  rule text not null,
  subject_type text not null,
  subject_id text collate "C" not null,
  subject text not null,
  detail text not null,
  began_at timestamptz not null,
  over_at timestamptz,
  tell_at timestamptz,
  version bigint not null,
  body json not null
);

create index alarm_began on {schema}.alarm (began_at, id);
create index alarm_of_tenant on {schema}.alarm (tenant, began_at, id);
create index alarm_open on {schema}.alarm (subject_id, began_at, id) where over_at is null;
create index alarm_untold on {schema}.alarm (tell_at, id) where tell_at is not null;
create index alarm_over on {schema}.alarm (over_at, id) where over_at is not null;

create table {schema}.artifact (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  task_id text collate "C" not null,
  name text collate "C" not null,
  media_type text not null,
  size bigint not null,
  created_at timestamptz not null,
  content text collate "C",
  version bigint not null,
  body json not null
);

create index artifact_of_task on {schema}.artifact (task_id, name, id);
create index artifact_content on {schema}.artifact (content, id) where content is not null;

create table {schema}.content (
  key text collate "C" not null,
  number integer not null,
  bytes bytea not null,
  primary key (key, number)
);

alter table {schema}.content alter column bytes set storage external;

create table {schema}.step (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  task_id text collate "C" not null,
  key text not null,
  kind text not null,
  status text collate "C" not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  due_at timestamptz,
  completed_at timestamptz,
  version bigint not null,
  body json not null
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

create index step_of_task on {schema}.step (task_id, created_at, id);
create index step_updated on {schema}.step (tenant, updated_at, id);

create table {schema}.signal (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  task_id text collate "C" not null,
  name text not null,
  at timestamptz not null,
  received_at timestamptz,
  version bigint not null,
  body json not null
);

create index signal_of_task on {schema}.signal (task_id, at, id);

create table {schema}.gate (
  id text collate "C" primary key,
  tenant text collate "C" not null,
  subject text collate "C" not null,
  key text,
  inside integer not null,
  has_line boolean not null,
  next_at timestamptz,
  idle_since timestamptz,
  version bigint not null,
  body json not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index gate_of_tenant on {schema}.gate (tenant, id);
create index gate_idle on {schema}.gate (idle_since, id) where idle_since is not null;

comment on schema {schema} is 'Rota: schedules and tasks. Look as you like; change through rota, or through {schema}.submit().';
comment on table {schema}.task is 'One row per piece of work. pending -> running -> completed | failed | cancelled | expired -> archived.';
comment on column {schema}.task.status is 'A pending task whose expires_at has passed reads as expired, marked or not.';
comment on column {schema}.task.priority is '0 to 255; higher runs first.';
comment on column {schema}.task.attempt is 'How often it was started.';
comment on column {schema}.task.error is 'What went wrong last: type and message. The traceback is in body -> ''error''.';
comment on column {schema}.task.available_at is 'Not before this time; later for delayed and for retried tasks; the end of time for one in a line.';
comment on column {schema}.task.line is 'The gate in whose line it waits; null: in none.';
comment on column {schema}.task.lined_at is 'Since when it waits in that line.';
comment on column {schema}.task.planned_by is 'The gate whose rate gave it the moment that it waits for.';
comment on column {schema}.task.asks_at is 'From when on it has to ask at a gate before a worker may have it; null: it has not to.';
comment on column {schema}.task.passed is 'How many of its gates it has passed.';
comment on column {schema}.task.slot_until is 'The moment that a rate gave it is good until then.';
comment on column {schema}.task.expires_at is 'If it has not started by then, it never will.';
comment on column {schema}.task.lease_expires_at is 'While running: when the task is taken back unless its worker renews.';
comment on column {schema}.task.worker_id is 'host:pid:… of the worker that has it.';
comment on column {schema}.task.changes is 'How many lines its history has had.';
comment on column {schema}.task.actor is 'Who completed it, where body does not say so.';
comment on column {schema}.task.created_by is 'Who submitted it, where body does not say so.';
comment on column {schema}.task.schedule_id is 'The schedule that started it, if one did.';
comment on column {schema}.task.version is 'Counts the writes of this row.';
comment on column {schema}.task.body is
  'What no column has: input, metadata, logs, … and the history, but for the last lines where the columns say the same.';
comment on table {schema}.schedule is 'When to run what. key is unique per tenant among those not deleted.';
comment on column {schema}.schedule.timing is 'once, interval, cron or rrule, with its zone.';
comment on column {schema}.schedule.target is 'What to run: a task, a workflow or a template, with its input.';
comment on column {schema}.schedule.next_run_at is 'The next nominal time; null: no future runs.';
comment on column {schema}.schedule.due_at is 'When it fires: next_run_at, and its jitter.';
comment on column {schema}.schedule.search is 'What a search for a text looks through.';
comment on table {schema}.schedule_run is 'The ledger: one row for every time a schedule was expected to run, and what became of it.';
comment on column {schema}.schedule_run.scheduled_at is 'When it was supposed to run. A row for several missed times has the last of them in body.';
comment on column {schema}.schedule_run.status is 'running until its target has ended; then completed, failed, skipped or cancelled.';
comment on column {schema}.schedule_run.reason is 'Why it was skipped or failed: missed, overlap, limit, bad_target, expired.';
comment on column {schema}.schedule_run.target_id is 'The task that was started.';
comment on table {schema}.event is 'Who changed what, when, with before and after. Rows are only added.';
comment on table {schema}.schedule_count is 'How many schedules of a tenant are neither deleted nor completed.';
comment on function {schema}.count_schedule is 'Keeps schedule_count.';
comment on function {schema}.count_new_schedules is 'Keeps schedule_count.';
comment on table {schema}.template is 'Stored task definitions.';
comment on column {schema}.template.alias_key is 'The alias as it is compared: without letter case, - and _.';
comment on table {schema}.tenant is 'Tenants with limits or a status of their own; others have the defaults.';
comment on column {schema}.task.is_workflow is 'Whether a durable workflow is to run.';
comment on column {schema}.task.is_parked is 'Whether it is a workflow that waits for a time, a signal or a child; body -> ''waits_for'' says for which.';
comment on column {schema}.task.returned_at is 'Since when it waits again: after a retry, a reschedule, a lost lease, a replay.';
comment on table {schema}.apikey is 'Who may do what over HTTP. Of the key itself only a digest is kept.';
comment on column {schema}.apikey.tenant is 'Whose records it opens; * is every tenant.';
comment on column {schema}.apikey.role is 'viewer, operator or admin.';
comment on column {schema}.apikey.revoked_at is 'Since when it opens nothing; null: it does.';
comment on table {schema}.receipt is 'What was answered to a request with an Idempotency-Key, so that it is answered the same again.';
comment on column {schema}.receipt.status is 'The HTTP status of the answer.';
comment on table {schema}.gate is 'The state of a limit of tasks, for one key.';
comment on column {schema}.gate.subject is 'What is limited: kind:… or queue:….';
comment on column {schema}.gate.inside is 'How many have passed and not ended.';
comment on column {schema}.gate.has_line is 'Whether someone may wait in its line.';
comment on column {schema}.gate.next_at is 'The next moment that its rate leaves free.';
comment on column {schema}.gate.idle_since is 'Since when nobody needs it; null: someone does.';
comment on table {schema}.nodestate is 'Processes that run roles. One that was not seen for three heartbeats is taken for dead.';
comment on column {schema}.nodestate.tenant is 'Whose tasks it takes; * is every tenant.';
comment on table {schema}.pausedqueue is 'Queues whose tasks no worker takes, while they have a row here.';
comment on table {schema}.calendar is 'Named sets of days and windows, which schedules exclude or require.';
comment on table {schema}.alarm is 'What was wrong, from when it began until it was over.';
comment on column {schema}.alarm.over_at is 'Null: it goes on.';
comment on column {schema}.alarm.tell_at is 'When a notice of it is due.';
comment on column {schema}.schedule.watch_at is 'When its alarms are looked at next.';
comment on table {schema}.artifact is 'What tasks left under a name. The bytes of small ones are in body -> ''inline'', in base64.';
comment on column {schema}.artifact.content is 'The key of its bytes in the table content; null: they are in the body.';
comment on table {schema}.content is 'The bytes of larger artifacts, in pieces. The janitor removes what no artifact names.';
comment on table {schema}.step is 'What a workflow did or waits for. Its code asks for each by its key.';
comment on column {schema}.step.due_at is 'When a wait ends, or when a failed try is repeated.';
comment on table {schema}.signal is 'What was sent to a workflow under a name.';
comment on column {schema}.signal.received_at is 'When the workflow took it; null: it has not.';

-- Raised by a write that met another version than it expected: undoes the whole statement.
create function {schema}.expect(rows bigint, wanted bigint) returns void language plpgsql as $$
begin
  if rows <> wanted then
    raise exception 'rota: % of % rows were as expected', rows, wanted using errcode = 'RT001';
  end if;
end $$;
comment on function {schema}.expect is 'Used by rota: fails unless every row of a write was found in its expected version.';

-- Submitting from any language. `submit` stores the same task as `queue.submit`, or refuses the same values.
-- (`sha1` has no backslash in a text, so that `standard_conforming_strings` does not matter.)

create function {schema}.sha1(message bytea) returns bytea language plpgsql immutable strict as $$
-- Version 5 UUIDs are made with it, and PostgreSQL has none of its own without an extension.
declare
  mask constant bigint := 4294967295;
  h0 bigint := 1732584193; h1 bigint := 4023233417; h2 bigint := 2562383102; h3 bigint := 271733878; h4 bigint := 3285377520;
  a bigint; b bigint; c bigint; d bigint; e bigint; f bigint; k bigint; t bigint;
  w bigint[];
  size constant integer := length(message);
  padded bytea := message || decode('80', 'hex') || decode(repeat('00', (119 - size % 64) % 64), 'hex') || int8send(size::bigint * 8);
begin
  for chunk in 0 .. length(padded) / 64 - 1 loop
    w := array_fill(0::bigint, array[80]);
    for i in 0 .. 15 loop
      w[i + 1] := (get_byte(padded, chunk * 64 + i * 4)::bigint << 24) | (get_byte(padded, chunk * 64 + i * 4 + 1) << 16)
        | (get_byte(padded, chunk * 64 + i * 4 + 2) << 8) | get_byte(padded, chunk * 64 + i * 4 + 3);
    end loop;
    for i in 17 .. 80 loop
      t := w[i - 3] # w[i - 8] # w[i - 14] # w[i - 16];
      w[i] := ((t << 1) | (t >> 31)) & mask;
    end loop;
    a := h0; b := h1; c := h2; d := h3; e := h4;
    for i in 1 .. 80 loop
      if i <= 20 then f := (b & c) | ((~b & mask) & d); k := 1518500249;
      elsif i <= 40 then f := b # c # d; k := 1859775393;
      elsif i <= 60 then f := (b & c) | (b & d) | (c & d); k := 2400959708;
      else f := b # c # d; k := 3395469782;
      end if;
      t := ((((a << 5) | (a >> 27)) & mask) + f + e + k + w[i]) & mask;
      e := d; d := c; c := ((b << 30) | (b >> 2)) & mask; b := a; a := t;
    end loop;
    h0 := (h0 + a) & mask; h1 := (h1 + b) & mask; h2 := (h2 + c) & mask; h3 := (h3 + d) & mask; h4 := (h4 + e) & mask;
  end loop;
  return substring(int8send(h0), 5) || substring(int8send(h1), 5) || substring(int8send(h2), 5)
    || substring(int8send(h3), 5) || substring(int8send(h4), 5);
end $$;
comment on function {schema}.sha1 is 'Used by {schema}.submit.';

create function {schema}.submission_id(tenant text, idempotency_key text) returns uuid language plpgsql volatile as $$
-- With a key: derived from it, as `rota.domain.ids.derived_id` does. Without one: a version 7 UUID.
declare
  bytes bytea;
begin
  if idempotency_key is null then
    bytes := substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint), 3)
      || substring(uuid_send(gen_random_uuid()), 7);
    bytes := set_byte(bytes, 6, (get_byte(bytes, 6) & 15) | 112);
  else
    bytes := substring({schema}.sha1(
      decode('6f9f0a8632a75a0e9d3b6d1a3f0c9e11', 'hex')
      || convert_to('key' || chr(31) || tenant || chr(31) || idempotency_key, 'UTF8')
    ), 1, 16);
    bytes := set_byte(bytes, 6, (get_byte(bytes, 6) & 15) | 80);
  end if;
  bytes := set_byte(bytes, 8, (get_byte(bytes, 8) & 63) | 128);
  return encode(bytes, 'hex')::uuid;
end $$;
comment on function {schema}.submission_id is 'Used by {schema}.submit.';

-- What `rota.domain.checks` says of data. Paths are strict, since lax ones look into arrays by themselves.
create function {schema}.check_data(field text, data jsonb, most bigint) returns void language plpgsql stable as $$
declare
  shown constant text := data::text;
  bare text;
  size bigint := octet_length(shown);
  wide jsonb;
begin
  if jsonb_path_exists(data, 'strict $.**{64} ? (@.type() == "array" || @.type() == "object")') then
    raise exception '%: it is nested too deeply; the most is 64 levels', field using errcode = '22023';
  end if;
  wide := jsonb_path_query_first(
    data, 'strict $.** ? (@.type() == "number" && (@ > 18446744073709551615 || @ < -9223372036854775808))'
  );
  if wide is not null then
    raise exception '%: the number % does not fit 64 bits; give it as a text', field,
      case when length(wide::text) > 60 then left(wide::text, 57) || '…' else wide::text end using errcode = '22023';
  end if;
  if size > most then  -- jsonb is shown with a blank behind each comma and colon: only those in texts count
    bare := regexp_replace(replace(replace(shown, repeat(chr(92), 2), ''), chr(92) || '"', ''), '"[^"]*"', '', 'g');
    size := size - length(bare) + length(replace(bare, ' ', ''));
    if size > most then
      raise exception '%: % bytes are too many; the most is % bytes of JSON', field,
        to_char(size, 'FM999,999,999,999,990'), to_char(most, 'FM999,999,999,999,990') using errcode = '22023';
    end if;
  end if;
exception when statement_too_complex then
  raise exception '%: it is nested too deeply; the most is 64 levels', field using errcode = '22023';
end $$;
comment on function {schema}.check_data is 'Used by {schema}.submit: refuses JSON that rota would not take.';

create function {schema}.check_time(field text, at timestamptz) returns void language plpgsql stable as $$
begin
  if at < timestamptz '0001-01-01 00:00:00+00' or at >= timestamptz '10000-01-01 00:00:00+00' then
    raise exception '%: % is out of range; give a time in the years 1 to 9999', field, at using errcode = '22023';
  end if;
end $$;
comment on function {schema}.check_time is 'Used by {schema}.submit: refuses times that rota cannot read.';

-- The number of seconds, rounded as `timedelta` rounds: half to even, and a large number keeps its fraction.
create function {schema}.check_seconds(field text, given double precision, shortest numeric) returns numeric
language plpgsql immutable strict as $$
declare
  rounded constant numeric := case when abs(given) <= 1e10 then
    trunc(given)::numeric + round((given - trunc(given)) * 1e6)::numeric / 1000000
  end;
begin
  if rounded is null or not rounded between shortest and 3153600000 then
    raise exception '%: % is not accepted; give a number of seconds', field, given using errcode = '22023';
  end if;
  return round(rounded, 6);
end $$;
comment on function {schema}.check_seconds is 'Used by {schema}.submit: refuses durations that rota would not take.';

create function {schema}.read_retry_policy(given jsonb) returns json language plpgsql immutable strict as $$
-- As rota stores it: durations are ISO 8601, and what is not given is not there.
declare
  part text;
  value numeric;
  stored jsonb := '{}';
begin
  if jsonb_typeof(given) <> 'object' then
    raise exception 'retry_policy: give a JSON object' using errcode = '22023';
  end if;
  for part in select jsonb_object_keys(given) loop
    if part not in ('initial_seconds', 'maximum_seconds', 'multiplier', 'jitter') then
      raise exception 'retry_policy: there is no %; accepted are initial_seconds, maximum_seconds, multiplier, jitter',
        quote_literal(left(part, 60)) using errcode = '22023';
    elsif jsonb_typeof(given -> part) <> 'number' then
      raise exception 'retry_policy: % is not a number', part using errcode = '22023';
    end if;
    value := given -> part;
    if part = 'multiplier' and value not between 1 and 1000 or part = 'jitter' and value not between 0 and 1 then
      raise exception 'retry_policy: % is not accepted; give a multiplier from 1 to 1000 and a jitter from 0 to 1', part
        using errcode = '22023';
    elsif part in ('multiplier', 'jitter') then
      stored := stored || jsonb_build_object(part, value);
    else
      value := round(greatest(least(value, 1e11), -1e11), 30);  -- within what a double can be
      value := {schema}.check_seconds('retry_policy.' || part, value::double precision, 0);
      stored := stored || jsonb_build_object(split_part(part, '_', 1), 'PT' || value || 'S');
    end if;
  end loop;
  return stored::json;
end $$;
comment on function {schema}.read_retry_policy is 'Used by {schema}.submit: refuses policies that rota would not take.';

create function {schema}.count_keys(data jsonb) returns bigint language sql stable as $$
  select count(*)
  from jsonb_path_query(data, 'strict $.** ? (@.type() == "object")') as part, jsonb_object_keys(part)
$$;
comment on function {schema}.count_keys is 'Used by {schema}.submit.';

create function {schema}.submit(
  kind text,
  input jsonb default null,
  queue text default 'default',
  priority integer default 128,
  schedule_at timestamptz default null,
  expires_at timestamptz default null,
  ttl_seconds double precision default null,
  max_retries integer default null,
  max_reschedules integer default null,
  retry_policy jsonb default null,
  timeout_seconds double precision default null,
  limit_key text default null,
  idempotency_key text default null,
  metadata jsonb default '{}',
  tags text[] default '{}',
  tenant text default 'default',
  actor text default null
) returns text language plpgsql volatile as $$
#variable_conflict use_variable
declare
  name constant text := '^[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,254}$';
  -- As `str.isprintable` has it, but for characters that a later Unicode may assign.
  unprintable constant text :=
    '[\u0001-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680\u180e'
    || '\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd'
    || '\U00013430-\U00013438\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U00040000-\U000e00ff'
    || '\U000e01f0-\U0010ffff]';
  at constant timestamptz := clock_timestamp();
  who constant text := coalesce(nullif(actor, ''), 'sql:' || session_user);
  owner json := (select t.body from {schema}.tenant t where t.id = tenant);
  most bigint := coalesce((owner -> 'limits' ->> 'input_bytes')::bigint, 1048576);
  most_pending bigint := (owner -> 'limits' ->> 'pending_tasks')::bigint;
  timeout constant numeric := {schema}.check_seconds('timeout_seconds', timeout_seconds, 0.001);
  ttl constant numeric := {schema}.check_seconds('ttl_seconds', ttl_seconds, 0);
  policy constant json := {schema}.read_retry_policy(retry_policy);
  labels text[];
  task_id uuid;
  known record;
begin
  if kind is null or kind !~ name then
    raise exception 'kind: % is not a valid name', coalesce(quote_literal(left(kind, 60)), 'null') using errcode = '22023';
  elsif kind in ('rota.shell', 'rota.http') then
    raise exception 'kind: % runs the commands of templates; execute a template instead', quote_literal(kind)
      using errcode = '22023';
  elsif queue is null or queue !~ name then
    raise exception 'queue: % is not a valid name', coalesce(quote_literal(left(queue, 60)), 'null') using errcode = '22023';
  elsif priority is null or priority not between 0 and 255 then
    raise exception 'priority: % is not accepted; give a whole number from 0 to 255', coalesce(priority::text, 'null')
      using errcode = '22023';
  elsif max_retries not between 0 and 1000000 then
    raise exception 'max_retries: % is not accepted; give a whole number from 0 to 1000000', max_retries using errcode = '22023';
  elsif max_reschedules not between 0 and 1000000 then
    raise exception 'max_reschedules: % is not accepted; give a whole number from 0 to 1000000', max_reschedules
      using errcode = '22023';
  elsif ttl is not null and expires_at is not null then
    raise exception 'ttl_seconds: expires_at is given, too; give one of them' using errcode = '22023';
  elsif length(limit_key) > 255 then
    raise exception 'limit_key: % characters are too many; the most is 255', length(limit_key) using errcode = '22023';
  elsif length(idempotency_key) not between 1 and 255 then
    raise exception 'idempotency_key: give a text of 1 to 255 characters' using errcode = '22023';
  elsif length(actor) > 255 then
    raise exception 'actor: % characters are too many; the most is 255', length(actor) using errcode = '22023';
  elsif tenant = '*' then
    raise exception 'tenant: ''*'' stands for every tenant; give the name of one' using errcode = '22023';
  elsif tenant is null or length(tenant) not between 1 and 255 or tenant <> btrim(tenant) or tenant ~ unprintable then
    raise exception 'tenant: % is not a valid name; accepted are 1 to 255 printable characters without blanks at the ends',
      coalesce(quote_literal(left(tenant, 60)), 'null') using errcode = '22023';
  elsif owner ->> 'status' = 'suspended' then
    raise exception 'tenant % is suspended', tenant using errcode = '22023';
  elsif jsonb_typeof(metadata) <> 'object' then
    raise exception 'metadata: give a JSON object' using errcode = '22023';
  elsif array_ndims(tags) > 1 then
    raise exception 'tags: they are not a list; give an array of one dimension' using errcode = '22023';
  elsif cardinality(tags) > 32 then
    raise exception 'tags: there are too many; the most is 32' using errcode = '22023';
  elsif exists (select 1 from unnest(tags) tag where tag is null or tag !~ name) then
    raise exception 'tags: one of them is not a valid name' using errcode = '22023';
  end if;
  perform {schema}.check_time('schedule_at', schedule_at), {schema}.check_time('expires_at', expires_at);
  perform {schema}.check_data('input', input, most);
  if metadata <> '{}' then
    perform {schema}.check_data('metadata', metadata, 1048576);
    if jsonb_path_exists(metadata, 'strict $.**{3} ? (@.type() == "array" || @.type() == "object")') then
      raise exception 'metadata: it is more than 3 levels deep; the most is 3 levels' using errcode = '22023';
    elsif {schema}.count_keys(metadata) > 100 then
      raise exception 'metadata: it has % keys; the most is 100 keys', {schema}.count_keys(metadata) using errcode = '22023';
    end if;
  end if;
  if tags <> '{}' then
    labels := array(select tag from unnest(tags) with ordinality as given (tag, place) group by tag order by min(place));
  end if;
  task_id := {schema}.submission_id(tenant, idempotency_key);
  if most_pending is not null and not exists (select 1 from {schema}.task t where t.id = task_id::text)
    and most_pending <= (
      select count(*) from (
        select 1 from {schema}.task t
        where t.status = 'pending' and t.tenant = tenant and (t.expires_at is null or t.expires_at > at)
        limit most_pending
      ) as waiting
    )
  then
    raise exception 'tenant % may have % pending tasks and has that many; wait until some have run, or raise the limit',
      tenant, to_char(most_pending, 'FM999,999,999,999,999,990') using errcode = '54000', detail = 'limit_reached';
  end if;
  -- Its gates are for the worker that would start it to find. Whether it has any is asked by this statement itself, which has
  -- the lock of a writer: who sets a limit waits for those that do not see it.
  insert into {schema}.task (
    id, tenant, status, kind, queue, priority, attempt, max_retries, retry_policy, timeout, tags, created_at, available_at,
    updated_at, asks_at, expires_at, cancel_requested, changes, created_by, version, body
  ) select
    task_id::text, tenant, 'pending', kind, queue, priority, 0, max_retries, policy, make_interval(secs => timeout::double precision),
    labels, at, greatest(schedule_at, at), at, case when gates.are_there then greatest(schedule_at, at) end,
    coalesce(expires_at, at + make_interval(secs => ttl::double precision)), false, 1, who, 1,
    json_build_object(
      'asks_late', gates.are_there, 'input', input, 'metadata', coalesce(metadata, '{}'), 'idempotency_key', idempotency_key,
      'max_reschedules', max_reschedules, 'limit_key', limit_key
    )
  from (
    select coalesce(limits.of_tasks -> ('kind:' || kind), limits.of_tasks -> ('queue:' || queue)) is not null as are_there
    from (
      select (select t.body -> 'limits' -> 'tasks' from {schema}.tenant t where t.id = tenant) as of_tasks
    ) as limits
  ) as gates
  on conflict (id) do nothing;
  if not found then
    select t.kind, t.body -> 'input' as input into known from {schema}.task t where t.id = task_id::text;
    if known.kind <> kind or coalesce(known.input::jsonb, 'null') <> coalesce(input, 'null') then
      raise exception 'idempotency_key % was already used for a task with another kind or input', quote_literal(idempotency_key)
        using errcode = '23505';
    end if;
  else
    perform pg_notify('rota:{schema}', '');
  end if;
  return task_id::text;
end $$;
comment on function {schema}.submit(
  text, jsonb, text, integer, timestamptz, timestamptz, double precision, integer, integer, jsonb, double precision, text,
  text, jsonb, text[], text, text
) is 'Submit a task inside the caller''s transaction: it exists if and only if that commits. Returns its id.';

create function {schema}.read_json(field text, given text) returns jsonb language plpgsql immutable as $$
begin
  return given::jsonb;
exception
  when statement_too_complex then
    raise exception '%: it is nested too deeply; the most is 64 levels', field using errcode = '22023';
  when data_exception then
    raise exception '%: it cannot be read as JSON (%); give JSON without the character 0', field, sqlerrm using errcode = '22023';
end $$;
comment on function {schema}.read_json is 'Used by {schema}.submit: refuses texts that are not JSON.';

-- With JSON as a text: a literal, a parameter. So what is not JSON is refused here and not by a cast before the call.
create function {schema}.submit(
  kind text,
  input text,
  queue text default 'default',
  priority integer default 128,
  schedule_at timestamptz default null,
  expires_at timestamptz default null,
  ttl_seconds double precision default null,
  max_retries integer default null,
  max_reschedules integer default null,
  retry_policy text default null,
  timeout_seconds double precision default null,
  limit_key text default null,
  idempotency_key text default null,
  metadata text default '{}',
  tags text[] default '{}',
  tenant text default 'default',
  actor text default null
) returns text language sql volatile as $$
  select {schema}.submit(
    kind, {schema}.read_json('input', input), queue, priority, schedule_at, expires_at, ttl_seconds, max_retries,
    max_reschedules, {schema}.read_json('retry_policy', retry_policy), timeout_seconds, limit_key, idempotency_key,
    {schema}.read_json('metadata', metadata), tags, tenant, actor
  )
$$;
comment on function {schema}.submit(
  text, text, text, integer, timestamptz, timestamptz, double precision, integer, integer, text, double precision, text,
  text, text, text[], text, text
) is 'Submit a task inside the caller''s transaction: it exists if and only if that commits. Returns its id.';
