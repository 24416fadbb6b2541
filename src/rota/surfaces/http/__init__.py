"""The HTTP API. `create_app` makes an ASGI application that can be served, or mounted in another one."""

from .api import create_app

__all__ = ["create_app"]
