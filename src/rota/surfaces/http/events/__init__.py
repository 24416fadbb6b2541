"""`/api/tenants/{tenant}/events`: changes as they happen, as server-sent events.

Begin with `live`, the route; `broadcast` looks for changes once for all listeners of a tenant, and writes them. From
outside, only `http/api.py` imports `live`.
"""
