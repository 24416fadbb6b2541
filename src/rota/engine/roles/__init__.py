"""The roles of a node: each is `run_once() -> delay`, and `engine/loops.py` owns the loop that calls it.

Begin with `scheduler` (fires what is due) and `worker` (claims, runs, settles). `leases` keeps what a worker holds,
`janitor` takes back what dead workers held, and its `Forgetter` applies retention. `heartbeat` says that the node is
alive, `jumps_and_blocks` notices clocks that jump and loops that are blocked, `set_back` brings back what a
clock wrote that was ahead. `alarms` looks for what has silently stopped, `notices` tells people of it, `pings` tell a
monitor outside of runs and of the fleet. `engine/node.py` puts them together.
"""
