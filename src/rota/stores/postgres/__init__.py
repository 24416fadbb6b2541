"""The store in a PostgreSQL database.

Begin with `store`: its `transact` gives each work to `group_commit`, which runs several works in one database
transaction. The commit itself is in `transaction`: `DatabaseTransaction.write(…, commit=True)`, or `update` for a claim
that is alone in its group. `tx` is a work's view and keeps its writes until they are flushed, `rows` turns many records
into one statement (`task_row`: tasks), `queries` chooses among the statements of `statements.sql`, `listen` hears of
others' commits, `foreign_transaction` runs a work in a transaction that the caller has open. `address`, `schema` and
`clock` are the way to the database, its tables and its time; `errors` has the driver's errors as those of the contract,
`contents` the bytes of large artifacts. From outside only `PostgresStore` is imported.
"""
