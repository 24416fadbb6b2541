"""A scenario: an app on a store in memory, in virtual time, and what is to become of it, in sentences.

    @pytest.mark.rota(app, start="2026-03-28T00:00:00Z")
    async def test_the_report_survives_the_change_of_clocks(rota_scenario: rota.scenario.Scenario) -> None:
        await rota_scenario.run_until("2026-03-31T00:00:00Z")
        await rota_scenario.assert_ran("report", at=["2026-03-28 02:30", "2026-03-29 03:00", "2026-03-30 02:30"])

`pytest_plugin` makes one for a test. Without pytest, `open_scenario` does, inside of `rota.testing.run`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from .domain.errors import Invalid
from .domain.model import LIVE, Run, RunStatus, Task, TaskStatus
from .engine.clock import aware
from .engine.node import Worker
from .surfaces.python.app import App
from .surfaces.python.client import Queue
from .testing import sleep_until, virtual_loop

__all__ = ["Scenario", "open_scenario", "time_of"]

MOST = 10_000
_RAN = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.RUNNING, RunStatus.CANCELLED)


@asynccontextmanager
async def open_scenario(app: App | None = None) -> AsyncIterator[Scenario]:
    """A scenario on the running loop. The schedules of the app are declared."""
    chosen = app or App()
    async with chosen.connect("memory:", clock=virtual_loop().clock) as queue:
        await queue.declare_schedules(chosen)
        yield Scenario(queue, chosen)


class Scenario:
    """`queue` and `worker` are ordinary ones. Nothing runs by itself: `run_until` and `run_until_idle` let it."""

    def __init__(self, queue: Queue, app: App) -> None:
        self.queue = queue
        self.app = app
        self.worker = Worker(queue, app, janitor=False)

    @property
    def now(self) -> datetime:
        return virtual_loop().clock.now()

    async def run_until_idle(self) -> timedelta:
        """Fire and run whatever is due now. Returns how long nothing will be."""
        while (delay := await self.worker.run_once()) <= timedelta(0):
            pass
        return delay

    async def run_until(self, when: datetime | str) -> None:
        """Let time pass until then. Whatever falls due on the way is fired and run, the last moment included."""
        end = time_of(when)
        while True:
            delay = await self.run_until_idle()
            if self.now >= end:
                return
            await sleep_until(min(self.now + delay, end))

    async def run_for(self, span: timedelta) -> None:
        await self.run_until(self.now + span)

    async def assert_ran(self, schedule_id: str, *, at: Sequence[datetime | str]) -> None:
        """The schedule ran at these times, and at no others. A time without a zone is on the schedule's own clock."""
        schedule = await self.queue.get_schedule(schedule_id)
        zone = ZoneInfo(schedule.timezone)
        ran = [run.scheduled_at for run in await self._runs(schedule_id) if run.status in _RAN]
        expected = [time_of(each, zone) for each in at]
        assert ran == expected, (
            f"{schedule_id} was to run at {_times(expected, zone)}, and it ran at {_times(ran, zone)}"
        )

    async def assert_skipped(self, schedule_id: str, *, at: datetime | str, reason: str = "") -> None:
        """The schedule was expected at this time, and did not run; for this reason, if one is given."""
        schedule = await self.queue.get_schedule(schedule_id)
        answer = await self.queue.why(schedule_id, time_of(at, ZoneInfo(schedule.timezone)))
        run = answer.run
        assert run is not None, f"{schedule_id} was not skipped: {answer}"
        assert run.status is RunStatus.SKIPPED, f"{schedule_id} was not skipped: {answer}"
        assert reason in ("", str(run.reason)), f"{schedule_id} was skipped because of {run.reason}: {answer}"

    async def assert_submitted(self, kind: str, input: Any = None) -> Task:
        """A task of this kind, with this input if one is given, was submitted. It is returned."""
        found = await self.queue.list(kind=kind, limit=MOST)
        fitting = [task for task in found if input is None or task.input == input]
        inputs = [task.input for task in found]
        assert fitting, f"no {kind} was submitted with {input!r}; submitted were {inputs or 'none'}"
        return fitting[0]

    async def assert_completed(self, task: Task | str, *, output: Any = ...) -> Task:
        """The task has completed, with this output if one is given."""
        ended = await self._ended(task, TaskStatus.COMPLETED)
        assert output in (..., ended.output), f"{ended.kind} gave {ended.output!r}, and not {output!r}"
        return ended

    async def assert_failed(self, task: Task | str, *, because: str = "") -> Task:
        """The task has failed, and its error has these words."""
        ended = await self._ended(task, TaskStatus.FAILED)
        assert because in str(ended.error), f"{ended.kind} failed because of {ended.error}"
        return ended

    async def assert_nothing_is_left(self) -> None:
        """No task is pending or running."""
        left = [task for task in await self.queue.list(limit=MOST) if task.status in LIVE]
        names = ", ".join(f"{task.kind} ({task.status})" for task in left)
        assert not left, f"these tasks have not ended: {names}"

    async def _ended(self, task: Task | str, status: TaskStatus) -> Task:
        found = await self.queue.get(task if isinstance(task, str) else task.id)
        detail = f": {found.error}" if found.error else ""
        assert found.status is status, f"{found.kind} was to be {status}, and it is {found.status}{detail}"
        return found

    async def _runs(self, schedule_id: str) -> list[Run]:
        return list(reversed(await self.queue.runs(schedule_id, limit=MOST)))


def time_of(when: object, zone: ZoneInfo | None = None) -> datetime:
    """A time, given as one or as text; without a zone it is on this clock, or else on the local one."""
    try:
        at = when if isinstance(when, datetime) else datetime.fromisoformat(str(when))
    except ValueError:
        raise Invalid("time", f"{when!r:.60} is not a time", "write it as 2026-03-29 03:00") from None
    return aware(at if zone is None or at.tzinfo is not None else at.replace(tzinfo=zone))


def _times(times: Sequence[datetime], zone: ZoneInfo) -> str:
    return ", ".join(at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z") for at in times) or "no time"
