"""Pictures of every page of the dashboard, in both themes and two widths, to be looked at; and the two of the docs.

    make screenshots     # build/screenshots/*.png, and the two of docs/

It needs Debian's chromium (`apt-get install chromium`)."""

from __future__ import annotations

import sys
from datetime import timedelta
from math import pi, sin
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

from rota import Queue
from rota.domain.ids import derived_id
from rota.domain.model import Task, TaskStatus
from rota.stores.base import Tx

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from dashboard_world import furnish  # noqa: E402  the path is made above
from served import Served, serving  # noqa: E402

WIDTHS = (1240, 360)
FOLDER = ROOT / "build" / "screenshots"
ZONE = "Europe/Berlin"
OWNER = "key:Ada Morgan"
OF_DOCS = {"schedules": "light", "schedule": "dark"}
"""Pages in docs/, and their theme."""


def pages(served: Served) -> dict[str, str]:
    """Every page, by the name of its picture."""

    def newest(**filters: Any) -> str:
        return str(served.call(lambda queue: queue.list(limit=1, **filters))[0].id)

    busiest = served.call(lambda queue: queue.forecast()).busiest[0]
    nine = busiest.at.strftime("%Y-%m-%dT%H:%MZ")
    failed = newest(status="failed", workflow=False)
    events = served.call(lambda queue: queue.schedule_history("daily-report"))
    versions = [event.after["version"] for event in events if event.after]
    waiting, broken = newest(workflow=True, status="pending"), newest(workflow=True, status="failed")
    return {
        "overview": "/ui/default",
        "schedules": "/ui/default/schedules",
        "schedules-empty": "/ui/default/schedules?text=nothing-like-this",
        "schedule": "/ui/default/schedules/sync-orders",
        "schedule-daily": "/ui/default/schedules/daily-report",
        "schedule-runs": "/ui/default/schedules/sync-orders/runs",
        "schedule-versions": "/ui/default/schedules/daily-report/versions",
        "schedule-pause": "/ui/default/schedules/daily-report/pause",
        "schedule-trigger": "/ui/default/schedules/daily-report/trigger",
        "tasks": "/ui/default/tasks",
        "task": f"/ui/default/tasks/{failed}",
        "task-replay": f"/ui/default/tasks/{failed}/replay",
        "workflows": "/ui/default/workflows",
        "workflow": f"/ui/default/tasks/{waiting}",
        "workflow-failed": f"/ui/default/tasks/{broken}?step=charge",
        "workflow-signal": f"/ui/default/tasks/{waiting}/signal",
        "nodes": "/ui/default/nodes",
        "node": "/ui/default/nodes/worker-a",
        "queues": "/ui/default/queues",
        "queue-pause": "/ui/default/queues/default/pause",
        "alarms": "/ui/default/alarms?over=1",
        "schedule-compare": f"/ui/default/schedules/daily-report/versions?old={versions[0]}&new={versions[-1]}",
        "schedule-put-back": "/ui/default/schedules/daily-report/put-back?version=1",
        "empty-nodes": "/ui/nobody/nodes",
        "new": "/ui/default/new",
        "edit": "/ui/default/schedules/daily-report/edit?type=cron&when=30+1+*+*+0&timezone=Europe/London",
        "schedule-after": "/ui/default/schedules/archive-orders",
        "edit-after": "/ui/default/schedules/archive-orders/edit",
        "backfill": "/ui/default/schedules/nightly-backup/backfill",
        "forecast": "/ui/default/forecast?zone=Europe/Berlin",
        "forecast-hour": f"/ui/default/forecast/hour?at={nine}&zone=Europe/Berlin",
        "forecast-spread": f"/ui/default/forecast/spread?at={nine}&over=10&zone=Europe/Berlin",
        "empty-forecast": "/ui/nobody/forecast?zone=Europe/Berlin",
        "calendars": "/ui/default/calendars",
        "calendar": "/ui/default/calendars/closing-days",
        "calendar-edit": "/ui/default/calendars/closing-days/edit",
        "empty-calendars": "/ui/nobody/calendars",
        "tenants": "/ui/default/tenants",
        "tenant-limits": "/ui/default/tenants/default/limits",
        "keys": "/ui/default/keys",
        "audit": "/ui/default/audit",
        "sign-in": "/sign-in",
        "not-found": "/ui/default/schedules/no-such-schedule",
        "empty": "/ui/nobody/schedules",
        "empty-overview": "/ui/nobody",
    }


async def busy(queue: Queue) -> None:
    """A day with its hours: quiet at night, and behind for a while in the afternoon."""
    now = await queue.now()

    async def work(tx: Tx) -> None:
        for minute in range(24 * 60):
            at = now - timedelta(minutes=minute, seconds=7)
            number = 1 + int(3 * (1 + sin((at.hour - 8) / 24 * 2 * pi)))
            behind = timedelta(seconds=0.2 + (90 if at.hour in (14, 15) else 0))
            for each in range(number if minute % 2 else 0):
                tx.put(
                    Task(
                        id=derived_id("busy", str(minute), str(each)), kind="resize", status=TaskStatus.COMPLETED,
                        created_at=at, available_at=at, updated_at=at + behind, started_at=at + behind,
                        completed_at=at + behind, attempt=1, scheduled_at=at,
                    )
                )  # fmt: skip

    await queue.store.transact(work)


def main(only: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory() as folder,
        serving(f"sqlite:///{folder}/shop.db", actor=OWNER) as served,
        sync_playwright() as play,
    ):
        served.call(furnish)
        served.call(busy)
        places = pages(served)
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, theme in OF_DOCS.items():
            view = {"width": 1000, "height": 620}
            page = browser.new_page(viewport=view, color_scheme=theme, timezone_id=ZONE)  # type: ignore[arg-type]
            page.goto(served.url + places[name])
            page.wait_for_selector("#live[data-state=live]")
            page.screenshot(path=ROOT / "docs" / f"dashboard-{name}.png")
        for theme in ("light", "dark"):
            for width in WIDTHS:
                context = browser.new_context(
                    viewport={"width": width, "height": 800},
                    color_scheme=theme,  # type: ignore[arg-type]  # one of the two words
                    timezone_id=ZONE,
                )
                page = context.new_page()
                for name, place in places.items():
                    if only and name not in only:
                        continue
                    page.goto(served.url + place)
                    page.screenshot(path=FOLDER / f"{name}-{width}-{theme}.png", full_page=True)
                context.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
