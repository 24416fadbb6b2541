"""Strict reading of requests: a name that is given twice, or that nobody asks for, is refused and not passed over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...domain.checks import storable
from .fields import SLASH
from .problems import Problem, Unreadable, wrong


class Router(APIRouter):
    """Every route of the API is made by one of these."""

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=_Route, strict_content_type=False, **options)


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        accepted = sorted(_query_parameters(self.dependant))

        async def handle_strictly(request: Request) -> Response:
            check_query(request, accepted)
            whole_parts(request.scope)
            return await handle(_Request(request.scope, request.receive))

        return handle_strictly


class BareRoute(Route):
    """A route without FastAPI's reading and description. The metrics know it by its path, like the others."""

    def __init__(self, path: str, endpoint: Callable[[Request], Any], method: str) -> None:
        super().__init__(path, endpoint, methods=[method], include_in_schema=False)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        whole_parts(scope)
        await super().handle(scope, receive, send)


class _Request(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = read_json(await self.body())
        return self._json


def whole_parts(scope: Scope) -> None:
    """Give the parts of the path that are names the slashes that they have."""
    scope["path_params"] = {name: part.replace(SLASH, "/") for name, part in scope["path_params"].items()}


def _query_parameters(of: Dependant) -> set[str]:
    own = {field.alias for field in of.query_params}
    return own.union(*map(_query_parameters, of.dependencies))


def check_query(request: Request, accepted: Collection[str]) -> None:
    given = Counter(name for name, _ in request.query_params.multi_items())
    for name, times in given.items():
        if name not in accepted:
            others = f"accepted are {', '.join(accepted)}" if accepted else "none are accepted here"
            raise wrong(name, f"{name}: there is no such query parameter; {others}")
        if times > 1:
            raise wrong(name, f"{name}: it is given {times} times; give it once")


def read_json(raw: bytes) -> Any:
    """JSON that has one meaning for every reader, so without names that an object has twice, and without halves of
    surrogate pairs, which no answer could repeat."""
    try:
        value = json.loads(raw, object_pairs_hook=_object, parse_constant=_constant)
        if b"\\u" in raw:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except _Twice:
        place = storable(".".join(_place_of_twice(json.loads(raw, object_pairs_hook=_Pairs))))
        raise Unreadable(wrong(place, f"{place}: it is given twice; give it once")) from None
    except json.JSONDecodeError as error:
        raise _malformed(f" at character {error.pos}: {error.msg}") from None
    except UnicodeEncodeError:
        raise _malformed(": it holds a character that UTF-8 cannot carry") from None
    except UnicodeDecodeError:
        raise _malformed(": it is not UTF-8") from None
    except RecursionError:
        raise _malformed(": it is nested too deeply") from None
    except ValueError as error:  # a constant that JSON has not, a number of thousands of digits
        raise _malformed(f": {error}") from None


class _Twice(Exception):
    """Somewhere an object has a name twice."""


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _place_of_twice(value: Any) -> list[str]:
    """The way to the first name that is there twice; empty: none is."""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, part in value:
            if name in seen:
                return [name]
            seen.add(name)
            below = _place_of_twice(part)
            if below:
                return [name, *below]
    elif isinstance(value, list):
        for number, part in enumerate(value):
            below = _place_of_twice(part)
            if below:
                return [str(number), *below]
    return []


def _malformed(why: str) -> Unreadable:
    return Unreadable(Problem(400, "malformed", f"the body is not valid JSON{why}"))
