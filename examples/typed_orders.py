"""Handlers as typed functions: checked when they are submitted, given a database by type, submitted once.

    rota up typed_orders:app        # keeps running; Ctrl-C stops it
    python typed_orders.py          # submits orders, and works on them until their results are there

prints

    invoice 1 for 2 x tea: 5.00
    the same order again: the same task
    totals: 2.50, 7.50
    refused: input.order.amount: expected a whole number, got 'many'
    failed: ship failed: PermanentError: coffee is sold out
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

import rota

app = rota.App()


@dataclass
class Order:
    article: str
    amount: int


@dataclass
class Invoice:
    number: int
    order: Order
    total: Decimal
    due: date


class Prices:
    """Stands in for a database."""

    def __init__(self) -> None:
        self.known = {"tea": Decimal("2.50")}
        self.last_number = 0


@asynccontextmanager
async def open_prices() -> AsyncIterator[Prices]:
    yield Prices()  # made when the first handler asks for it, and left when the worker stops


app.provide(Prices, open_prices)


@app.task(max_retries=5, timeout="30s", unique_for=timedelta(hours=1))
async def invoice(order: Order, day: date, *, prices: Prices = rota.injected) -> Invoice:
    prices.last_number += 1
    total = prices.known[order.article] * order.amount
    return Invoice(prices.last_number, order, total, due=day + timedelta(days=14))


@app.task
def total(order: Order, prices: Prices = rota.injected) -> Decimal:  # not async: it runs in a thread
    return prices.known[order.article] * order.amount


@app.task
async def ship(order: Order, ctx: rota.Context = rota.injected) -> None:
    raise rota.PermanentError(f"{order.article} is sold out")


@app.task(cron="0 6 * * *", timezone="Europe/London", input={"keep": 30})  # a schedule of its own
def forget_old_orders(keep: int) -> int:
    return keep


async def main() -> None:
    async with app.connect("memory:") as queue, asyncio.TaskGroup() as group:
        worker = rota.Worker(queue, app)
        group.create_task(worker.run())
        sent = await invoice.submit(Order("tea", 2), day=date(2026, 11, 17))
        made = await sent.result(timeout="1m")  # an Invoice, also to a type checker
        print(f"invoice {made.number} for {made.order.amount} x {made.order.article}: {made.total}")

        again = await invoice.submit(Order("tea", 2), day=date(2026, 11, 17))
        print("the same order again:", "the same task" if again.id == sent.id else "another task")

        totals = await total.options(priority=200).map([Order("tea", 1), Order("tea", 3)])
        print("totals:", ", ".join([str(await each.result()) for each in totals]))

        try:  # whoever submits by name is checked, too
            await queue.submit("ship", {"order": {"article": "tea", "amount": "many"}})
        except rota.Invalid as refused:
            print("refused:", refused)
        try:
            await (await ship.submit(Order("coffee", 1))).result()
        except rota.TaskFailed as failed:  # with the traceback of the worker
            print("failed:", str(failed).partition(" (task")[0])
        worker.stop()


if __name__ == "__main__":
    asyncio.run(main())
