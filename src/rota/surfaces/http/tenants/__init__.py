"""`/api/tenants/{tenant}/…`, in camelCase: a module for each kind of thing.

Begin with `schedules`. `schemas` are the bodies that are accepted. `answers` are schedules, runs and executions as they
are sent (`timing_answers`: when they run); other answers stand beside their routes: `executions` (of tasks and
workflows, with their artifacts), `templates`, `calendars`, `plans`, `forecasts`, `alarms`, `serving` (nodes and
queues), `keys`. `fast_routes` are the two busiest ones once more, and `calls` is what `rota --server` asks. From
outside, `http/api.py` imports the routes; `http/v1` and `http/events` import the shapes and checks that they share.
"""
