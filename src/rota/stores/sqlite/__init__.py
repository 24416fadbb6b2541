"""The store in a SQLite file.

Begin with `store`: a writer thread with group commit, a reader beside it. `file` opens the file and sees what other
processes did. `tx` reads, gathers and flushes: a claim is found by `queries`, which chooses among the statements of
`statements.sql`, and written by `tx`, which composes the statement from the columns that differ. `schema` applies
`migrations/`, `contents` keeps large artifacts. From outside only `SqliteStore` is imported.
"""
