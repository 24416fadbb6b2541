"""When, as it is given to the calls: one of six ways, several at once, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rota
from rota import Cron, DayMatch, DstFold, DstGap, Interval, Invalid, Once, RRule, Several
from rota.domain.recurrence import check, next_after

PARIS, TOKYO = "Europe/Paris", "Asia/Tokyo"


async def test_a_zone_in_the_line() -> None:
    async with rota.connect("memory://") as queue:
        made = await queue.create_schedule("a", task_type="work", cron=f"CRON_TZ={PARIS} 0 9 * * MON-SUN")
        assert made.timing == Cron("0 9 * * MON-SUN", PARIS)
        same = await queue.create_schedule(
            "b", task_type="work", cron=f"TZ={PARIS} 0 9 * * *", timezone=PARIS
        )
        assert same.timezone == PARIS
        with pytest.raises(Invalid, match="timezone: 'UTC' is not the zone that the cron line begins with"):
            await queue.create_schedule("c", task_type="work", cron=f"TZ={PARIS} 0 9 * * *", timezone="UTC")
        moved = await queue.update_schedule("a", cron=f"TZ={TOKYO} 0 9 * * *")
        assert moved.timing == Cron("0 9 * * *", TOKYO)


async def test_choices_are_kept_until_they_are_changed() -> None:
    async with rota.connect("memory://") as queue:
        made = await queue.create_schedule(
            "a", task_type="work", cron="30 2 1 * MON", timezone=PARIS, day_match="and", dst_gap="skip"
        )
        assert made.timing == Cron("30 2 1 * MON", PARIS, DayMatch.AND, DstGap.SKIP)
        other = await queue.update_schedule("a", cron="30 2 2 * MON")
        assert other.timing == Cron("30 2 2 * MON", PARIS, DayMatch.AND, DstGap.SKIP)
        chosen = await queue.update_schedule("a", dst_fold="both", dst_gap=None)
        assert chosen.timing == Cron("30 2 2 * MON", PARIS, DayMatch.AND, None, DstFold.BOTH)
        assert (await queue.update_schedule("a", interval=60)).timing.__class__ is Interval
        with pytest.raises(Invalid, match="dst_gap: this schedule's timing has no zone"):
            await queue.update_schedule("a", dst_gap="skip")


async def test_several() -> None:
    async with rota.connect("memory://") as queue:
        made = await queue.create_schedule(
            "a",
            task_type="work",
            timings=[
                f"TZ={TOKYO} 0 9 * * 1-5",
                {"cron": "0 9 * * *"},
                "6h",
                Cron("@daily"),
                "FREQ=DAILY;BYHOUR=7",
            ],
            timezone=PARIS,
            dst_fold="both",
        )
        assert isinstance(made.timing, Several)
        first, second, third, fourth, fifth = made.timing.timings
        assert first == Cron("0 9 * * 1-5", TOKYO, dst_fold=DstFold.BOTH)
        assert second == Cron("0 9 * * *", PARIS, dst_fold=DstFold.BOTH)
        assert isinstance(third, Interval)
        assert third.anchor is not None
        assert fourth == Cron("@daily"), "a timing is taken as it is"
        assert getattr(fifth, "timezone", "") == PARIS
        assert made.next_run_at == next_after(made.timing, made.created_at)
        again = await queue.update_schedule("a", description="the same times")
        assert again.timing == made.timing
        alone = await queue.update_schedule("a", cron="0 8 * * *")
        assert alone.timing == Cron("0 8 * * *")


async def test_two_that_coincide_are_one_row() -> None:
    async with rota.connect("memory://") as queue:
        at = datetime(2100, 1, 1, 9, tzinfo=UTC)
        made = await queue.create_schedule(
            "a", task_type="work", timings=["0 9 1 1 *", Once(at), "TZ=Asia/Tokyo 0 18 1 1 *"], start_at=at
        )
        assert made.next_run_at == at
        [first, second] = await queue.preview("a", 2)
        assert (first.at, second.at) == (at, at.replace(year=2101))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"timings": []}, "timings: there are 0; accepted are 1 to 20"),
        ({"timings": "0 9 * * *"}, "timings: '0 9 [*] [*] [*]' is not a list"),
        ({"timings": [5]}, r"timings\[0\]: 5 is not a timing"),
        ({"timings": ["0 9 * * *", "61 * * * *"]}, r"timings\[1\]\.cron: minute field '61' is out of range"),
        (
            {"timings": ["TZ=Mars/Base 0 9 * * *"]},
            r"timings\[0\]\.timezone: 'Mars/Base' is not a known time zone",
        ),
        ({"timings": ["2020-01-01"]}, r"timings\[0\]\.run_at: .* has passed"),
        ({"timings": ["2026-99-01"]}, "run_at: '2026-99-01' is not a time"),
        ({"timings": [{"cron": "@daily", "max_runs": 3}]}, "max_runs: it is for the schedule, not for one"),
        ({"timings": ["@daily"], "cron": "@daily"}, "it was given together with cron"),
        ({"interval": 60, "dst_gap": "skip"}, "dst_gap: this timing has no use for it"),
        ({"cron": "@daily", "day_match": "xor"}, "day_match: .*xor"),
        ({"cron": "@daily", "dst_fold": "third"}, "dst_fold: .*third"),
    ],
)
async def test_what_is_refused(options: dict[str, Any], sentence: str) -> None:
    async with rota.connect("memory://") as queue:
        with pytest.raises(Invalid, match=sentence):
            await queue.create_schedule("a", task_type="work", **options)
        assert not await queue.list_schedules()


async def test_a_time_that_does_not_exist_is_explained() -> None:
    """`why` about the coming spring, and what is shown before."""
    async with rota.connect("memory://") as queue:
        zone = "America/New_York"
        await queue.create_schedule("a", task_type="work", cron="30 2 * * *", timezone=zone, dst_gap="skip")
        [change] = [each for each in await queue.clock_changes("a") if each.direction == "forward"]
        assert change.runs == ()
        told = await queue.why("a", change.reading)
        assert told.status == "not_expected"
        assert "does not exist, because clocks go forward over it" in told
        assert "dst_gap is skip" in told
        await queue.update_schedule("a", dst_gap="before")
        [change] = [each for each in await queue.clock_changes("a") if each.direction == "forward"]
        assert change.runs == (change.at - timedelta(seconds=1),)
        assert "the last second before the gap" in await queue.why("a", change.runs[0])


async def test_the_one_of_two_that_is_not_run_is_explained() -> None:
    async with rota.connect("memory://") as queue:
        zone = "America/New_York"
        await queue.create_schedule(
            "a", task_type="work", cron="30 1 * * *", timezone=zone, dst_fold="second"
        )
        [change] = [each for each in await queue.clock_changes("a") if each.direction == "back"]
        [second] = change.runs
        assert "the second of the two" in await queue.why("a", second)
        assert "runs only the second time" in await queue.why("a", second - timedelta(hours=1))


def test_what_is_wrong_with_a_timing_is_told_apart_from_its_field() -> None:
    for wrong, field in (
        (Cron("61 * * * *"), "cron"),
        (Cron("0 9 * * *", "Nowhere/At_All"), "timezone"),
        (RRule("FREQ=NEVER", datetime(2027, 1, 1, tzinfo=UTC)), "rrule"),
        (Interval(timedelta(0)), "interval"),
    ):
        with pytest.raises(Invalid) as caught:
            check(wrong)
        assert caught.value.field == field
        assert str(caught.value) == f"{field}: {caught.value.problem}"
