"""The HTTP API. `create_app` makes an ASGI application that can be served, or mounted in another one.

Begin with `api`, where the routes are put together, and `service`, which every route needs. `access` checks who may
call, `problems` answers errors, `fields` has names and types, `reading` refuses requests that have two meanings,
`download` streams artifacts, `openapi` describes it all. The routes are in `tenants`, `v1` and `events`, those for
health and metrics in `operations`; `server` serves them."""

from .api import create_app

__all__ = ["create_app"]
