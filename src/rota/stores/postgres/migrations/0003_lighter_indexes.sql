-- Fewer index entries for each task that runs. A running task is in no listing of its own: those few are added from
-- `task_lease`. And whoever works for one tenant passes over the tasks of others within the index of pending ones, without
-- a look at each.

drop index {schema}.task_created;
create index task_created on {schema}.task (tenant, created_at, id) where status <> 'running';

drop index {schema}.task_pending;
create index task_pending on {schema}.task (queue, kind, priority desc, available_at, id, tenant) where status = 'pending';

-- Of two indexes that cost the same, as all do while a table is empty, the planner takes the newer one.
drop index {schema}.task_expiry;
create index task_expiry on {schema}.task (expires_at, id) where status = 'pending' and expires_at is not null;
