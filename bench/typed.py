"""Typed: what annotations cost. Calls no-op handlers as a worker does, once without annotations and once with them:
arguments from the input, the call, the result as JSON. Stated in microseconds of processor time per call, the best of
many short rounds: what else the machine does only ever makes it slower.

The typed one has a number, a date, a list of texts and a context, and returns a number; "records" has a dataclass in
and out, to show what decoding more costs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import measure
import rota
from rota.domain.checks import check_input
from rota.domain.model import Limits
from rota.engine.executor import context_outside
from rota.engine.handlers.functions import Handler

app = rota.App()
LIMITS = Limits()
INPUT = {"number": 1, "day": "2026-01-31", "to": ["ada@example.com", "grace@example.com"]}


@dataclass
class Order:
    number: int
    day: date
    to: list[str]


@app.task
async def untyped(number, day, to, context):  # type: ignore[no-untyped-def]  # the point of comparison
    return number


@app.task
async def typed(number: int, day: date, to: list[str], *, ctx: rota.Context) -> int:
    return number


@app.task
async def records(input: Order, ctx: rota.Context) -> Order:
    return input


async def called(handler: Handler, context: Any) -> Any:
    args, kwargs = handler.signature.arguments(INPUT, context)
    output = await handler.function(*args, **kwargs)
    return check_input(handler.signature.encoded_output(output), LIMITS, "output")


def cost(kind: str, calls: int) -> Callable[[Path], float]:
    handler, context = app.handlers[kind], context_outside(kind, None)

    async def every() -> None:
        for _ in range(calls):
            await called(handler, context)

    def run(place: Path) -> float:
        began = time.process_time()
        asyncio.run(every())
        return (time.process_time() - began) / calls * 1_000_000

    return run


def main() -> None:
    asked = measure.arguments(__doc__, calls=2_000, rounds=40)
    contestants = {kind: cost(kind, asked.calls) for kind in app.handlers}
    seen = measure.side_by_side(asked.rounds, contestants, asked.folder)
    best = {name: round(min(values), 2) for name, values in seen.items()}
    more = round(best["typed"] - best["untyped"], 2)
    results = {
        "microseconds_per_call": best,
        "typed_more": more,
        "records_more": round(best["records"] - best["untyped"], 2),
        "sizes": {"calls": asked.calls, "rounds": asked.rounds},
    }
    measure.report("typed", results, {"typed <= untyped + 3 us": more <= 3}, asked.folder)


if __name__ == "__main__":
    main()
