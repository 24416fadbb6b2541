"""What people and programs call: words in, records out, no rule inside.

Begin with `python`, the API: the others call it. `remote` is the same behind a server, `cli` the command line, `http`
the server, `dashboard` its pages. What they share is here: `settings`, `stores` (an address becomes a store),
`listening` (the address of the server), `shapes` (records as JSON), `redaction` (what is shown to nobody), `words` (a
schedule in sentences), `durations`, `attempts` (of a task) and `versions` (of a schedule); `plans` and `forecasts` in
lines and as answers; `files`, `crontab` and `calendar_sources`, from which schedules and days are read. Everything
below may be imported; of the layers only `contrib` imports from here.
"""
