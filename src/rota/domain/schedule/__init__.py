"""Schedules: what a due time becomes. Begin with `decision`: what a tick decides, the heart of the product. What
people do to a schedule is in `definition`, what it runs of the past in `backfill`, the rows of its ledger are in `run`,
the times to come, and which of them vanish when it changes, in `expected`, and `why` explains one time. `alike` decides
once for many."""

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
