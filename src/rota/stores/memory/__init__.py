"""The reference store: everything in memory, and the state that a bucket's nodes replicate.

Begin with `store`. `state` holds records and versions, `indexes` keeps them sorted, `finders` answers the queries.
The bucket store imports `state`, `finders` and the transaction of `store`.
"""
