"""What the API says of itself: the OpenAPI document. It is large, so it is made once, and sent as the bytes it is."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from . import documents

__all__ = ["install"]


def install(api: FastAPI) -> None:
    """Instead of FastAPI's own, which is written anew for everyone who asks, with or without a key."""
    api.openapi = lambda: _described(api)  # type: ignore[method-assign]  # FastAPI's own way to extend it
    routes = api.router.routes
    routes[:] = [route for route in routes if getattr(route, "path", None) != api.openapi_url]
    written: dict[str, bytes] = {}

    async def described(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        if root not in written:
            servers = {"servers": [{"url": root}]} if root else {}
            written.clear()
            written[root] = msgspec.json.encode({**api.openapi(), **servers})
        return Response(written[root], media_type="application/json")

    assert api.openapi_url is not None
    api.add_route(api.openapi_url, described, include_in_schema=False)


def _described(api: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: FastAPI's, with the shape of problems and the two ways to send a key."""
    if api.openapi_schema is None:
        from fastapi.openapi.utils import get_openapi

        described = get_openapi(
            title=api.title, version=api.version, description=api.description, routes=api.routes
        )
        parts = described.setdefault("components", {})
        shapes = parts.setdefault("schemas", {})
        shapes["ProblemDocument"] = documents.ProblemDocument.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            shapes.pop(unused, None)
        parts["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        for path, methods in described["paths"].items():
            for operation in methods.values():
                if not path.startswith("/health"):
                    operation["security"] = [{"bearer": []}, {"header": []}]
        api.openapi_schema = described
    return api.openapi_schema
