"""What people and programs call: words in, records out, no rule inside.

`python` is the API, `cli` the command line, `http` the server. What they share is here: `settings`, `stores` (an
address becomes a store), `shapes` (records as JSON), `words`, `durations`, `attempts` (of a task). Everything below may
be imported; nobody imports from here.
"""
