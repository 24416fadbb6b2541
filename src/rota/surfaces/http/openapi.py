"""The OpenAPI document, and a page to read it on, which fetches nothing from elsewhere.

FastAPI describes the requests, msgspec the answers, from the shapes that routes name (`documented`). The document is
large, so it is made once, and sent as the bytes it is."""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from .problems import CONTENT_TYPE, ProblemDocument

__all__ = ["documented", "install", "streaming"]

PAGE = "/docs"
_ASSETS = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
_CACHED = {"Cache-Control": "max-age=86400"}
_REF = "#/components/schemas/{name}"
_PROBLEMS = {
    400: "The body cannot be read as JSON.",
    401: "No key was given, or it is not valid.",
    403: "The key's role does not allow this, or the tenant is suspended.",
    404: "There is no such thing in this tenant.",
    409: "It conflicts with how things are: taken, ended, changed meanwhile, a limit reached.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A value is wrong: `field` says which, `detail` what is accepted.",
    429: "Asked too often; `Retry-After` says when to ask again.",
    503: "The store does not answer; repeat the request.",
}
_answers: list[type[msgspec.Struct]] = [ProblemDocument]
"""Every shape that a route answers with."""


def documented(
    status: int, shape: type[msgspec.Struct] | None = None, *, is_list: bool = False, **extra: Any
) -> dict[str, Any]:
    """The arguments of a route: the shape of its answer, or of each in a list, and every problem that it may answer
    with."""
    good: dict[str, Any] = {"description": "Done."}
    if shape is not None:
        _answers.append(shape)
        one = {"$ref": _REF.format(name=shape.__name__)}
        schema = {"type": "array", "items": one} if is_list else one
        good["content"] = {"application/json": {"schema": schema}}
    responses: dict[int | str, dict[str, Any]] = {status: good}
    problem = {CONTENT_TYPE: {"schema": {"$ref": _REF.format(name="ProblemDocument")}}}
    for code, words in _PROBLEMS.items():
        responses[code] = {"description": words, "content": problem}
    return {"status_code": status, "response_class": Response, "responses": responses, **extra}


def streaming(words: str, **extra: Any) -> dict[str, Any]:
    """The arguments of a route that answers with server-sent events."""
    arguments = documented(200, **extra)
    content = {"text/event-stream": {"schema": {"type": "string"}}}
    arguments["responses"][200] = {"description": words, "content": content}
    return arguments


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
    _install_page(api)


def _install_page(api: FastAPI) -> None:
    async def page(request: Request) -> Response:
        from fastapi.openapi.docs import get_swagger_ui_html

        root = request.scope.get("root_path", "").rstrip("/")
        style, script, icon = (f"{root}{PAGE}/{name}" for name in _ASSETS)
        return get_swagger_ui_html(
            openapi_url=f"{root}{api.openapi_url}",
            title=api.title,
            swagger_css_url=style,
            swagger_js_url=script,
            swagger_favicon_url=icon,
        )

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            raise HTTPException(404)
        content = resources.files("fastapi_swagger.resources").joinpath(name).read_bytes()
        return Response(content, headers=_CACHED, media_type=_ASSETS[name])

    api.add_route(PAGE, page, include_in_schema=False)
    api.add_route(f"{PAGE}/{{name}}", asset, include_in_schema=False)


def _described(api: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: FastAPI's, with the shapes of answers and the two ways to send a key."""
    if api.openapi_schema is None:
        from fastapi.openapi.utils import get_openapi

        described = get_openapi(
            title=api.title, version=api.version, description=api.description, routes=api.routes
        )
        parts = described.setdefault("components", {})
        shapes = parts.setdefault("schemas", {})
        _, answers = msgspec.json.schema_components(_answers, ref_template=_REF)
        shapes.update({name: _typed(shape) for name, shape in answers.items() if name not in shapes})
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


def _typed(schema: Any) -> Any:
    """The schema with the type of its choices, which are all texts: generators of clients need it."""
    if isinstance(schema, list):
        return [_typed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    typed = {name: _typed(value) for name, value in schema.items()}
    return {"type": "string", **typed} if isinstance(schema.get("enum"), list) else typed
