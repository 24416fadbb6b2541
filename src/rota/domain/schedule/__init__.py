"""Schedules: what a due time becomes. Begin with `decision`: what a tick decides, and which times count as missed;
`alike` decides once for many. `definition` has what people do to a schedule. `backfill` runs times of the past. `after`
is for schedules that follow the runs of others. `run` makes the rows of the ledger. `calendars` leave days out
(`calendar_options`: the fields of one). `expected` has the times to come, and which of them vanish when a schedule
changes. `why` explains one time, `forecast` counts the coming ones, `spread` takes the peaks out. `watching` says when
the alarms of a schedule are looked at."""

from .decision import (
    MOST_BUFFERED,
    Decision,
    Fire,
    Skip,
    brought_back,
    decide,
    due_time,
    given_up,
    grace_at,
    minds_overlap,
    planned,
    put_off_anew,
    released,
    replanned,
    turned_away,
    with_fewer_runs,
    without,
)

__all__ = [
    "MOST_BUFFERED",
    "Decision",
    "Fire",
    "Skip",
    "brought_back",
    "decide",
    "due_time",
    "given_up",
    "grace_at",
    "minds_overlap",
    "planned",
    "put_off_anew",
    "released",
    "replanned",
    "turned_away",
    "with_fewer_runs",
    "without",
]
