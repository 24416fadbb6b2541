"""Plans: what a declaration of schedules, templates and calendars would change, and which times, before it is done.
Pure. Begin with `making`; `declaration` writes records as a file has them, and reads that back. Which times appear,
vanish or move is `compared` of `domain/schedule/expected.py`."""

from .declaration import (
    BEGINS,
    of_calendar,
    of_command,
    of_schedule,
    of_template,
    says_begin,
    schedule_options,
    written_time,
)
from .making import (
    Action,
    Declaration,
    Difference,
    Item,
    Plan,
    Stored,
    as_applied,
    basis_of,
    make,
    make_edits,
    naming,
)

__all__ = [
    "BEGINS",
    "Action",
    "Declaration",
    "Difference",
    "Item",
    "Plan",
    "Stored",
    "as_applied",
    "basis_of",
    "make",
    "make_edits",
    "naming",
    "of_calendar",
    "of_command",
    "of_schedule",
    "of_template",
    "says_begin",
    "schedule_options",
    "written_time",
]
