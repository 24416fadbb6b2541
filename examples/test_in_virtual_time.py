"""Testing a schedule without waiting for it: the night on which London's clocks change passes in milliseconds.

pytest test_in_virtual_time.py
"""

from datetime import UTC, datetime, timedelta

import rota
from rota import testing
from rota.testing import LoopClock

app = rota.App()


@app.task("backup")
async def backup() -> str:
    return "saved"


app.schedule("backup", task_type="backup", cron="30 1 * * *", timezone="Europe/London")


def test_a_backup_in_the_hour_that_does_not_exist() -> None:
    async def main(clock: LoopClock) -> None:
        async with rota.connect("memory:", clock=clock) as queue:
            await queue.declare_schedules(app)
            worker = rota.Worker(queue, app)
            for _ in range(3):
                schedule = await queue.get_schedule("backup")
                assert schedule.next_run_at is not None
                await testing.sleep_until(schedule.next_run_at)  # at once, in real time
                await worker.run_once()
            runs = await queue.runs("backup")
            assert [run.scheduled_at for run in reversed(runs)] == [
                datetime(2026, 3, 28, 1, 30, tzinfo=UTC),
                datetime(2026, 3, 29, 1, 0, tzinfo=UTC),  # 02:00 BST: 01:30 did not exist
                datetime(2026, 3, 30, 0, 30, tzinfo=UTC),  # 01:30 BST
            ]
            assert {run.status for run in runs} == {rota.RunStatus.COMPLETED}

    testing.run(main, start=datetime(2026, 3, 27, 12, tzinfo=UTC))


def test_a_weekend_without_a_scheduler_is_recorded() -> None:
    async def main(clock: LoopClock) -> None:
        async with rota.connect("memory:", clock=clock) as queue:
            await queue.declare_schedules(app)
            await testing.advance(timedelta(days=2, hours=12))
            runs = await queue.run_due()
            assert [(run.status, run.reason) for run in runs] == [("skipped", "missed")] * 2
            why = await queue.why("backup", datetime(2026, 6, 6, 1, 30))  # on London's clock
            assert why.status == "skipped"
            assert "no scheduler was there" in why

    testing.run(main, start=datetime(2026, 6, 5, 12, tzinfo=UTC))
