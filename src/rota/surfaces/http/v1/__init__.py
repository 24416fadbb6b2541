"""`/api/v1/…`: stored tasks, scheduling as an operation on them, and jobs, in snake_case.

Begin with `tasks`. `schemas` are the bodies that are accepted, `answers` the records as they are sent.
"""
