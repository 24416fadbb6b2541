"""Plans: how long `plan` and `apply` take for a file of many schedules, on SQLite and on PostgreSQL.

Three plans and applies of each store: everything is new; every cron line is changed, and the holidays that half of them
leave out; nothing is left to do. The plan that is shown is made beside it: the times of its first hundred changes.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import measure
import postgres_rig
from rota import Queue, connect
from rota.surfaces import plans

AIM = 5.0
ZONES = ("UTC", "Europe/London", "America/New_York", "Asia/Tokyo")


def declared(number: int, hour: int, day: str) -> dict[str, Any]:
    return {
        "calendars": {"free": {"days": [day]}},
        "templates": {"backup": {"kind": "backup"}},
        "schedules": {
            f"bench-{each:06}": {
                "template": "backup",
                "cron": f"{each % 60} {hour} * * *",
                "timezone": ZONES[each % len(ZONES)],
                "jitter": "5m",
                "exclude": ["free"] if each % 2 else [],
            }
            for each in range(number)
        },
    }


class Laps:
    """Seconds since the last lap: of the clock, and of the processor, which other work on the machine leaves alone."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self._last = time.perf_counter(), time.process_time()

    def lap(self, name: str) -> None:
        now = time.perf_counter(), time.process_time()
        self.found |= {
            f"{name}_s": round(now[0] - self._last[0], 2),
            f"{name}_cpu_s": round(now[1] - self._last[1], 2),
        }
        self._last = now


async def timed(queue: Queue, document: dict[str, Any]) -> dict[str, float]:
    laps = Laps()
    plan = await queue.plan(document)
    laps.lap("plan")
    plans.answer(plan)
    list(plans.lines(plan, prune=False))
    laps.lap("shown")
    await queue.apply(document, plan)
    laps.lap("apply")
    return laps.found


async def on_store(address: str, number: int) -> dict[str, Any]:
    async with connect(address) as queue:
        await queue.set_limits(queue.tenant, schedules=10 * number)
        first, second = declared(number, 9, "2030-01-01"), declared(number, 10, "2030-01-02")
        steps = {"created": first, "changed": second, "unchanged": second}
        return {name: await timed(queue, document) for name, document in steps.items()}


def main() -> None:
    options = measure.arguments(__doc__, schedules=10_000)
    with measure.folder(options.folder) as folder:
        found = {"sqlite": asyncio.run(on_store(f"sqlite:///{folder / 'rota.db'}", options.schedules))}
    with postgres_rig.server(options.folder) as server:

        async def on_postgres() -> dict[str, Any]:
            return await on_store(await postgres_rig.database(server, "plans"), options.schedules)

        found["postgres"] = asyncio.run(on_postgres())
    aims = {
        f"{store} {step} {part}": took <= AIM
        for store, steps in found.items()
        for step, parts in steps.items()
        for part, took in parts.items()
        if not part.endswith("_cpu_s")
    }
    measure.report("plans", {"schedules": options.schedules, **found}, aims, options.folder)


if __name__ == "__main__":
    main()
