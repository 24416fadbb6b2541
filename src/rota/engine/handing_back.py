"""The end of a worker: what it holds is settled, and what does not end in time goes back to the queue."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from .clock import is_done, wait_for_any
from .executor import STOP_GRACE, StopReason
from .observe.telemetry import LoopFailed, Observer
from .roles.worker import TaskWorker

LOOK_AGAIN = timedelta(seconds=1)


async def hand_back(
    tasks: TaskWorker, observe: Observer, *, left: timedelta, patience: timedelta, hurry: asyncio.Event
) -> None:
    """Let handlers end by themselves, while time is left and nobody is in a hurry, then ask the others to stop, then
    hand back the tasks of those that do not. The store gets as much time for that as the handlers had. A task that it
    has not taken back by then is run again elsewhere."""
    tasks.accepting = False
    settling = asyncio.create_task(_settle_all(tasks, observe), name="rota-settling")
    try:
        if not await is_done(settling, at_most=left, unless=hurry):
            tasks.stop_handlers(StopReason.RELEASE)
            await is_done(settling, at_most=STOP_GRACE, unless=tasks.handlers_ended)
            tasks.abandon_handlers()
            await is_done(settling, at_most=max(LOOK_AGAIN, min(patience, STOP_GRACE)))
    finally:
        settling.cancel()
        await asyncio.gather(settling, return_exceptions=True)


async def _settle_all(tasks: TaskWorker, observe: Observer) -> None:
    if tasks.may_hold_more:  # asked for once: a store that is away does not hold up the end
        await _settle_round(tasks, observe)
    while not tasks.is_idle:
        await _settle_round(tasks, observe)


async def _settle_round(tasks: TaskWorker, observe: Observer) -> None:
    tasks.wake.clear()
    try:
        delay = await tasks.run_once()
    except Exception as error:
        delay = timedelta(seconds=1)
        observe(LoopFailed("worker", error, delay))
    if not tasks.is_idle:
        waking = asyncio.create_task(tasks.wake.wait())
        await wait_for_any(waking, at_most=min(delay, LOOK_AGAIN))  # someone may ask for a cancel
        waking.cancel()
