"""The pages about tasks and workflows: the lists, and one task.

Begin with `task`, the page of one, what can be done to it, and the steps of a workflow; `listing` is the page of many.
`dashboard/site.py` has their addresses, and alone imports them.
"""
