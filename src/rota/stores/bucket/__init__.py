"""The store in a bucket: a log of conditional writes, and a replica of the state on every node.

Begin with `store`, then `commit` (a group of works becomes one entry of the log) and `log` (entries are appended
and followed). `upkeep` runs what happens beside commits: `snapshot`, `removal` of the old log, the `archive`, the
views that people read. `service` is the way to the bucket itself. From outside only the store is imported.
"""
