"""`/api/tenants/{tenant}/…`: schedules, executions and keys, in camelCase.

Begin with `schedules`. `schemas` are the bodies that are accepted, `answers` the records as they are sent.
"""
