"""Errors as RFC 9457 problem documents: one sentence in `detail`, a stable `code`, and the `field` at fault."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from ...domain.errors import Refused, RotaError, Unavailable
from .naming import as_given, in_words_of
from .wording import wrong_value

__all__ = ["CONTENT_TYPE", "Problem", "Unreadable", "install", "respond"]

log = logging.getLogger("rota.http")

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


class Unreadable(HTTPException):
    """A problem with a body, as FastAPI lets it pass."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.status, str(problem))
        self.problem = problem


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
    if not isinstance(error, Refused):
        return _from_store(error, request)
    members: dict[str, Any] = {}
    sentence = str(error)
    field = getattr(error, "field", None)
    if field is None:
        sentence = in_words_of(sentence, request, error.details)
    else:
        members["field"] = as_given(field, request)
        sentence = members["field"] + in_words_of(sentence.removeprefix(field), request, {})
    if error.code == "key_taken":
        members["field"] = "name"
        taken = f"{error.details['key']!r} is already in use"
        sentence = f"name: {taken}; choose another, or delete the schedule that has it"
    if error.code == "stale_version":
        members["currentVersion"] = error.details["found"]
    return Problem(_STATUS.get(error.code, 409), error.code, sentence, **members)


def _from_store(error: RotaError, request: Request) -> Problem:
    """Where the store is, and what ails it, is for the log: whoever asks may have no good key."""
    log.warning("%s %s: %s", request.method, request.url.path, error)
    if isinstance(error, Unavailable):
        sentence = "the store does not answer; nothing is known to be lost, repeat the request"
        return Problem(503, error.code, sentence, headers={"Retry-After": RETRY_AFTER})
    sentence = "what is stored cannot be read; the server's log has it"
    return Problem(_STATUS.get(error.code, 500), error.code, sentence)


def _from_http(error: HTTPException, request: Request) -> Problem:
    if isinstance(error, Unreadable):
        return error.problem
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
    return sorted(found | {"HEAD"} if "GET" in found else found)


_ONE_OF_SEVERAL = ("scheduleType", "target")
"""Fields that have one of several shapes. What follows them in a location names the shape that was tried."""

_BODIES_OF_SEVERAL = ("once", "interval", "cron")
"""The body of a schedule in `/api/v1` has one of several shapes as a whole."""


def _from_validation(errors: Iterable[Mapping[str, Any]]) -> Problem:
    """The first of what is wrong as the sentence, all of it as a list. A name that is not known comes first: it may be
    why another is missing."""
    listed = [_one(error) for error in sorted(errors, key=lambda each: each["type"] != "extra_forbidden")]
    first = listed[0]
    return Problem(422, "invalid", first["detail"], field=first["field"], errors=listed)


def _one(error: Mapping[str, Any]) -> dict[str, str]:
    source, *parts = error["loc"]
    place = [str(part) for part in parts]
    if source == "header":
        place = [part.title() for part in place]
    elif source == "body":
        place = _without_variants(place, error["type"])
    words = wrong_value(error, place[-1:])
    named = re.match(r"([A-Za-z_]+): ", words) if error["type"] == "value_error" else None
    if named is not None:  # said of an object, about one field of it
        place, words = [*place, named[1]], words[named.end() :]
    elif error["type"].startswith("union_tag"):
        place.append("type")
    field = ".".join(place) or "body"
    return {"field": field, "detail": f"{field}: {words}"}


def _without_variants(place: list[str], kind: str) -> list[str]:
    """The place without the steps that name no field: which of several shapes was tried, or that a name is meant."""
    is_own_field = len(place) == 1 and kind in ("extra_forbidden", "missing")
    if place and place[0] in _BODIES_OF_SEVERAL and not is_own_field:
        place = place[1:]
    if place and place[0] in _ONE_OF_SEVERAL:
        place = place[:1] + place[2:]
    return [part for part in place if part != "[key]"]
