"""Errors as RFC 9457 problem documents: one sentence in `detail`, a stable `code`, and the `field` at fault."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from ...domain.errors import Corrupt, Refused, RotaError, Unavailable
from .naming import as_given

__all__ = ["CONTENT_TYPE", "Problem", "install", "respond"]

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER = "1"

_STATUS = {
    "invalid": 422,
    "not_found": 404,
    "tenant_suspended": 403,
    "unavailable": 503,
    "corrupt": 500,
}
"""By code; whatever else the rules refuse is a conflict with the state that things are in."""

_TITLES = {
    400: "The request cannot be read",
    401: "A key is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Not for this method",
    409: "It conflicts with how things are",
    413: "Too large",
    414: "The address is too long",
    415: "Not JSON",
    422: "A value is wrong",
    429: "Too many requests",
    431: "The headers are too large",
    500: "Something is wrong here",
    503: "The store does not answer",
}


class Problem(Exception):
    """Why a request is not answered as asked."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})
        self.members = members


def respond(problem: Problem, path: str) -> Response:
    body = {
        "type": f"urn:rota:problem:{problem.code}",
        "title": _TITLES.get(problem.status, "Refused"),
        "status": problem.status,
        "code": problem.code,
        "detail": str(problem),
        "instance": path,
        **problem.members,
    }
    content = msgspec.json.encode(body)
    return Response(content, problem.status, problem.headers, media_type=CONTENT_TYPE)


def install(api: FastAPI) -> None:
    """Answer every error with a problem document."""

    @api.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return respond(error, request.url.path)

    @api.exception_handler(RotaError)
    async def refused(request: Request, error: RotaError) -> Response:
        return respond(_from_error(error, request), request.url.path)

    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return respond(_from_validation(error.errors()), request.url.path)

    @api.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return respond(_from_http(error, request), request.url.path)

    @api.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        sentence = "an unexpected error happened; the server's log has it"
        return respond(Problem(500, "internal", sentence), request.url.path)


def _from_error(error: RotaError, request: Request) -> Problem:
    if isinstance(error, Unavailable):
        sentence = f"{error}; nothing is known to be lost, repeat the request"
        return Problem(503, error.code, sentence, headers={"Retry-After": RETRY_AFTER})
    if isinstance(error, Corrupt) or not isinstance(error, Refused):
        return Problem(_STATUS.get(error.code, 500), error.code, str(error))
    members: dict[str, Any] = {}
    sentence = str(error)
    field = getattr(error, "field", None)
    if field is not None:
        shown = as_given(field, request)
        members["field"] = shown
        sentence = shown + sentence.removeprefix(field)
    if error.code == "key_taken":
        members["field"] = "name"
        taken = f"{error.details['key']!r} is already in use"
        sentence = f"name: {taken}; choose another, or delete the schedule that has it"
    if error.code == "stale_version":
        members["currentVersion"] = error.details["found"]
    return Problem(_STATUS.get(error.code, 409), error.code, sentence, **members)


def _from_http(error: HTTPException, request: Request) -> Problem:
    headers = error.headers or {}
    if error.status_code == 404:
        return Problem(404, "not_found", f"there is nothing at {request.url.path}", headers=headers)
    if error.status_code == 405:
        allowed = ", ".join(_methods(request, headers.get("Allow")))
        sentence = f"{request.method} is not accepted at {request.url.path}; accepted: {allowed}"
        return Problem(405, "method_not_allowed", sentence, headers={"Allow": allowed})
    if error.status_code == 400:
        return Problem(400, "malformed", f"the body cannot be read: {error.detail}", headers=headers)
    code = "body_too_large" if error.status_code == 413 else "refused"
    return Problem(error.status_code, code, str(error.detail), headers=headers)


def _methods(request: Request, known: str | None) -> list[str]:
    """Of all routes at this address: each of them knows only its own."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    found = {known} if known else set()
    for template, methods in request.app.openapi()["paths"].items():
        if compile_path(template)[0].match(path):
            found |= {method.upper() for method in methods}
    return sorted(found)


def _from_validation(errors: Iterable[Mapping[str, Any]]) -> Problem:
    """The first of what is wrong as the sentence, all of it as a list."""
    listed = [_one(error) for error in errors]
    first = listed[0]
    if first.pop("malformed", False):
        return Problem(400, "malformed", first["detail"])
    return Problem(422, "invalid", first["detail"], field=first["field"], errors=listed)


_WORDS: Mapping[str, str] = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such field",
}


def _one(error: Mapping[str, Any]) -> dict[str, Any]:
    if error["type"] == "json_invalid":
        reason = error.get("ctx", {}).get("error", "it is not JSON")
        where = f" at character {error['loc'][-1]}" if isinstance(error["loc"][-1], int) else ""
        return {"malformed": True, "detail": f"the body is not valid JSON{where}: {reason}"}
    place = [str(part) for part in error["loc"] if part not in ("body", "query", "path", "header")]
    if error["loc"] and error["loc"][0] == "header":
        place = [part.title() for part in place]
    field = ".".join(part for part in place if not _is_variant(part)) or "body"
    words = _WORDS.get(error["type"]) or _lowered(str(error["msg"]).removeprefix("Value error, "))
    named = re.match(r"([A-Za-z_]+): ", words)
    if (
        named and error["type"] == "value_error" and field == "body"
    ):  # said of the body, about one field of it
        return {"field": named[1], "detail": words}
    return {"field": field, "detail": f"{field}: {words}"}


def _is_variant(part: str) -> bool:
    """A step of the location that names which of several shapes was tried, and not a field."""
    return "[" in part or part in (
        "once",
        "recurring",
        "cron",
        "interval",
        "rrule",
        "task",
        "workflow",
        "template",
    )


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:] if re.match(r"[A-Z][a-z]", sentence) else sentence
