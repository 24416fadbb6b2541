"""Commands that answer and end, by what they are about. `cli/root.py` names them all and imports them lazily.

Begin with `tasks` or `schedules`: parse, call the Python API, render. `schedule_views` looks at schedules and changes
none. `templates`, `calendars`, `workflows`, `artifacts`, `alarms`, `forecasts` and `plans` are what their names say;
`serving` is about workers and queues, `access` about keys and tenants, `store` about migrations, settings and the
doctor. `tail` follows what happens."""
