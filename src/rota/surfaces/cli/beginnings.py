"""Schedules and templates that are named by the beginning of an id. It is made whole before a command begins.

A name has no beginnings: `rota schedule delete report` is not to delete `report-2`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeGuard

import click

if TYPE_CHECKING:
    from ..python.client import Queue

__all__ = ["SCHEDULE", "TEMPLATE", "Named"]

_BEGINNING = re.compile("[0-9a-f][0-9a-f-]{0,34}")


class Named(click.ParamType[str]):
    """A parameter that is the name or the id of a record: of a `schedule` or of a `template`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def may_begin(self, value: object) -> TypeGuard[str]:
        """An id may begin so."""
        return isinstance(value, str) and _BEGINNING.fullmatch(value) is not None

    async def whole(self, queue: Queue, value: str) -> str:
        """The id of the one whose id begins so; a name, and what is not found, as it is: the command says so."""
        return await (queue.schedule_id(value) if self.name == "schedule" else queue.template_id(value))


SCHEDULE = Named("schedule")
TEMPLATE = Named("template")
