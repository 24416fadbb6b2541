-- What the HTTP API asks for: keys and receipts; workflows by themselves; what waits again; schedules of all tenants.
-- A task that is inserted, claimed and completed touches neither of the two new indexes on tasks.

alter table {schema}.task add column is_workflow boolean not null default false;
alter table {schema}.task add column returned_at timestamptz;

create index task_workflow on {schema}.task (tenant, created_at, id) where is_workflow;
create index task_returned on {schema}.task (tenant, returned_at, id) where returned_at is not null;

-- Nothing can be read from a body that has the character U+0000 in any of its texts, so that is replaced first.
update {schema}.task
set returned_at = (replace(body::text, chr(92) || 'u0000', chr(92) || 'ufffd')::json ->> 'updated_at')::timestamptz
where status = 'pending' and (replace(body::text, chr(92) || 'u0000', chr(92) || 'ufffd')::json ->> 'updated_at')::timestamptz <> created_at;

create index schedule_of_all on {schema}.schedule (created_at, id);

create index template_of_tenant on {schema}.template (tenant, id);

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

comment on column {schema}.task.is_workflow is 'Whether a durable workflow is to run.';
comment on column {schema}.task.returned_at is 'Since when it waits again: after a retry, a reschedule, a lost lease, a replay.';
comment on table {schema}.apikey is 'Who may do what over HTTP. Of the key itself only a digest is kept.';
comment on column {schema}.apikey.tenant is 'Whose records it opens; * is every tenant.';
comment on column {schema}.apikey.role is 'viewer, operator or admin.';
comment on column {schema}.apikey.revoked_at is 'Since when it opens nothing; null: it does.';
comment on table {schema}.receipt is 'What was answered to a request with an Idempotency-Key, so that it is answered the same again.';
comment on column {schema}.receipt.status is 'The HTTP status of the answer.';

-- As before, but without a backslash in a text, so that `standard_conforming_strings` does not matter.
create or replace function {schema}.sha1(message bytea) returns bytea language plpgsql immutable strict as $$
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

-- What `rota.domain.limits` says of data. Paths are strict, since lax ones look into arrays by themselves.
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

create function {schema}.count_keys(data jsonb) returns bigint language sql stable as $$
  select count(*)
  from jsonb_path_query(data, 'strict $.** ? (@.type() == "object")') as part, jsonb_object_keys(part)
$$;
comment on function {schema}.count_keys is 'Used by {schema}.submit.';

-- As before, and within `pending_tasks` of the tenant's limits, and strict: what it stores can be read. A key that was used already is answered as it was.
create or replace function {schema}.submit(
  kind text,
  input jsonb default null,
  queue text default 'default',
  priority integer default 128,
  schedule_at timestamptz default null,
  expires_at timestamptz default null,
  max_retries integer default null,
  timeout_seconds double precision default null,
  idempotency_key text default null,
  metadata jsonb default '{}',
  tags text[] default '{}',
  tenant text default 'default',
  actor text default null
) returns text language plpgsql volatile as $$
#variable_conflict use_variable
declare
  name constant text := '^[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,254}$';
  unprintable constant text :=
    '[\u0001-\u001f\u007f-\u00a0\u00ad\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff0-\ufffb]';
  at constant timestamptz := clock_timestamp();
  who constant text := coalesce(nullif(actor, ''), 'sql:' || session_user);
  owner json := (select t.body from {schema}.tenant t where t.id = tenant);
  most bigint := coalesce((owner -> 'limits' ->> 'input_bytes')::bigint, 1048576);
  most_pending bigint := (owner -> 'limits' ->> 'pending_tasks')::bigint;
  labels text[];
  task_id uuid;
  known record;
begin
  if kind is null or kind !~ name then
    raise exception 'kind: % is not a valid name', coalesce(quote_literal(left(kind, 60)), 'null') using errcode = '22023';
  elsif queue is null or queue !~ name then
    raise exception 'queue: % is not a valid name', coalesce(quote_literal(left(queue, 60)), 'null') using errcode = '22023';
  elsif priority is null or priority not between 0 and 255 then
    raise exception 'priority: % is not accepted; give a whole number from 0 to 255', coalesce(priority::text, 'null')
      using errcode = '22023';
  elsif max_retries not between 0 and 1000000 then
    raise exception 'max_retries: % is not accepted; give a whole number from 0 to 1000000', max_retries using errcode = '22023';
  elsif not timeout_seconds between 0.001 and 3153600000 then
    raise exception 'timeout_seconds: % is not accepted; give a number of seconds', timeout_seconds using errcode = '22023';
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
  insert into {schema}.task (
    id, tenant, status, kind, queue, priority, attempt, tags, created_at, available_at, expires_at, cancel_requested, version, body
  ) values (
    task_id::text, tenant, 'pending', kind, queue, priority, 0, labels, at, greatest(schedule_at, at), expires_at,
    false, 1,
    json_build_object(
      'record', 'task.1', 'id', task_id, 'tenant', tenant, 'version', 1, 'kind', kind, 'queue', queue, 'priority', priority,
      'input', input, 'metadata', coalesce(metadata, '{}'), 'tags', coalesce(to_json(labels), '[]'::json),
      'created_at', {schema}.iso(at), 'updated_at', {schema}.iso(at), 'available_at', {schema}.iso(greatest(schedule_at, at)),
      'expires_at', {schema}.iso(expires_at), 'max_retries', max_retries, 'idempotency_key', idempotency_key,
      'timeout', 'PT' || round(timeout_seconds::numeric, 6) || 'S',
      'history', json_build_array(json_build_object(
        'number', 1, 'at', {schema}.iso(at), 'status', 'pending', 'actor', who,
        'type', 'created', 'expires_at', {schema}.iso(expires_at)
      ))
    )
  ) on conflict (id) do nothing;
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
  max_retries integer default null,
  timeout_seconds double precision default null,
  idempotency_key text default null,
  metadata text default '{}',
  tags text[] default '{}',
  tenant text default 'default',
  actor text default null
) returns text language sql volatile as $$
  select {schema}.submit(
    kind, {schema}.read_json('input', input), queue, priority, schedule_at, expires_at, max_retries, timeout_seconds,
    idempotency_key, {schema}.read_json('metadata', metadata), tags, tenant, actor
  )
$$;
comment on function {schema}.submit(
  text, text, text, integer, timestamptz, timestamptz, integer, double precision, text, text, text[], text, text
) is 'Submit a task inside the caller''s transaction: it exists if and only if that commits. Returns its id.';
