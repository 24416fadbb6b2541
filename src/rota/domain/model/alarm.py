"""Alarms: which rules hold for a schedule, when it is looked at, and what was found."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from .shared import Record, Value


class AlarmRule(StrEnum):
    """The rules that can be broken. The first five are asked for, of one schedule or of all with a tag; then there are
    those about the ledger, which hold for every schedule; the last are about the whole fleet."""

    LATE = "late"
    NO_SUCCESS = "no_success"
    FAILURES = "failures"
    DURATION = "duration"
    ENDING = "ending"
    OVERDUE = "overdue"
    MISSING_ROW = "missing_row"
    STUCK_RUN = "stuck_run"
    SCHEDULER_SILENT = "scheduler_silent"
    LOST_LEASES = "lost_leases"
    NOT_EXPIRED = "not_expired"
    WAITING_TASKS = "waiting_tasks"


class AlarmRules(Value, frozen=True, kw_only=True):
    """The alarms that are asked for. None: this one is not, except for `alarm_no_success`: None is three times in a row
    and ten minutes, zero is off."""

    alarm_late: timedelta | None = None
    alarm_no_success: timedelta | None = None
    alarm_failures: int | None = None
    alarm_duration: timedelta | None = None
    alarm_ending: timedelta | None = None


class Watch(Value, frozen=True, kw_only=True):
    """When a schedule is looked at next (None: it need not be), since when its times count, and the rules that held
    when it was looked at last: its own and those of its tags."""

    at: datetime | None
    since: datetime
    rules: AlarmRules = AlarmRules()


class Alarm(Record, frozen=True, kw_only=True, tag_field="record", tag="alarm.1"):
    """One thing that was wrong, from when it began until it was over. `subject` is its name for people. `tell_at` is
    when a notice of it is due; `told` says who was told."""

    rule: AlarmRule
    subject_type: str
    subject_id: str
    subject: str
    detail: str
    began_at: datetime
    over_at: datetime | None = None
    tell_at: datetime | None = None
    told: tuple[str, ...] = ()
    told_at: datetime | None = None
    tries: int = 0

    @property
    def is_open(self) -> bool:
        return self.over_at is None
