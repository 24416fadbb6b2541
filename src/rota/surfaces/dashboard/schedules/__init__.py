"""The pages about schedules: the list, one schedule, and what changes or foresees them.

Begin with `schedule`, the page of one; `listing` is the page of many, and has what can be done to each. `editor` makes
and changes one, `backfill` runs its past, `calendars` are the days that it leaves out, `forecast` is the work to come.
`strip` draws expected times and what became of them. `site` has their addresses.
"""
