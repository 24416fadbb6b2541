"""The store in a SQLite file.

Begin with `store`: a writer thread with group commit, a reader beside it. `file` opens the file and sees what other
processes did, `tx` reads and flushes, `queries` chooses among the statements of `statements.sql`, `schema` applies
`migrations/`. From outside only `SqliteStore` is imported.
"""
