"""Commands that keep running (`rota up`, `worker`, `serve`, `tick`), and the parts of such a process.

Begin with `roles`, the commands, and `running`, which runs a node until it is stopped. `event_printer` prints what
happens, `schedule_summary` what will happen, `metrics` serves metrics, `http` serves the API beside the roles, `logs`
sets up logging.
"""
