"""Sign-in with an API key. The browser gets a session for it, in a cookie, and a new one every hour; the key itself
stays with its owner. A key that is revoked is signed out everywhere, and who signs out is, with every copy of the
cookie: `http/access.py` refuses these sessions."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import Request, Response

from ..http.access import COOKIE, Caller, came_from_here
from ..http.problems import Problem
from ..http.service import of
from .visit import HEADERS, address, path_of, render


async def needed(request: Request, problem: Problem) -> Response:
    """The answer of a page to someone who is not signed in.

    A link on another site brings no cookie along, because it is a strict one. So the page is asked for once more, from
    here, before anyone is sent to sign in."""
    if not (await of(request).access()).takes_keys:
        return render(request, "error.html", problem.status, sentence=str(problem))
    if request.headers.get("sec-fetch-site") == "cross-site" and request.method == "GET":
        return render(request, "again.html", here=_asked_for(request))
    location = address(request, "sign-in", next=_asked_for(request) if request.method == "GET" else None)
    return Response(status_code=303, headers={"Location": location, **HEADERS})


def _asked_for(request: Request) -> str:
    return path_of(request) + (f"?{request.url.query}" if request.url.query else "")


async def show(request: Request) -> Response:
    return render(request, "sign_in.html", next=_local(request.query_params.get("next")), problem=None)


async def sign_in(request: Request) -> Response:
    if not came_from_here(request):
        raise Problem(403, "cross_site", "this form was sent from another site; open the page here")
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    key, next = form.get("key", [""])[0].strip(), _local(form.get("next", [""])[0])
    try:
        access = await of(request).access()
        caller = await access.by_key(key, request)
    except Problem as problem:
        return render(request, "sign_in.html", problem.status, next=next, problem=str(problem))
    answer = Response(status_code=303, headers={"Location": next or address(request, ""), **HEADERS})
    assert caller.key_id is not None, "it was asked for by its key"
    _give(request, answer, await access.new_session(caller.key_id))
    return answer


async def rotate(request: Request, caller: Caller, answer: Response) -> None:
    """Send a new session with the page, if the one of the browser is old."""
    held = request.cookies.get(COOKIE)
    if held is not None and caller.key_id is not None:
        _give(request, answer, await (await of(request).access()).new_session(caller.key_id, held))


def _give(request: Request, answer: Response, session: str | None) -> None:
    if session is not None:
        path, is_https = address(request, ""), request.url.scheme == "https"
        answer.set_cookie(COOKIE, session, path=path, httponly=True, samesite="strict", secure=is_https)


async def sign_out(request: Request) -> Response:
    if not came_from_here(request):
        raise Problem(403, "cross_site", "this form was sent from another site; open the page here")
    await (await of(request).access()).sign_out(request.cookies.get(COOKIE))
    answer = Response(status_code=303, headers={"Location": address(request, "sign-in"), **HEADERS})
    answer.delete_cookie(COOKIE, path=address(request, ""))
    return answer


def _local(place: str | None) -> str:
    """A place on this server, to go on to; empty, if it is one elsewhere."""
    is_here = place is not None and place.startswith("/") and not place.startswith(("//", "/\\"))
    return place if place is not None and is_here and place.isprintable() else ""
