"""`/api/tenants/{tenant}/calls/{name}`: the calls of a `Queue`, for `rota --server`. Arguments and answers are those of
`remote/wire.py`; other programs have routes that are made for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from .... import __version__
from ....domain.errors import NotFound, Refused, RotaError
from ....domain.model import WorkflowTarget
from ... import files
from ...remote import wire
from ..problems import from_error, respond, status_of
from ..reading import Router, read_json
from ..service import Acting, Service, TenantName, answer, of
from .plans import check_declared
from .templates import check_shell_allowed

router = Router(prefix="/api/tenants/{tenant}", tags=["calls"])
Given = dict[str, Any]
_TELL_EVERY = timedelta(milliseconds=200)
_HEADERS = {wire.VERSION_HEADER: __version__, "Cache-Control": "no-store"}


@router.post("/calls/{name}", include_in_schema=False)
async def call(request: Request, tenant: TenantName, name: str) -> Response:
    """Make one call, in the caller's name."""
    role = wire.CALLS.get(name)
    if role is None:
        return _refused(NotFound("call", name))
    queue = await of(request).acting(request, tenant, role)
    body = read_json(await request.body())
    try:
        given = wire.read_arguments(name, body)
        _check_reach(queue, name, given)
        await _check_served(request, queue, name, given)
    except Refused as refused:
        return _refused(refused)
    if wire.PROGRESS_HEADER in request.headers and wire.reports(name):
        told = {**_HEADERS, wire.PROGRESS_HEADER: "lines", "X-Accel-Buffering": "no"}
        return StreamingResponse(_watched(request, queue, name, given), headers=told)
    return await _called(request, queue, name, given)


async def _called(request: Request, queue: Acting, name: str, given: Given) -> Response:
    try:
        found = await getattr(queue, name)(**given)
    except Refused as refused:
        return _refused(refused)
    return answer({"answer": wire.written_answer(found), "warnings": queue.warnings}, headers=_HEADERS)


async def _watched(request: Request, queue: Acting, name: str, given: Given) -> AsyncIterator[bytes]:
    """Lines, now and then, with the number of steps that were done since the last one; behind them the answer, after
    its status, since that of the response has been sent by then."""
    done = told = 0

    def report(steps: int) -> None:  # maybe in another thread
        nonlocal done
        done += steps

    calling = asyncio.create_task(_called(request, queue, name, {**given, "report": report}))
    try:
        while not calling.done():
            await asyncio.wait([calling], timeout=_TELL_EVERY.total_seconds())
            steps, told = done - told, done
            yield b"%d\n" % steps
        response = await calling
    except RotaError as error:
        response = respond(from_error(error, request), request.url.path)
    finally:
        calling.cancel()
    yield b"%d %b" % (response.status_code, bytes(response.body))


def _refused(refused: Refused) -> Response:
    details = {name: str(value) for name, value in refused.details.items()}
    told = {"code": refused.code, "detail": str(refused), "details": details}
    return answer(told, status_of(refused), _HEADERS)


def _check_reach(queue: Acting, name: str, given: Given) -> None:
    """Refuse what is about all tenants to a key that is good for one."""
    if given.get("every_tenant"):
        queue.caller.check_all_tenants("this is", f", or name yours: --tenant {queue.tenant}")
    if given.get("fleet") or name in wire.ABOUT_ALL_TENANTS:
        queue.caller.check_all_tenants("this is")


async def _check_served(request: Request, queue: Acting, name: str, given: Given) -> None:
    """Refuse calls that the routes of this server refuse, though the queue would take them."""
    service = of(request)
    match name:
        case "submit":
            service.check_known("kind", given["kind"], is_workflow=False)
        case "submit_many":
            pairs = given["tasks"] if isinstance(given["tasks"], list) else []
            kinds = {
                pair[0] for pair in pairs if isinstance(pair, list) and pair and isinstance(pair[0], str)
            }
            for kind in kinds:
                service.check_known("kind", kind, is_workflow=False)
        case "start_workflow":
            service.check_known("kind", given["kind"], is_workflow=True)
        case "create_schedule" | "update_schedule":
            _check_schedule(service, given)
        case "create_schedules":
            for options in given["schedules"].values() if isinstance(given["schedules"], dict) else ():
                if isinstance(options, dict):
                    _check_schedule(service, options)
        case "create_template" | "update_template":
            runtime = given.get("runtime")
            if runtime is None and given.get("command") is not None and "template_id" in given:
                runtime = (await queue.get_template(given["template_id"])).runtime
            check_shell_allowed(request, runtime, "runtime")
        case "plan" | "apply":  # of what a file says, never of a file of this machine
            document = given["source"] = files.check_document(given["source"])
            check_declared(request, document.get("templates", {}), document.get("schedules", {}))


def _check_schedule(service: Service, options: Given) -> None:
    target = options.get("target")
    kind = options.get("task_type") or getattr(target, "kind", None)
    if isinstance(kind, str):
        service.check_known("task_type", kind, is_workflow=isinstance(target, WorkflowTarget))
