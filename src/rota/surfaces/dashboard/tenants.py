"""Tenants, for people who may act in all of them: how much each has, how much it may have, and whether it may act."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import Response

from ...domain.errors import NotFound, Refused
from ...domain.model import Limits, Tenant
from ..durations import parsed
from ..http.access import ALL_TENANTS
from .forms import span_text
from .visit import FormField, Visit

ACTIONS = ("limits", "suspend", "resume")
_DONE = {
    "create": "The tenant is made.",
    "limits": "The limits are saved. They hold for what comes; what is there stays.",
    "suspend": "The tenant is suspended.",
    "resume": "The tenant may act again.",
}


async def show(visit: Visit, problem: str | None = None) -> Response:
    visit.need_all_tenants()
    service, name = visit.service, ("tenants", ALL_TENANTS)
    found = await service.shared_soon(name, visit.queue.list_tenants)
    if found is None and problem is not None:
        found = await service.shared(name, visit.queue.list_tenants, timedelta(0))
    if found is None:
        return visit.being_made("Tenants", "What they have is being counted.")
    return visit.show(
        "tenants.html",
        200 if problem is None else 422,
        tenants=found,
        said=_DONE.get(visit.asked("said") or ""),
        problem=problem,
    )


async def create(visit: Visit) -> Response:
    visit.need_all_tenants()
    try:
        await visit.queue.create_tenant((visit.given("name") or "").strip())
    except Refused as refused:
        return await show(visit, str(refused))
    return visit.go(visit.url("tenants", said="create"))


async def ask(visit: Visit) -> Response:
    visit.need_all_tenants()
    return await _question(visit, visit.action(*ACTIONS), await _tenant(visit))


async def _tenant(visit: Visit) -> Tenant:
    """The tenant that the address names. One that has no record yet has the default limits."""
    name = visit.part("name")
    found = next((each.tenant for each in await visit.queue.list_tenants() if each.tenant.id == name), None)
    if found is None:
        raise NotFound("tenant", name)
    return found


async def _question(visit: Visit, action: str, tenant: Tenant, problem: str | None = None) -> Response:
    words = {
        "suspend": "Nothing new begins there: submissions, triggers and edits are refused, and what its schedules would"
        " have fired is skipped. Tasks that were submitted before still run.",
        "resume": "It may act again. What was skipped meanwhile is not made up for.",
        "limits": "They hold for what comes. What is there already stays, also beyond them.",
    }
    fields = {
        "suspend": [FormField("note", "Why (others will read it)")],
        "limits": _limits(visit, tenant.limits),
    }
    title = (
        f"Change the limits of {tenant.id}" if action == "limits" else f"{action.capitalize()} {tenant.id}"
    )
    return visit.ask(
        title,
        words[action],
        back=visit.url("tenants"),
        verb="Save" if action == "limits" else action.capitalize(),
        fields=fields.get(action, []),
        problem=problem,
        is_danger=action == "suspend",
    )


def _limits(visit: Visit, limits: Limits) -> list[FormField]:
    pending = "" if limits.pending_tasks is None else str(limits.pending_tasks)
    known = {
        "schedules": ("Schedules that are not completed", str(limits.schedules)),
        "pending_tasks": ("Pending tasks (empty: no limit)", pending),
        "minimum_interval": ("Shortest time between two runs", span_text(limits.minimum_interval)),
        "input_bytes": ("Bytes of an input", str(limits.input_bytes)),
    }
    return [FormField(name, label, visit.given(name) or value) for name, (label, value) in known.items()]


async def act(visit: Visit) -> Response:
    visit.need_all_tenants()
    action, tenant = visit.action(*ACTIONS), await _tenant(visit)
    try:
        if action == "limits":
            await visit.queue.set_limits(tenant.id, **_given(visit))
        elif action == "suspend":
            await visit.queue.suspend_tenant(tenant.id, visit.given("note") or "")
        else:
            await visit.queue.resume_tenant(tenant.id)
    except Refused as refused:
        return await _question(visit, action, tenant, str(refused))
    return visit.go(visit.url("tenants", said=action))


def _given(visit: Visit) -> Any:
    def number(name: str) -> Any:
        text = (visit.given(name) or "").strip()
        return int(text) if text.isdecimal() and len(text) < 12 else text or None

    return {
        "schedules": number("schedules"),
        "pending_tasks": number("pending_tasks"),
        "minimum_interval": parsed("minimum_interval", visit.given("minimum_interval") or ""),
        "input_bytes": number("input_bytes"),
    }
