"""The pages about schedules: the list, one schedule, and what changes or foresees them.

Begin with `schedule`, the page of one; `listing` is the page of many, and has what can be done to each. Both read the
last runs, and `strip` draws them. `editor` makes and changes one (`builder` makes its cron line), `backfill` runs its
past, `calendars` are the days that it leaves out, `forecast` is the work to come. `dashboard/site.py`
has their addresses, and alone imports them.
"""
