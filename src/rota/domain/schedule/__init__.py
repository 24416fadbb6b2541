"""Schedules: what a due time becomes. Begin with `decision`: what a tick decides, and which times count as missed;
`alike` decides once for many. `definition` is what people do to a schedule, `backfill` what it runs of the past,
`after` what the end of a run is to the schedules that come after it, `run` the rows of its ledger. `calendars` are
what it leaves out (`calendar_options`: what can be said of one). `expected` has the times to come, and which of them
vanish when it changes; `why` explains one time, `forecast` counts them all, `spread` takes the peaks out. `watching`
says when its alarms are looked at."""

from .decision import (
    MOST_BUFFERED,
    Decision,
    Fire,
    Skip,
    decide,
    due_time,
    given_up,
    grace_at,
    minds_overlap,
    planned,
    put_off_anew,
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
    "decide",
    "due_time",
    "given_up",
    "grace_at",
    "minds_overlap",
    "planned",
    "put_off_anew",
    "replanned",
    "turned_away",
    "with_fewer_runs",
    "without",
]
