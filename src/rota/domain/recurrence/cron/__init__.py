"""Cron lines: from five or six fields to the days and times of day that they name.

Begin with `parse`; `fields` reads one field, `days` joins the two day fields. Outside of `recurrence` nobody
imports these.
"""
