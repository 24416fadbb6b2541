"""The store in a PostgreSQL database.

Begin with `store`, then `group_commit`, where a commit happens, and `connection`, where its statements are sent.
`tx` is a work's view, `rows` writes many records in one statement, `queries` chooses among the statements of
`statements.sql`, `listen` hears of others' commits, `foreign` joins a transaction of the caller's. From outside
only `PostgresStore` is imported.
"""
