"""What is right: every rule of the product, as pure functions of a record, an input and a time.

Nothing here reads a clock, waits, logs or knows a store. Begin with `model` (the records and their words), then
`schedule` (what a tick decides) and `task` (the life of a task); `recurrence` says when a timing fires, `plan` what a
declaration would change, `runtimes` what a command may be.

Beside these packages: `workflow` (its steps, and when it wakes up), `gate` (limits of tasks), `unique` (submissions
that are the same task), `template`, `artifact`, `alarm`, `serving` (nodes, and what a task waits for), `tenants` and
`keys`. All of them use `errors` (the tree of everything that is raised), `options` (what can be given, declared once),
`checks` (what is accepted) and `ids` (derived ones).

Every other layer may import from here; from here only the standard library and msgspec are imported.
"""
