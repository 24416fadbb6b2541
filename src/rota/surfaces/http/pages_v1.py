"""Numbered pages over listings that are walked from the newest on. What lies before a page is passed over, so how
far a number may reach is bounded."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Query
from msgspec.structs import replace

from ...domain.model import Task, TaskStatus, Template
from ...stores.base import Tx, Work
from ...stores.queries import Cursor, TaskList, TemplateList
from .problems import Problem

__all__ = ["Number", "Size", "check_reach", "job_page", "template_page"]

FURTHEST = 10_000
AT_ONCE = 1000

Number = Annotated[int, Query(alias="page", ge=1, description=f"Within the first {FURTHEST:,}.")]
Size = Annotated[int, Query(ge=1, le=100, description="How many to a page.")]


class Found(msgspec.Struct, frozen=True):
    """A page, and how many there are in all."""

    items: list[Any]
    total: int


def check_reach(number: int, size: int) -> None:
    if number * size > FURTHEST:
        last = FURTHEST // size
        sentence = (
            f"page: with a size of {size}, page {number} is past the first {FURTHEST:,}; the last is {last}"
        )
        raise Problem(422, "invalid", sentence, field="page")


def job_page(tenant: str, status: TaskStatus | None, number: int, size: int) -> Work[Found]:
    async def work(tx: Tx) -> Found:
        query = TaskList(tenant=tenant, at=tx.now, status=status)
        found = await _walked(tx, query, number, size, lambda task: Cursor(task.created_at, task.id))
        tasks: list[Task] = found.items
        return Found([task.as_of(tx.now) for task in tasks], found.total)

    return work


def template_page(tenant: str, number: int, size: int) -> Work[Found]:
    async def work(tx: Tx) -> Found:
        def place(template: Template) -> str:
            return template.id

        return await _walked(tx, TemplateList(tenant=tenant), number, size, place)

    return work


async def _walked(tx: Tx, query: Any, number: int, size: int, place: Any) -> Found:
    total = await tx.count(query)
    before = (number - 1) * size
    if before >= total:
        return Found([], total)
    while before:
        passed = await tx.find(query, min(before, AT_ONCE))
        if not passed:
            return Found([], total)
        before -= len(passed)
        query = replace(query, after=place(passed[-1]))
    return Found(await tx.find(query, size), total)
