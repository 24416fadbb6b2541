"""A download that fails twice, is tried again with backoff, and says how far it is.

prints

    completed after 3 attempts: 4 parts
    attempt 1: begun
    attempt 2: begun
    attempt 3: begun
    pending  retry 1 of 5: ConnectionError: the other side hung up
    pending  retry 2 of 5: ConnectionError: the other side hung up
"""

import asyncio
from datetime import timedelta

import rota

app = rota.App()
soon = rota.RetryPolicy(initial=timedelta(milliseconds=50), multiplier=2, maximum=timedelta(seconds=10))


@app.task("download", max_retries=5, retry_policy=soon, timeout=timedelta(minutes=5))
async def download(url: str, parts: int, context: rota.Context) -> str:
    context.log("begun")
    if not url.startswith("https://"):
        raise rota.PermanentError(f"{url} is not https")  # trying again cannot help
    for part in range(parts):
        if context.attempt < 3 and part == 2:
            raise ConnectionError("the other side hung up")  # any exception is tried again
        context.progress((part + 1) / parts, f"part {part + 1}")
        await asyncio.sleep(0.01)
    return f"{parts} parts"


async def main() -> None:
    async with rota.connect("memory:") as queue, asyncio.TaskGroup() as group:
        worker = rota.Worker(queue, app)
        group.create_task(worker.run())
        task = await queue.submit("download", {"url": "https://example.org/a", "parts": 4})
        done = await queue.wait(task.id, timeout=30)
        print(f"{done.status} after {done.attempt} attempts: {done.output}")
        for line in done.logs:
            print(f"attempt {line.attempt}: {line.message}")
        for change in done.history:
            if change.type is rota.ChangeType.RETRIED:
                print(f"{change.status}  retry {change.retry} of {change.max_retries}: {change.reason}")
        worker.stop()


if __name__ == "__main__":
    asyncio.run(main())
