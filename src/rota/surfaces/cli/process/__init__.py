"""Commands that keep running (`rota up`, `worker`, `serve`, `tick`), and what such a process needs.

Begin with `roles`, the commands, and `running`, which runs a node until it is stopped. `feed` prints what happens,
`measuring` serves metrics, `http` serves the API beside the roles, `logs` sets up logging.
"""
