"""What is right: every rule of the product, as pure functions of a record, an input and a time.

Nothing here reads a clock, waits, logs or knows a store. Begin with `model` (the records and their words), then
`schedule` (what a tick decides) and `task` (the life of a task); `errors` has the tree of everything that is
raised. Every other layer may import from here; from here only the standard library and msgspec are imported.
"""
