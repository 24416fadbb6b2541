"""When things happen: the commands that write, the roles that run, the handlers that are called.

Begin with `node`, what runs in one process, and `roles`; every write of the product is in `commands`, every
question in `queries`, every reading of the time in `clock`. Surfaces import from here; from here `stores.base`,
`stores.queries`, `stores.threads` and `domain` are imported.
"""
