"""An artifact as an answer: streamed, in part if a part is asked for, and never run by a browser.

`Range` is served for one range; several at once, or one that cannot be read, get the whole, as RFC 9110 allows. The
ETag is the digest of the bytes. A browser saves it as a file: it is neither shown as a page nor guessed to be one.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from ...engine.artifacts import OpenArtifact
from .openapi import documented
from .problems import Problem

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def downloading(**extra: Any) -> dict[str, Any]:
    """The arguments of a route that answers with an artifact."""
    arguments = documented(200, **extra)
    responses = arguments["responses"]
    responses[200] = {"description": "The bytes, as the type that they have.", "content": _BYTES}
    responses[206] = {"description": "The range that `Range` asks for.", "content": _BYTES}
    responses[304] = {"description": "`If-None-Match` names what is there."}
    responses[416] = {
        **responses[422],
        "description": "There is no such range; `Content-Range` has the size.",
    }
    return arguments


async def download(request: Request, opened: OpenArtifact) -> Response:
    artifact = opened.artifact
    etag = f'"{artifact.digest}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "no-cache",
        "Content-Disposition": _disposition(artifact.name),
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
    }
    known = request.headers.get("if-none-match", "")
    if etag in known or known.strip() == "*":
        return Response(status_code=304, headers=headers)
    wanted = request.headers.get("range") if request.headers.get("if-range", etag) == etag else None
    start, stop = _span(wanted, artifact.size)
    status = 200 if wanted is None or (start, stop) == (0, artifact.size) else 206
    if status == 206:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{artifact.size}"
    headers["Content-Length"] = str(stop - start)
    pieces = opened.chunks(start, stop)
    first = await anext(pieces, b"")  # what cannot be read is said before the answer begins
    return StreamingResponse(
        _streamed(first, pieces), status, headers | {"Content-Type": artifact.media_type}
    )


async def _streamed(first: bytes, rest: Any) -> AsyncIterator[bytes]:
    async with aclosing(rest):
        yield first
        async for piece in rest:
            yield piece


def _span(wanted: str | None, size: int) -> tuple[int, int]:
    """The bytes asked for: from, and up to."""
    found = _RANGE.fullmatch(wanted.strip()) if wanted is not None else None
    if found is None or not (found[1] or found[2]):
        return 0, size
    if not found[1]:
        start, stop = max(0, size - int(found[2])), size
    else:
        start, stop = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
        if found[2] and int(found[2]) < start:
            return 0, size  # not a range
    if start >= stop:
        sentence = f"Range: {wanted!r:.60} lies outside; there are {size:,} bytes"
        headers = {"Content-Range": f"bytes */{size}"}
        raise Problem(416, "no_such_range", sentence, field="Range", headers=headers)
    return start, stop


def _disposition(name: str) -> str:
    """Two names: one in plain ASCII for old programs, and the real one."""
    plain = re.sub(r'[^ -~]|["\\%]', "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
