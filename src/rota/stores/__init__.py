"""Where records are kept: one contract, four stores.

Begin with `base`, the contract in prose, and `queries`, the questions a store must answer. `codec` turns records into
text and columns. Stores share `works`, which runs works and gathers them into one commit, `waiting`, which is
`store.wait`, `threads` and `secrets`; those that speak SQL share `sql_files`, `sql_parameters` and most statements
(`statements.sql`). Each store is a package of its own: `memory` (the reference), `sqlite`, `postgres`, `bucket`.

The engine imports `base`, `queries` and `threads`; a store's own modules are imported by nobody but
`surfaces/stores.py`, which opens them.
"""
