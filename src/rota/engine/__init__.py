"""When things happen: the commands that write, the roles that run, the handlers that are called.

Begin with `node`, what runs in one process until one of its `signals`, and `roles`, which `loops` calls again and
again. Every write of the product is in `commands`, every question in `queries` (`work` is how both are written), every
reading of the time in `clock`. `app` knows which handler runs a kind, `executor` runs it, `guard` keeps what it raises
from ending the worker; `handing_back` is its end. `handlers` fit functions to their arguments; `runtimes` and
`workflows` are the other ways to run a task. `artifacts` keeps files that tasks leave, `limits` plans tasks under
limits that were changed, `changes` tells a tenant's followers what happens, `observe` reports to log and metrics,
`outward` tells those outside.

Surfaces import from here; from here `stores.base`, `stores.queries`, `stores.threads` and `domain` are imported.
"""
