"""Waiters: who is woken by which commit."""

from __future__ import annotations

import asyncio

from rota.domain.model import Schedule, Task, Tenant
from rota.stores.base import RecordTypes
from rota.stores.waiting import Waiters
from rota.testing import LoopClock, run


def woken_by(change: RecordTypes | None, look: list[int] | None = None) -> list[str]:
    """Which of three waiters are woken by a change; with `look`, what others changed is seen by it, too."""

    async def main(clock: LoopClock) -> list[str]:
        seen = look or [0]
        waiters = Waiters(clock.now, lambda: seen[-1])
        waits: dict[str, RecordTypes | None] = {"tasks": {Task}, "plans": {Schedule, Tenant}, "any": None}
        waiting = {name: asyncio.create_task(waiters.wait(None, of), name=name) for name, of in waits.items()}
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if look is not None:
            look.append(1)
        waiters.changed(change)
        for _ in range(3):
            await asyncio.sleep(0)
        woken = [name for name, each in waiting.items() if each.done()]
        waiters.close()
        await asyncio.gather(*waiting.values())
        return woken

    return run(main)


def test_a_commit_wakes_those_who_wait_for_what_it_wrote() -> None:
    assert woken_by({Task}) == ["tasks", "any"]
    assert woken_by({Tenant}) == ["plans", "any"]
    assert woken_by({Task, Schedule}) == ["tasks", "plans", "any"]


def test_a_commit_of_someone_else_wakes_everyone() -> None:
    assert woken_by(None) == ["tasks", "plans", "any"]
    assert woken_by({Task}, look=[0]) == ["tasks", "plans", "any"]
