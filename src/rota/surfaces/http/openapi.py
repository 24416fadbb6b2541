"""The OpenAPI document, and a page to read it on, which fetches nothing from elsewhere.

FastAPI describes the requests, msgspec the answers, from the shapes that routes name (`documented`). The document is
large, so it is made once, and sent as the bytes it is."""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from .problems import CONTENT_TYPE, ProblemDocument

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
_TAGS = {
    "schedules": "When something is to run, and the ledger of what became of each time.",
    "calendars": "The days and hours that schedules keep to, or stay away from.",
    "plans": "Schedules as a file: what applying one would change, and applying it.",
    "forecast": "How much is coming, in which minutes it meets, and spreading it.",
    "task executions": "Pieces of work: submit them, follow them, cancel and replay them.",
    "workflow executions": "Functions that survive crashes, deploys and waits: start, signal, cancel and replay them.",
    "templates": "Stored definitions of what to run: a function, a shell command, an HTTP call.",
    "artifacts": "What tasks left: results, outputs and files.",
    "workers and queues": "Who is alive, what they serve, and what waits.",
    "alarms": "What is late, fails or has silently stopped, and the rules that say so.",
    "keys": "Who may do what.",
    "live": "What happens, as it happens.",
    "operations": "Health and metrics, for those who watch over it.",
    "v1 tasks": "Definitions of tasks, in the form of /api/v1.",
    "v1 schedules": "Schedules of such tasks.",
    "v1 jobs": "Their executions.",
    "v1 artifacts": "What these left.",
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
    """Serve the document as it was written once. FastAPI's own is written anew for everyone who asks, with or without a
    key."""
    api.openapi = lambda: _described(api)  # type: ignore[method-assign]  # FastAPI's own way to extend it
    routes = api.router.routes
    routes[:] = [route for route in routes if getattr(route, "path", None) != api.openapi_url]
    written: dict[str, bytes] = {}

    async def described(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        if root not in written:
            written.clear()
            written[root] = msgspec.json.encode({**api.openapi(), "servers": [{"url": root or "/"}]})
        return Response(written[root], media_type="application/json")

    assert api.openapi_url is not None
    api.add_route(api.openapi_url, described, include_in_schema=False)
    _install_page(api)


def _install_page(api: FastAPI) -> None:
    async def page(request: Request) -> Response:
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
        described = get_openapi(
            title=api.title,
            version=api.version,
            description=api.description,
            routes=api.routes,
            servers=[{"url": "/"}],
            license_info={"name": "MIT", "identifier": "MIT"},
            tags=[{"name": name, "description": words} for name, words in _TAGS.items()],
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
            for method, operation in methods.items():
                operation["operationId"] = operation_id(method, path)
                is_open = path.startswith("/health")
                operation["security"] = [] if is_open else [{"bearer": []}, {"header": []}]
        api.openapi_schema = described
    return api.openapi_schema


def operation_id(method: str, path: str) -> str:
    """The name of an operation in generated clients, such as `createSchedule` and `listV1Jobs`."""
    if (method, path) in _OPERATION_IDS:
        return _OPERATION_IDS[method, path]
    parts = [part for part in path.split("/") if part not in ("", "api", "tenants", "{tenant}", "v1")]
    words = [_capital(part) for part in parts if "{" not in part]
    of_one = [_one(word) for word in words[:-1]]
    version = "V1" if path.startswith("/api/v1") else ""
    if "{" in parts[-1]:
        return "".join((_VERBS[method], version, *of_one, _one(words[-1])))
    if method == "post" and not words[-1].endswith("s"):  # what is done to one of them, or to many
        noun = of_one if len(parts) > 1 and "{" in parts[-2] else words[:-1]
        return "".join((words[-1][0].lower(), words[-1][1:], version, *noun))
    if method == "post":
        return "".join(("create", version, *of_one, _one(words[-1])))
    verb = "list" if method == "get" and words[-1].endswith("s") else _VERBS[method]
    return "".join((verb, version, *of_one, words[-1]))


_VERBS = {"get": "get", "put": "replace", "patch": "update", "delete": "delete", "post": "change"}
_OPERATION_IDS = {
    ("post", "/api/tenants/{tenant}/preview"): "previewTiming",
    ("post", "/api/tenants/{tenant}/workflow-executions"): "startWorkflowExecution",
    ("get", "/api/tenants/{tenant}/events"): "streamEvents",
    ("get", "/api/v1/jobs/{id}/$stream"): "streamV1Job",
    ("post", "/api/tenants/{tenant}/bulk/schedules/{action}"): "changeSchedules",
    ("get", "/metrics"): "getMetrics",
    ("post", "/api/tenants/{tenant}/plan"): "planDeclaration",
    ("post", "/api/tenants/{tenant}/apply"): "applyDeclaration",
    ("get", "/api/tenants/{tenant}/export"): "exportDeclaration",
    ("post", "/api/tenants/{tenant}/spread"): "spreadSchedules",
}
"""The names that do not follow from the path."""


def _capital(part: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in part.strip("$").split("-"))


def _one(word: str) -> str:
    return word.removesuffix("s")


def _typed(schema: Any) -> Any:
    """The schema with the type of its choices, which are all texts, and with pairs as lists of two: generators of
    clients need it so."""
    if isinstance(schema, list):
        return [_typed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    typed = {name: _typed(value) for name, value in schema.items()}
    if typed.get("items") is False:
        typed["items"], *others = typed.pop("prefixItems")
        assert all(each == typed["items"] for each in others), "only pairs of the same are answered"
    return {"type": "string", **typed} if isinstance(schema.get("enum"), list) else typed
