"""`/api/v1/…`: stored tasks, scheduling as an operation on them, and jobs, in snake_case.

Begin with `tasks`; `jobs` are their executions, and what came of those. `schemas` are the bodies that are accepted,
`answers` the records as they are sent. From outside, only `http/api.py` imports the routes, `tasks` and `jobs`.
"""
