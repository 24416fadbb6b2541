"""Testing a schedule without waiting for it: the night on which London's clocks change passes in milliseconds.

pytest test_in_virtual_time.py
"""

import pytest

import rota
from rota import testing
from rota.scenario import Scenario

app = rota.App()


@app.task("backup", cron="30 1 * * *", timezone="Europe/London")
async def backup() -> str:
    return "saved"


@pytest.mark.rota(app, start="2026-03-27T12:00:00Z")
async def test_a_backup_in_the_hour_that_does_not_exist(rota_scenario: Scenario) -> None:
    await rota_scenario.run_until("2026-03-30T12:00:00Z")  # at once, in real time
    times = ["2026-03-28 01:30", "2026-03-29 02:00", "2026-03-30 01:30"]  # on London's clock
    await rota_scenario.assert_ran("backup", at=times)


@pytest.mark.rota(app, start="2026-06-05T12:00:00Z")
async def test_a_weekend_without_a_scheduler_is_recorded(rota_scenario: Scenario) -> None:
    await testing.advance("60h")
    await rota_scenario.run_until_idle()
    for day in ("2026-06-06 01:30", "2026-06-07 01:30"):
        await rota_scenario.assert_skipped("backup", at=day, reason="missed")
