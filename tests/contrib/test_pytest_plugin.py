"""The pytest plugin, used as its users use it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.scenario import Scenario, time_of
from worlds import seldom_looks

__all__ = ["seldom_looks"]

pytest_plugins = ["pytester"]

shop = rota.App()
shop.schedule("report", task_type="report", cron="30 2 * * *", timezone="Europe/Paris")


@shop.task("report")
async def report() -> str:
    return "written"


@shop.task("charge", max_retries=1)
async def charge(amount: int) -> str:
    if amount < 0:
        raise rota.PermanentError("nothing to charge")
    return f"charged {amount}"


@pytest.mark.rota(shop, start="2026-03-27T23:00:00Z")
async def test_a_schedule_across_the_change_of_clocks(rota_scenario: Scenario) -> None:
    await rota_scenario.run_until("2026-03-30T01:00:00Z")
    times = ["2026-03-28 02:30", "2026-03-29 03:00", "2026-03-30 02:30"]
    await rota_scenario.assert_ran("report", at=times)
    await rota_scenario.assert_nothing_is_left()
    with pytest.raises(AssertionError, match="report was to run at 2026-03-28 02:30:00 CET, and it ran at"):
        await rota_scenario.assert_ran("report", at=times[:1])


@pytest.mark.rota(shop)
async def test_tasks_run_until_nothing_is_due(rota_scenario: Scenario, rota_queue: rota.Queue) -> None:
    paid = await rota_queue.submit("charge", {"amount": 5})
    wrong = await rota_queue.submit("charge", {"amount": -5})
    later = await rota_queue.submit(
        "charge", {"amount": 6}, schedule_at=rota_scenario.now + timedelta(hours=1)
    )
    await rota_scenario.run_until_idle()
    await rota_scenario.assert_completed(paid, output="charged 5")
    await rota_scenario.assert_failed(wrong, because="nothing to charge")
    assert await rota_scenario.assert_submitted("charge", {"amount": 5}) == await rota_queue.get(paid.id)
    with pytest.raises(AssertionError, match=r"these tasks have not ended: charge \(pending\)"):
        await rota_scenario.assert_nothing_is_left()
    with pytest.raises(AssertionError, match="charge was to be completed, and it is pending"):
        await rota_scenario.assert_completed(later)
    await rota_scenario.run_for(timedelta(hours=1))
    await rota_scenario.assert_completed(later)
    with pytest.raises(AssertionError, match="no mail was submitted"):
        await rota_scenario.assert_submitted("mail")


@pytest.mark.rota(shop, start=datetime(2026, 3, 1, tzinfo=UTC))
async def test_a_time_that_was_skipped(rota_scenario: Scenario) -> None:
    await rota_scenario.queue.submit("charge", {"amount": 1})
    await rota_scenario.run_until_idle()
    for day in (1, 2):
        await rota_scenario.queue.now()
        await rota_scenario.run_until(datetime(2026, 3, day, 1, 30, tzinfo=UTC))
    await rota_scenario.assert_ran("report", at=["2026-03-01 02:30", "2026-03-02 02:30"])


def test_a_test_that_is_not_async_has_a_queue_too(rota_queue: rota.Queue) -> None:
    assert rota_queue.tenant == "default"


@pytest.mark.parametrize("text", ["soon", "2026-13-01"])
def test_a_time_must_be_one(text: str) -> None:
    with pytest.raises(rota.Invalid, match="write it as 2026-03-29 03:00"):
        time_of(text)


def test_the_plugin_is_off_unless_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_of_rota_is_imported():
            assert not [name for name in sys.modules if name.startswith("rota.") and name != "rota.pytest_plugin"]
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-q")
    result.assert_outcomes(passed=1)
