"""A report at nine on working days, on the clock of New York, that a restart does not lose.

    rota up daily_report:app        # keeps running; Ctrl-C stops it
    python daily_report.py          # triggers it once and shows what the ledger says

prints

    report for 2026: 3 orders
    manual completed
"""

import asyncio
from datetime import timedelta

import rota

app = rota.App()
app.schedule(
    "daily-report",
    task_type="report",
    input={"year": 2026},
    cron="0 9 * * 1-5",
    timezone="America/New_York",
    missed_run_policy="execute_once",  # after an outage: the latest one, late, and no burst
    misfire_grace=timedelta(minutes=10),
    overlap_policy="skip",  # never two at a time
    ttl=timedelta(hours=8),  # a report that no worker took by evening is not wanted any more
    tags=["reports"],
)


@app.task("report", max_retries=5, timeout=timedelta(minutes=10))
def report(year: int) -> str:  # not async: it runs in a thread
    orders = ["a", "b", "c"]
    return f"report for {year}: {len(orders)} orders"


async def main() -> None:
    async with rota.connect("sqlite:///reports.db") as queue:
        await queue.declare_schedules(app)
        task = await queue.trigger_schedule("daily-report")
        await rota.Worker(queue, app).run_once()
        print((await queue.get(task.id)).output)
        run = (await queue.runs("daily-report"))[0]
        print(run.trigger, run.status)


if __name__ == "__main__":
    asyncio.run(main())
