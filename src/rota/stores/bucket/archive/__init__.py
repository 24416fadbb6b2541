"""The archive of a bucket: records that have ended and left memory, in segments that never change.

Begin with `archive`, which answers queries. `segment` is the summary of one segment, `segment_index` finds the segments
that may have an id. `lookups` are what a work asks of segments, `reads` makes them outside of the replica's lock, and
`segment_cache` loads the segments.
"""
