"""The archive of a bucket: records that have ended and left memory, in segments that never change.

Begin with `archive`, which answers queries from summaries of segments; `segment` is one of those summaries,
`id_index` finds the segments that may have an id, `lookups` and `fetching` read segments outside of the replica's
lock.
"""
