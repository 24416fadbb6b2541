"""Where records are kept: one contract, four stores.

Begin with `base`, the contract in prose, and `queries`, the questions a store must answer. `codec` turns records
into text and columns; `sql_files` and `sql_parameters` are for the stores that speak SQL. Each store is a room of its
own: `memory` (the reference), `sqlite`, `postgres`, `bucket`.
The engine imports `base`, `queries` and `threads`; a store's own modules are imported by nobody but
`surfaces/stores.py`, which opens them.
"""
