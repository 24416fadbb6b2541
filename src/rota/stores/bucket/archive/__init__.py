"""The archive of a bucket: records that have ended and left memory, in segments that never change.

Begin with `archive`, which answers queries. `segments` has the summary of a segment, and the index that finds the
segments that may have an id. `lookups` are what a work asks of segments, and how they are fetched and kept. Only
`stores/bucket` imports from here, any of the three.
"""
