import asyncio
from datetime import UTC, datetime

import rota

app = rota.App()
app.schedule(
    "nightly", task_type="greet", cron="30 1 * * *", timezone="Europe/London",
    input={"name": "London"}, start_at=datetime(2030, 3, 30, tzinfo=UTC),
)  # fmt: skip


@app.task("greet", max_retries=5)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with rota.connect("sqlite:///hello.db") as queue, asyncio.TaskGroup() as group:
        worker = rota.Worker(queue, app)
        group.create_task(worker.run())
        task = await queue.submit("greet", {"name": "Ada"})
        print((await queue.wait(task.id)).output)
        for time in await queue.preview("nightly", 3):
            print(f"{time.local:%a %d %b %H:%M %Z}", time.dst or "as usual")
        worker.stop()


asyncio.run(main())
