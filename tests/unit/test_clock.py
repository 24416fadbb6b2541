import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from rota.domain.model import Task
from rota.engine import clock
from rota.engine.clock import Clock, JumpDetector, LoopClock, SystemClock, aware
from rota.stores.postgres.clock import DatabaseClock
from rota.testing import run

SECOND = timedelta(seconds=1)
EPOCH = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def become(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield become
    monkeypatch.undo()
    time.tzset()


class TestSystemClock:
    def test_it_is_now_in_utc(self) -> None:
        before = datetime.now(UTC)
        now = SystemClock().now()
        assert before <= now <= datetime.now(UTC)
        assert now.tzinfo is UTC

    def test_monotonic_never_goes_back(self) -> None:
        readings = [SystemClock().monotonic() for _ in range(100)]
        assert readings == sorted(readings)

    def test_it_is_steady(self) -> None:
        steady: Clock = SystemClock()
        assert JumpDetector(steady).observe() == timedelta(0)


class TestLoopClock:
    def test_it_follows_the_loop(self) -> None:
        async def main() -> None:
            await clock.sleep(SECOND)
            here = LoopClock(EPOCH)
            assert here.now() == EPOCH
            before = here.monotonic()
            await clock.sleep(90 * SECOND)
            assert here.now() == EPOCH + 90 * SECOND
            assert here.monotonic() - before == 90

        run(main())

    def test_it_follows_a_real_loop_too(self) -> None:
        async def main() -> None:
            here = LoopClock(EPOCH)
            await clock.sleep(timedelta(milliseconds=5))
            assert EPOCH + timedelta(milliseconds=4) < here.now() < EPOCH + 60 * SECOND

        asyncio.run(main())

    def test_skew_is_added(self) -> None:
        async def main() -> None:
            ahead, behind = LoopClock(EPOCH, 3 * SECOND), LoopClock(EPOCH, -3 * SECOND)
            await clock.sleep(SECOND)
            assert ahead.now() - behind.now() == 6 * SECOND
            assert ahead.monotonic() == behind.monotonic()

        run(main())

    def test_a_step_moves_the_wall_only(self) -> None:
        async def main() -> None:
            here = LoopClock(EPOCH)
            here.step(timedelta(hours=-2))
            assert here.now() == EPOCH - timedelta(hours=2)
            assert here.monotonic() == 0

        run(main())


class TestJumpDetector:
    @pytest.mark.parametrize("step", [timedelta(hours=8), timedelta(hours=-1), 3 * SECOND, -3 * SECOND])
    def test_a_jump_is_seen_once(self, step: timedelta) -> None:
        async def main(here: LoopClock) -> list[timedelta]:
            detector = JumpDetector(here)
            await clock.sleep(7 * SECOND)
            here.step(step)
            await clock.sleep(7 * SECOND)
            return [detector.observe(), detector.observe()]

        assert run(main) == [step, timedelta(0)]

    def test_elapsed_time_is_no_jump(self) -> None:
        async def main(here: LoopClock) -> timedelta:
            detector = JumpDetector(here, tolerance=timedelta(0))
            await clock.sleep(timedelta(days=400, microseconds=1))
            return detector.observe()

        assert run(main) == timedelta(0)

    def test_within_the_tolerance_it_is_drift(self) -> None:
        async def main(here: LoopClock) -> list[timedelta]:
            detector = JumpDetector(here, tolerance=SECOND)
            here.step(SECOND)
            within = detector.observe()
            here.step(SECOND + timedelta(microseconds=1))
            return [within, detector.observe()]

        assert run(main) == [timedelta(0), timedelta(seconds=1, microseconds=1)]


class TestAware:
    def test_an_aware_time_is_the_same_instant(self) -> None:
        paris = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Paris"))
        assert aware(paris) == datetime(2026, 7, 1, 10, tzinfo=UTC)
        assert aware(paris).tzinfo is UTC

    @pytest.mark.parametrize(
        ("zone", "local", "utc"),
        [
            ("UTC", datetime(2026, 7, 1, 12), datetime(2026, 7, 1, 12)),
            ("Asia/Kolkata", datetime(2026, 7, 1, 12), datetime(2026, 7, 1, 6, 30)),
            ("America/New_York", datetime(2026, 1, 1, 12, 0, 0, 7), datetime(2026, 1, 1, 17, 0, 0, 7)),
            ("UTC", datetime(9000, 1, 1, 0, 0, 0, 999_999), datetime(9000, 1, 1, 0, 0, 0, 999_999)),
            ("Europe/Berlin", datetime(1960, 1, 1, 0, 0, 0, 1), datetime(1959, 12, 31, 23, 0, 0, 1)),
            ("America/New_York", datetime(2026, 11, 1, 1, 30), datetime(2026, 11, 1, 5, 30)),  # the first
            ("America/New_York", datetime(2026, 11, 1, 1, 30, fold=1), datetime(2026, 11, 1, 6, 30)),
            ("America/New_York", datetime(2026, 3, 8, 2, 30), datetime(2026, 3, 8, 7, 30)),  # no such time
            ("America/New_York", datetime(2026, 3, 8, 2, 30, fold=1), datetime(2026, 3, 8, 6, 30)),
        ],
    )
    def test_a_naive_time_is_local(
        self, local_zone: Callable[[str], None], zone: str, local: datetime, utc: datetime
    ) -> None:
        local_zone(zone)
        assert aware(local) == utc.replace(tzinfo=UTC)
        assert aware(local.replace(tzinfo=ZoneInfo(zone))) == aware(local)

    def test_a_record_reads_a_naive_time_alike(self, local_zone: Callable[[str], None]) -> None:
        local_zone("America/New_York")
        no_such_time, before = datetime(2026, 3, 8, 2, 30), datetime(2026, 3, 8, 7, 15, tzinfo=UTC)
        task = Task(
            id="t", kind="k", created_at=EPOCH, available_at=EPOCH, updated_at=EPOCH, expires_at=before
        )
        assert aware(no_such_time) > before
        assert task.is_expired_at(no_such_time)


class TestWaiting:
    def test_sleep_of_zero_or_less_gives_one_turn(self) -> None:
        async def main(here: LoopClock) -> list[str]:
            seen: list[str] = []
            asyncio.get_running_loop().call_soon(seen.append, "others")
            await clock.sleep(-SECOND)
            assert here.monotonic() == 0
            return seen

        assert run(main) == ["others"]

    def test_the_first_of_several(self) -> None:
        async def main(here: LoopClock) -> None:
            quick = asyncio.create_task(clock.sleep(SECOND))
            slow = asyncio.create_task(clock.sleep(5 * SECOND))
            assert await clock.wait_for_any(quick, slow, at_most=None) == {quick}
            assert here.monotonic() == 1
            assert await clock.wait_for_any(slow, at_most=10 * SECOND) == {slow}
            assert here.monotonic() == 5

        run(main)

    @pytest.mark.parametrize("at_most", [2 * SECOND, timedelta(0), -SECOND])
    def test_the_time_is_up_and_the_waiters_go_on(self, at_most: timedelta) -> None:
        async def main(here: LoopClock) -> None:
            never = asyncio.get_running_loop().create_future()
            assert await clock.wait_for_any(never, at_most=at_most) == set()
            assert here.monotonic() == max(0, at_most.total_seconds())
            assert not never.done()

        run(main)


class TestDatabaseClock:
    def test_a_correction_of_less_than_a_second_does_not_turn_time_back(self) -> None:
        async def readings(machine: LoopClock) -> list[datetime]:
            database = DatabaseClock(machine)
            database.learn(EPOCH, 0.0, 0.0)
            before = database.now()
            database.learn(EPOCH - SECOND / 2, 0.0, 0.0)
            stands_still = database.now()
            await asyncio.sleep(1)
            goes_on = database.now()
            database.learn(EPOCH - 60 * SECOND, 0.0, 0.0)
            return [before, stands_still, goes_on, database.now()]

        assert run(readings) == [EPOCH, EPOCH, EPOCH + SECOND / 2, EPOCH - 59 * SECOND]
