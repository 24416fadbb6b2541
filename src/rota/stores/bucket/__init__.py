"""The store in a bucket: a log of conditional writes, and a replica of the state on every node.

Begin with `store`, then `commit` (a group of works becomes one entry of the log) and `log` (entries are appended and
read). `formats` is how entries and snapshots are written, `replica` the state in memory, `tuning` how often the service
is asked. `upkeep` runs after commits: it writes the `views` and the snapshots, fills the `archive`, and removes the old
log (`log_removal`). `contents` keeps large artifacts. `service` is the way to the bucket itself. From outside only the
store is imported.
"""
