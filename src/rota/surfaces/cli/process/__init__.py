"""Commands that keep running (`rota up`, `worker`, `serve`, `tick`), and the parts of such a process.

Begin with `commands`, and `running`, which runs a node until it is stopped. `greeting` prints the first lines (what
runs, what fires next), `event_printer` a line for each thing that happens. `http` serves the API beside the roles,
`monitoring` writes the log and serves metrics, `demo` is the example of `rota up --demo`. `reload` starts the process
again after an edit, `supervision` runs several. From outside, only the tree of `cli/root.py` names `commands`.
"""
