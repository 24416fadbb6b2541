"""Limits of tasks that were changed: what waits under them is planned anew, in several commits.

A tenant remembers which of its limits are not planned (`unplanned`). A process may die meanwhile, and on PostgreSQL a
transaction that has not seen the limit may stay open: then the next change, a worker that starts, or the forgetter of
any node plans again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from ..stores.base import Store, Work
from .clock import Clock
from .commands import gate_waiting, limit_planned, move_planned, replan_lines
from .queries import unplanned_limits
from .work import commit, commit_pages

PAGE = 200
"""The number of gates or waiting tasks that are planned anew in one commit."""
FOR_WRITERS = timedelta(seconds=10)
"""How long a change waits for transactions that may not have seen it."""


async def plan_anew(store: Store, clock: Clock, tenant: str, changed: Mapping[str, int]) -> bool:
    """Plan what waits under these limits, each with the version that changed it. Gates get the limits first, so that
    nobody else passes under the old ones. False: transactions that may not have seen the limits are still open, so this
    is to be done again."""
    have_ended = not changed or await store.wait_for_writers(timedelta(0))
    if not have_ended:
        for subject in changed:
            await commit_pages(store, clock, partial(_replan_lines, tenant, subject))
        have_ended = await store.wait_for_writers(FOR_WRITERS)
    for subject, number in changed.items():
        await _plan(store, clock, tenant, subject)
        if have_ended:
            await commit(store, clock, limit_planned(tenant, subject, number))
    return have_ended


async def _plan(store: Store, clock: Clock, tenant: str, subject: str) -> None:
    await commit_pages(store, clock, partial(_replan_lines, tenant, subject))
    await commit_pages(store, clock, lambda after: gate_waiting(tenant, subject, after, PAGE))
    await commit_pages(store, clock, lambda after: move_planned(tenant, after, PAGE))


def _replan_lines(tenant: str, subject: str, after: str | None) -> Work[str | None]:
    return replan_lines(tenant, subject, after, PAGE)


async def end_changes(store: Store, clock: Clock) -> None:
    """Plan what others have not planned to the end."""
    for tenant, changed in (await store.read(unplanned_limits())).items():
        await plan_anew(store, clock, tenant, changed)
