"""The Python API: `connect()` and `Queue`.

Begin with `client`. The calls of a queue are grouped by what they are about: tasks, schedules, templates, tenants;
`arguments` turns what callers write into what the domain takes. Programs import these names from `rota`.
"""
