"""The pages about tasks and workflows: the lists, and one task.

Begin with `task`, the page of one, and what can be done to it; `listing` is the page of many. `steps` draws those of a
workflow on a time axis. `dashboard/site.py` has their addresses, and alone imports them.
"""
