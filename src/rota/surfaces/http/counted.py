"""Every answer, once it begins: counted for the metrics, and a line in the log for those who ask for it (`info`)."""

from __future__ import annotations

import logging
from typing import Any

from .guard import Asgi, Message, Receive, Scope, Send
from .service import Service

__all__ = ["Counted"]

log = logging.getLogger("rota.http")


class Counted:
    """Wraps an ASGI application."""

    def __init__(self, app: Asgi, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        monotonic = self._service.clock.monotonic
        began = monotonic()

        async def noticed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._notice(scope, message["status"], monotonic() - began)
            await send(message)

        return await self._app(scope, receive, noticed)

    def _notice(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"]
        if self._service.metrics is not None:
            route = getattr(scope.get("route"), "path", None)
            self._service.metrics.http_request(route, method, status, seconds)
        if log.isEnabledFor(logging.INFO):
            about: dict[str, Any] = {
                "method": method,
                "path": scope["path"],
                "status": status,
                "milliseconds": round(seconds * 1000, 1),
                "client": scope["client"][0] if scope.get("client") else None,
            }
            log.info("%s %s %d", method, scope["path"], status, extra=about)
