"""The calls of a queue that are about templates: stored task definitions."""

from __future__ import annotations

from typing import Any, Unpack

from ....domain.checks import check_key, check_text
from ....domain.model import Task, Template
from ....domain.options import TemplateChanges, TemplateOptions
from ....engine import commands, queries
from ....stores.queries import TemplateList
from ...redaction import restored
from .base import CANDIDATES, LIMIT, Calls, Page, check_limit, only_one, page_of


class TemplateCalls(Calls):
    """Keep what to run apart from when; run it by hand or by a schedule (`rota.TemplateTarget`)."""

    async def create_template(
        self, alias: str | None, kind: str | None = None, **fields: Unpack[TemplateOptions]
    ) -> Template:
        """Store what to run: a `kind` of task, or a `command` of another `runtime`, under a name for people (`alias`;
        None: one is made from what it runs).

        No two templates have the same alias, letter case, `-` and `_` aside, and it serves wherever an id does."""
        given = {"alias": alias, **({} if kind is None else {"kind": kind}), **_without_hidden(fields)}
        return await self._commit(commands.create_template(self._new_id(), self.tenant, given, self.actor))

    async def get_template(self, template_id: str) -> Template:
        return await self.store.read(queries.one_template(self.tenant, _id(template_id)))

    async def template_id(self, beginning: str) -> str:
        """The id of the one template whose id begins so. An alias, and what begins no id, is taken as it is."""
        text = _id(beginning)
        found = await self.store.read(queries.templates_by_beginning(self.tenant, text, CANDIDATES + 1))
        return only_one("template", text, {each.id: each.alias for each in found}) or text

    async def list_templates(self, *, limit: int = LIMIT, cursor: str | None = None) -> Page[Template]:
        """The newest templates; give a page's `next_cursor` as `cursor` to go on."""
        after = None if cursor is None else check_text("cursor", cursor)
        found = await self.store.read(
            queries.find(TemplateList(tenant=self.tenant, after=after), check_limit(limit))
        )
        return page_of(found, limit)

    async def update_template(
        self,
        template_id: str,
        *,
        version: int | None = None,
        replace: bool = False,
        **changes: Unpack[TemplateChanges],
    ) -> Template:
        """Change what is named; with `replace`, all else goes back to its default. With `version`: only if it is still
        at that one."""
        work = commands.edit_template(
            self.tenant, _id(template_id), _without_hidden(changes), self.actor, version, whole=replace
        )
        return await self._commit(work)

    async def delete_template(self, template_id: str) -> None:
        """Remove it for good, and delete the schedules that run it."""
        work = commands.delete_template(self.tenant, _id(template_id), self.actor)
        while not await self._commit(work):
            pass

    async def execute_template(self, template_id: str, input: Any = None) -> Task:
        """Run it now: its parameters, overlaid with `input` (a dict), are the task's input."""
        work = commands.execute_template(
            self._new_id(),
            self.tenant,
            _id(template_id),
            restored("input", input),
            self.actor,
            check=self._check_input,
        )
        task = await self._commit(work)
        await self._warn_of_unhandled((task.kind, task.queue))
        return task


def _without_hidden(fields: Any) -> dict[str, Any]:
    """Refused, if something in them is hidden: a change of a template names what it changes."""
    return {name: restored(name, value) for name, value in fields.items()}


def _id(value: object) -> str:
    return check_key(value, "template_id")
