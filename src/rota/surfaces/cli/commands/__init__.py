"""Commands that answer and end, by what they are about. `cli/root.py` names them all and imports them lazily.

Begin with `tasks` or `schedules`: parse, call the Python API, render."""
