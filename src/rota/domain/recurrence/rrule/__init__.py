"""RFC 5545 rules: from text, DTSTART and zone to the instants that they name.

Begin with `parse`, which chooses among the ways to walk a rule: whole days (`days`), BYSETPOS (`periods`), repeats
within the day (`steps`), and what COUNT, UNTIL and EXDATE leave of them (`bounds`). `text` is the grammar. Outside
of `recurrence` nobody imports these.
"""
