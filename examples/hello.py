import asyncio
from datetime import UTC, datetime

import rota

app = rota.App()


@app.task(
    max_retries=5, cron="30 1 * * *", timezone="Europe/London",
    input={"name": "London"}, start_at=datetime(2030, 3, 30, tzinfo=UTC),
)  # fmt: skip
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with app.connect("sqlite:///hello.db") as queue, asyncio.TaskGroup() as group:
        worker = rota.Worker(queue, app)
        group.create_task(worker.run())
        sent = await greet.submit("Ada")
        print(await sent.result())
        for time in await queue.preview("greet", 3):
            print(f"{time.local:%a %d %b %H:%M %Z}", time.dst or "as usual")
        worker.stop()


asyncio.run(main())
