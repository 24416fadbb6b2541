"""Works on templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...domain import task
from ...domain import template as rules
from ...domain.errors import NotFound, Refused
from ...domain.model import Task, Template
from ...domain.schedule import definition
from ...stores.base import Tx, Work
from ...stores.queries import ScheduleList, TemplateByAlias
from ..work import as_work
from .gates import put_new
from .schedules import Edit, write_edits
from .serving import check_shell
from .shared import audit, check_room_for_tasks, check_version, find_template, limits_of, put_audited

LONGEST_ALIAS = 200


@as_work
async def create_template(tx: Tx, id: str, tenant: str, fields: Mapping[str, Any], actor: str) -> Template:
    limits = await limits_of(tx, tenant)
    again = await tx.get(Template, id)
    if again is not None:
        return again
    new = rules.create(
        id, await _with_alias(tx, tenant, id, fields), tenant=tenant, now=tx.now, limits=limits
    )
    await check_shell(tx, new)
    await _check_alias(tx, new)
    return put_audited(tx, "created", actor, None, new)


@as_work
async def edit_template(
    tx: Tx,
    tenant: str,
    id: str,
    changes: Mapping[str, Any],
    actor: str,
    version: int | None = None,
    *,
    whole: bool = False,
) -> Template:
    """Change the fields that are named; if the `whole` is given, the others go back to their defaults. With
    `version`, only if nobody else changed it since."""
    limits = await limits_of(tx, tenant)
    old = await find_template(tx, tenant, id)
    check_version("template", id, old.version, version)
    if whole:
        edited = rules.replaced(old, await _with_alias(tx, tenant, old.id, changes), tx.now, limits)
    else:
        edited = rules.edit(old, changes, tx.now, limits)
    if edited is old:
        return old
    if edited.command != old.command:
        await check_shell(tx, edited)
    await _check_alias(tx, edited)
    return put_audited(tx, "updated", actor, old, edited)


async def _with_alias(tx: Tx, tenant: str, id: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without an alias it is called as its kind, or as its command; if that is taken, with a part of the id."""
    if fields.get("alias") is not None:
        return fields
    given = fields.get("kind") or fields.get("command")
    name = given[:LONGEST_ALIAS].strip() if isinstance(given, str) else str(fields.get("runtime"))
    if not name or not name.isprintable():
        name = str(fields.get("runtime"))
    holders = await tx.find(TemplateByAlias(tenant=tenant, alias_key=rules.alias_key(name)), 1)
    taken = any(holder.id != id for holder in holders)
    return {**fields, "alias": f"{name}-{id[-12:]}" if taken else name}


async def _check_alias(tx: Tx, template: Template) -> None:
    """An alias is no other template's, nor the id of another, which would be found instead."""
    try:
        holder = await find_template(tx, template.tenant, template.alias)
    except NotFound:
        return
    if holder.id != template.id:
        raise Refused("alias_taken", alias=template.alias, holder=holder.alias)


def delete_template(tenant: str, id: str, actor: str, limit: int = 100) -> Work[bool]:
    """Remove it, and delete its schedules before, `limit` at a time; whether it is gone now."""
    found = ""

    async def work(tx: Tx) -> bool:
        nonlocal found
        if found and await tx.get(Template, found) is None:
            return True  # an answer was lost
        template = await find_template(tx, tenant, found or id)
        found = template.id
        schedules = await tx.find(ScheduleList(tenant=tenant, template_id=found), limit)
        why = f"its template {template.alias} was deleted"
        edits = [Edit(old, definition.delete(old, tx.now, actor), "deleted", why) for old in schedules]
        await write_edits(tx, None, edits, actor)
        if len(schedules) == limit:
            return False
        tx.delete(template)
        audit(tx, "deleted", actor, template, None)
        return True

    return work


@as_work
async def execute_template(
    tx: Tx,
    id: str,
    tenant: str,
    template_id: str,
    input: Any,
    actor: str,
    *,
    check: Callable[[str, Any], None] = lambda *_: None,
) -> Task:
    """Run it now, as the task of this id. `check` may refuse the task's input."""
    limits = await limits_of(tx, tenant)
    again = await tx.get(Task, id)
    if again is not None:
        return again.as_of(tx.now)
    template = await find_template(tx, tenant, template_id)
    rules.check_runs(template)
    await check_shell(tx, template)
    await check_room_for_tasks(tx, tenant, limits)
    new = task.admit(id, rules.submission(template, input), tenant, tx.now, limits, actor)
    check(new.kind, new.input)
    return (await put_new(tx, {id: new}))[id]
