import asyncio

import rota

app = rota.App()


@app.task(max_retries=5)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@app.task(interval="1s", max_runs=3)
async def beat() -> None: ...


async def main() -> None:
    async with app.connect("sqlite:///hello.db") as queue, rota.Worker(queue, app):
        sent = await greet.submit("Ada")
        print(await sent.result())
        while len(runs := await queue.runs("beat", status="completed")) < 3:
            await asyncio.sleep(0.2)
        for run in runs:
            print("beat", run.trigger, run.status)


if __name__ == "__main__":
    asyncio.run(main())
