"""Errors as RFC 9457 problem documents: one sentence in `detail`, a stable `code`, and the `field` at fault."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from ...domain.checks import MAX_DEPTH, NAME_RULE
from ...domain.errors import Refused, RotaError, Unavailable
from ..shapes import Answer
from .fields import SLASH, as_given, as_json, in_words_of, named_as_given

log = logging.getLogger("rota.http")

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER = "1"

_STATUS = {"invalid": 422, "not_found": 404, "tenant_suspended": 403, "unavailable": 503, "corrupt": 500}
"""The status for each code. Everything else that the rules refuse conflicts with the state that things are in: 409."""

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
    416: "There is no such part",
    422: "A value is wrong",
    429: "Too many requests",
    431: "The headers are too large",
    500: "Something is wrong here",
    503: "The store does not answer",
}


class WrongField(Answer, frozen=True, kw_only=True):
    """One of several things that are wrong with a request."""

    field: str
    detail: str


class ProblemDocument(Answer, frozen=True, kw_only=True):
    """RFC 9457. `code` never changes between releases. `field` is the field that is wrong, if it is one; `errors` has
    all that are wrong in a body. `currentVersion` is the version of the record, where another one was given."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str
    field: str | UnsetType = UNSET
    errors: list[WrongField] | UnsetType = UNSET
    current_version: int | UnsetType = UNSET


class Problem(Exception):
    """The reason why a request is not answered as asked."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})
        self.members = members


def wrong(field: str, sentence: str) -> Problem:
    return Problem(422, "invalid", sentence, field=field)


class Unreadable(HTTPException):
    """A problem with a body, as FastAPI lets it pass."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.status, str(problem))
        self.problem = problem


def respond(problem: Problem, path: str) -> Response:
    document = ProblemDocument(
        type=f"urn:rota:problem:{problem.code}",
        status=problem.status,
        code=problem.code,
        detail=str(problem),
        instance=path.replace(SLASH, "%2F"),
        **{"title": _TITLES.get(problem.status, "Refused"), **problem.members},
    )
    return Response(msgspec.json.encode(document), problem.status, problem.headers, media_type=CONTENT_TYPE)


def install(api: FastAPI) -> None:
    @api.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return respond(error, request.url.path)

    @api.exception_handler(RotaError)
    async def refused(request: Request, error: RotaError) -> Response:
        return respond(from_error(error, request), request.url.path)

    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return respond(_from_validation(error.errors(), error.body), request.url.path)

    @api.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return respond(_from_http(error, request), request.url.path)

    @api.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        sentence = "an unexpected error happened; the server's log has it"
        return respond(Problem(500, "internal", sentence), request.url.path)


def status_of(error: RotaError) -> int:
    return _STATUS.get(error.code, 409 if isinstance(error, Refused) else 500)


def from_error(error: RotaError, request: Request) -> Problem:
    if not isinstance(error, Refused):
        return _from_store(error, request)
    members: dict[str, Any] = {}
    sentence = str(error)
    field = getattr(error, "field", None)
    if field is None:
        sentence = in_words_of(sentence, request, error.details)
    elif not sentence.startswith(field):
        members["field"] = field  # it is about a part of a declaration, whose words are those of the domain
    else:
        members["field"] = as_given(field, request)
        sentence = members["field"] + in_words_of(sentence.removeprefix(field), request, {})
    if error.code == "key_taken":
        members["field"] = "name"
        taken = f"{error.details['key']!r} is already in use"
        sentence = f"name: {taken}; choose another, or delete the schedule that has it"
    if error.code == "stale_version":
        members["current_version"] = error.details["found"]
    return Problem(
        status_of(error), error.code, _PYTHON.sub(lambda word: _JSON[word[0]], sentence), **members
    )


_PYTHON = re.compile(r"(?<!['\"\w])(None|True|False|a dict)(?!['\"\w])")
_JSON = {"None": "null", "True": "true", "False": "false", "a dict": "an object"}
"""Words of the domain's sentences for which JSON has its own."""


def _from_store(error: RotaError, request: Request) -> Problem:
    """The log says where the store is and what is wrong with it. The answer does not: the caller may have no key."""
    log.warning("%s %s: %s", request.method, request.url.path, error)
    if isinstance(error, Unavailable):
        sentence = "the store does not answer; nothing is known to be lost, repeat the request"
        return Problem(503, error.code, sentence, headers={"Retry-After": RETRY_AFTER})
    sentence = "what is stored cannot be read; the server's log has it"
    return Problem(status_of(error), error.code, sentence)


def _from_http(error: HTTPException, request: Request) -> Problem:
    if isinstance(error, Unreadable):
        return error.problem
    headers = error.headers or {}
    path = request.url.path.replace(SLASH, "%2F")
    if error.status_code == 404:
        return Problem(404, "not_found", f"there is nothing at {path}", headers=headers)
    if error.status_code == 405:
        allowed = ", ".join(_methods(request, headers.get("Allow")))
        sentence = f"{request.method} is not accepted at {path}; accepted: {allowed}"
        return Problem(405, "method_not_allowed", sentence, headers={"Allow": allowed})
    if error.status_code == 400:
        return Problem(400, "malformed", f"the body cannot be read: {error.detail}", headers=headers)
    code = "body_too_large" if error.status_code == 413 else "refused"
    return Problem(error.status_code, code, str(error.detail), headers=headers)


def _methods(request: Request, known: str | None) -> list[str]:
    """The methods of all routes at this address. Each route knows only its own. Where a word stands for itself in one
    (`/replay`) and for an id in another, it stands for itself."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    matching = [
        (template.count("{"), methods)
        for template, methods in request.app.openapi()["paths"].items()
        if compile_path(template)[0].match(path)
    ]
    _, methods = min(matching, key=itemgetter(0), default=(0, [known] if known else []))
    found = {method.upper() for method in methods}
    return sorted(found | {"HEAD"} if "GET" in found else found)


_VARIANTS = {
    "scheduleType": "once, recurring, cron, interval, rrule, several and after",
    "timings": "once, recurring, cron, interval and rrule",
    "target": "task, workflow and template",
}
"""Fields that have one of several shapes, and the accepted values of `type`. The part that follows such a field in a
location names the shape that was tried."""

_BODIES_OF_SEVERAL = ("once", "interval", "cron")
"""The body of a schedule in `/api/v1` has one of several shapes as a whole."""


def _from_validation(errors: Iterable[Mapping[str, Any]], body: Any) -> Problem:
    """The first of what is wrong as the sentence, all of it as a list. A name that is not known comes first: it may be
    why another is missing."""
    unknown_first = sorted(errors, key=lambda each: each["type"] != "extra_forbidden")
    listed = [_one(error, body) for error in unknown_first]
    first = listed[0]
    return Problem(422, "invalid", first.detail, field=first.field, errors=listed)


def _one(error: Mapping[str, Any], body: Any) -> WrongField:
    source, *parts = error["loc"]
    place = [str(part) for part in parts]
    if error["type"] == "recursion_depth_exceeded":
        place = place[:1]
    if source == "header":
        place = [part.title() for part in place]
    elif source == "body":
        place = named_as_given(_without_variants(place, error["type"]), body)
    words = _wrong_value(error, next((part for part in reversed(place) if not part.isdigit()), ""))
    named = re.match(r"([A-Za-z_]+): ", words) if error["type"] == "value_error" else None
    if named is not None:  # said of an object, about one field of it
        place, words = [*place, named[1]], words[named.end() :]
    elif error["type"].startswith("union_tag"):
        place.append("type")
    field = ".".join(place) or "body"
    return WrongField(field=field, detail=f"{field}: {words}")


def _without_variants(place: list[str], kind: str) -> list[str]:
    """The place without the steps that name no field: which of several shapes was tried, or that a name is meant."""
    is_own_field = len(place) == 1 and kind in ("extra_forbidden", "missing")
    if place and place[0] in _BODIES_OF_SEVERAL and not is_own_field:
        place = place[1:]
    if place and place[0] in _VARIANTS:
        place = place[:1] + place[2:]
    if place[1:2] == ["timings"]:  # each of them has one of several shapes
        place = place[:3] + place[4:]
    return [part for part in place if part != "[key]"]


_KINDS = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "date": "a time",
    "datetime": "a time",
}
Words = Callable[[Any, Mapping[str, Any]], str]
_WORDS: Mapping[str, Words] = {
    "missing": lambda given, about: "it is missing",
    "extra_forbidden": lambda given, about: "there is no such field",
    "string_too_short": lambda given, about: f"it is too short; the least is {about['min_length']} character",
    "string_too_long": lambda given, about: (
        f"{len(given):,} characters are too many; the most is {about['max_length']:,}"
    ),
    "string_pattern_mismatch": lambda given, about: f"{as_json(given)} is not a valid name; {NAME_RULE}",
    "greater_than_equal": lambda given, about: f"{as_json(given)} is too small; the least is {about['ge']:g}",
    "less_than_equal": lambda given, about: f"{as_json(given)} is too large; the most is {about['le']:,}",
    "literal_error": lambda given, about: f"{as_json(given)} is not known; {_choices(about['expected'])}",
    "enum": lambda given, about: f"{as_json(given)} is not known; {_choices(about['expected'])}",
    "too_short": lambda given, about: f"there are too few; the least is {about['min_length']}",
    "too_long": lambda given, about: f"there are too many; the most is {about['max_length']}",
    "none_required": lambda given, about: f"{as_json(given)} is not accepted; leave it out",
    "recursion_depth_exceeded": lambda given, about: (
        f"it is nested too deeply; the most is {MAX_DEPTH} levels"
    ),
    "value_error": lambda given, about: str(about["error"]),
}


def _wrong_value(error: Mapping[str, Any], field: str) -> str:
    """One of pydantic's errors in plain words: the value that was given, and what is accepted. In a list of values,
    `field` is that of the list."""
    kind: str = error["type"]
    given: Any = error.get("input")
    about: Mapping[str, Any] = error.get("ctx", {})
    if kind.startswith("union_tag"):
        problem = f"{as_json(given.get('type'))} is not known" if "type" in given else "it is missing"
        return f"{problem}; accepted are {_VARIANTS[field]}"
    words = _WORDS.get(kind)
    if words is not None:
        return words(given, about)
    wanted = _KINDS.get(kind.partition("_")[0], "another value")
    return f"{as_json(given)} is not accepted; give {wanted}"


def _choices(expected: str) -> str:
    """Pydantic's `'a', 'b' or 'c'` in our words."""
    return f"accepted are {expected.replace(chr(39), '').replace(' or ', ' and ')}"
