"""One task that starts many, and goes on when they have ended, without holding a slot meanwhile.

Handlers run at least once, so this one must bear being run again: the parts have idempotency keys, so that a
second attempt submits none of them twice.

prints

    9 words in 3 pages
"""

import asyncio

import rota

app = rota.App()
PAGES = {"one": "the first page", "two": "then the second", "three": "and the third"}


@app.task("count_words")
async def count_words(page: str) -> int:
    return len(PAGES[page].split())


@app.task("count_book", max_retries=5)
async def count_book(pages: list[str], context: rota.Context) -> str:
    parts = [
        await context.queue.submit(
            "count_words", {"page": page}, idempotency_key=f"{context.task.id}/{page}", tags=["part"]
        )
        for page in pages
    ]
    if any(part.is_live for part in parts):
        raise rota.RescheduleError("waiting for the parts", delay_seconds=0.1)  # counted apart from retries
    if failed := [part.id for part in parts if part.status is not rota.TaskStatus.COMPLETED]:
        raise rota.PermanentError(f"these parts did not complete: {failed}")
    return f"{sum(part.output for part in parts)} words in {len(parts)} pages"


async def main() -> None:
    async with rota.connect("memory:") as queue, asyncio.TaskGroup() as group:
        worker = rota.Worker(queue, app, concurrency=2)
        group.create_task(worker.run())
        book = await queue.submit("count_book", {"pages": list(PAGES)})
        print((await queue.wait(book.id, timeout=30)).output)
        worker.stop()


if __name__ == "__main__":
    asyncio.run(main())
