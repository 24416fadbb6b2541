"""`/api/tenants/{tenant}/events`: what changes, while it changes, as server-sent events.

Begin with `live`, the route; `hub` looks once for all who listen to a tenant.
"""
