"""Time zones: which offset holds when.

Begin with `zone`, a zone as stretches of constant offset. `data` finds the zone files, `tzif` reads them. Outside
of `recurrence` nobody imports these.
"""
