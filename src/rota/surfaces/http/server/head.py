"""HEAD, wherever GET is: the same answer without its body. Plain ASGI, so that it holds for every route."""

from __future__ import annotations

from .middleware import Asgi, Message, Receive, Scope, Send

__all__ = ["Head"]


class Head:
    """Wraps an ASGI application, which is asked to GET. It is told that the client has gone as soon as the headers are
    there: a stream of events would never end."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self._app(scope, receive, send)
        asgi = {**scope.get("asgi", {}), "spec_version": "2.3"}  # which says that `receive` tells of it
        asked = {**scope, "method": "GET", "asgi": asgi}

        async def gone() -> Message:
            return {"type": "http.disconnect"}

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["route"] = asked.get("route")  # for the metrics
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        return await self._app(asked, gone, without_body)
