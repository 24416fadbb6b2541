"""RFC 5545 rules: from text, DTSTART and zone to the instants that they name.

Begin with `parse`, which chooses among the ways to walk a rule: `days` (whole days, BYSETPOS) and `steps` (repeats
within the day). `text` is the grammar. Outside of `recurrence` nobody imports these.
"""
