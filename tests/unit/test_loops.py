import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from rota.domain.errors import Unavailable
from rota.engine import clock
from rota.engine.loops import Backoff, keep_running
from rota.testing import LoopClock, advance, run, settle, virtual_loop

SECOND = timedelta(seconds=1)
ZERO = timedelta(0)

Errors = list[tuple[BaseException, timedelta]]


class FakeHints:
    """A store as far as `wait` goes: a counter of changes, noted in the first step of the call."""

    def __init__(self) -> None:
        self.changes = 0
        self.calls = 0
        self.waiting = 0
        self.failing: BaseException | None = None
        self._changed = asyncio.Condition()

    async def wait(self, until: datetime | None) -> None:
        assert until is None
        self.calls += 1
        seen = self.changes
        if self.failing:
            raise self.failing
        self.waiting += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self.changes > seen)
        finally:
            self.waiting -= 1

    async def change(self) -> None:
        self.changes += 1
        async with self._changed:
            self._changed.notify_all()


class Rounds:
    """A role that notes when its rounds were, and does in each what `plan` says."""

    def __init__(self, plan: Callable[[int], Awaitable[timedelta | None] | timedelta | None]) -> None:
        self.at: list[float] = []
        self._plan = plan

    async def run_once(self) -> timedelta | None:
        self.at.append(asyncio.get_running_loop().time())
        answer = self._plan(len(self.at))
        return await answer if isinstance(answer, Awaitable) else answer


class Running:
    """`keep_running` as a task, with everything it needs."""

    def __init__(self, role: Rounds, store: FakeHints | None = None) -> None:
        self.store = store or FakeHints()
        self.stop = asyncio.Event()
        self.wake = asyncio.Event()
        self.errors: Errors = []
        self.task = asyncio.create_task(
            keep_running(
                role,
                self.store,
                stop=self.stop,
                wake=self.wake,
                on_error=lambda error, delay: self.errors.append((error, delay)),
                random=Random(7),
            )
        )

    async def end(self) -> None:
        self.stop.set()
        await self.task


def nothing_planned(_: int) -> None:
    return None


class TestDelays:
    def test_the_next_round_follows_after_the_delay(self) -> None:
        async def main() -> list[float]:
            role = Rounds(lambda n: timedelta(hours=n))
            running = Running(role)
            await advance(timedelta(hours=7))
            await running.end()
            return role.at

        assert run(main()) == [0, 3600, 3 * 3600, 6 * 3600]

    def test_nothing_planned_waits(self) -> None:
        async def main() -> list[float]:
            role = Rounds(nothing_planned)
            running = Running(role)
            await advance(timedelta(days=30))
            await running.end()
            return role.at

        assert run(main()) == [0]

    @pytest.mark.parametrize("delay", [ZERO, -SECOND])
    def test_more_work_goes_on_at_once_and_lets_others_run(self, delay: timedelta) -> None:
        async def main() -> None:
            turns = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            role = Rounds(lambda n: delay if n < 100 else None)
            other = asyncio.create_task(others())
            running = Running(role)
            for _ in range(200):
                await asyncio.sleep(0)
            other.cancel()
            await running.end()
            assert turns >= 99
            assert role.at == [0] * 100

        run(main())

    def test_rounds_without_a_pause_create_no_tasks(self) -> None:
        async def main() -> int:
            created = 0

            def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
                nonlocal created
                created += 1
                return asyncio.Task(coroutine, loop=loop, **kwargs)

            running = Running(Rounds(lambda n: ZERO if n < 1000 else None))
            asyncio.get_running_loop().set_task_factory(factory)
            await settle()
            await running.end()
            return created

        assert run(main()) == 3

    def test_rounds_by_the_timer_keep_their_waiters(self) -> None:
        async def main() -> int:
            running = Running(Rounds(lambda n: SECOND))
            await advance(timedelta(hours=1))
            await running.end()
            return running.store.calls

        assert run(main()) == 1


class TestHints:
    def test_a_change_wakes(self) -> None:
        async def main() -> list[float]:
            role = Rounds(nothing_planned)
            running = Running(role)
            for _ in range(3):
                await advance(SECOND)
                await running.store.change()
            await settle()
            await running.end()
            return role.at

        assert run(main()) == [0, 1, 2, 3]

    def test_a_change_during_a_round_is_not_lost(self) -> None:
        async def main() -> list[float]:
            store = FakeHints()

            async def read_then_someone_writes(n: int) -> None:
                if n == 1:
                    await store.change()  # after this round has read

            role = Rounds(read_then_someone_writes)
            running = Running(role, store)
            await advance(SECOND)
            await running.end()
            return role.at

        assert run(main()) == [0, 0]

    @pytest.mark.parametrize("turns", range(6))
    def test_a_change_at_any_turn_of_the_loop_is_seen(self, turns: int) -> None:
        """The role reads without suspending. Whenever the change comes, some round must see it."""

        async def main() -> None:
            store = FakeHints()
            seen = -1

            async def read(_: int) -> None:
                nonlocal seen
                seen = store.changes
                await asyncio.sleep(0)

            running = Running(Rounds(read), store)
            for _ in range(turns):
                await asyncio.sleep(0)
            await store.change()
            for _ in range(turns):
                await asyncio.sleep(0)
            await store.change()
            await settle()
            assert seen == 2
            await running.end()

        run(main())

    def test_a_change_between_hot_rounds_leads_to_one_more(self) -> None:
        async def main() -> int:
            store = FakeHints()

            async def hot(n: int) -> timedelta | None:
                if n == 5:
                    await store.change()
                return ZERO if n < 10 else None

            role = Rounds(hot)
            running = Running(role, store)
            await settle()
            await running.end()
            return len(role.at)

        assert run(main()) == 11

    def test_wake_wakes_and_is_cleared(self) -> None:
        async def main() -> list[float]:
            role = Rounds(nothing_planned)
            running = Running(role)
            for _ in range(2):
                await advance(SECOND)
                running.wake.set()
            await settle()
            assert not running.wake.is_set()
            await running.end()
            return role.at

        assert run(main()) == [0, 1, 2]

    def test_wake_during_a_round_is_not_lost(self) -> None:
        async def main() -> int:
            wake_in_round: Callable[[int], None] = lambda n: running.wake.set() if n == 1 else None  # noqa: E731  a def would need the same closure
            role = Rounds(wake_in_round)
            running = Running(role)
            await advance(SECOND)
            await running.end()
            return len(role.at)

        assert run(main()) == 2

    def test_it_runs_without_a_wake_event(self) -> None:
        async def main() -> int:
            role, stop = Rounds(lambda n: SECOND), asyncio.Event()
            virtual_loop().call_later(2.5, stop.set)
            await keep_running(role, FakeHints(), stop=stop, on_error=lambda error, delay: None)
            return len(role.at)

        assert run(main()) == 3


class TestStopping:
    def test_stop_ends_the_pause(self) -> None:
        async def main(here: LoopClock) -> float:
            running = Running(Rounds(lambda n: timedelta(days=1)))
            await advance(SECOND)
            await running.end()
            assert running.store.waiting == 0
            return here.monotonic()

        assert run(main) == 1

    def test_stop_lets_the_round_finish(self) -> None:
        async def main() -> list[str]:
            seen: list[str] = []

            async def slow(_: int) -> None:
                await clock.sleep(10 * SECOND)
                seen.append("finished")

            running = Running(Rounds(slow))
            await advance(SECOND)
            await running.end()
            return seen

        assert run(main()) == ["finished"]

    def test_stop_ends_hot_rounds(self) -> None:
        async def main() -> None:
            running = Running(Rounds(lambda n: ZERO))
            for _ in range(50):
                await asyncio.sleep(0)
            await running.end()

        run(main())

    def test_stopped_before_it_began(self) -> None:
        async def main() -> list[float]:
            role = Rounds(nothing_planned)
            await Running(role).end()
            return role.at

        assert run(main()) == []

    @pytest.mark.parametrize("delay", [None, SECOND])
    def test_cancellation_ends_it_and_leaves_nothing(self, delay: timedelta | None) -> None:
        async def main() -> None:
            running = Running(Rounds(lambda n: delay))
            await advance(3 * SECOND)
            running.task.cancel()
            await asyncio.wait([running.task])
            assert running.task.cancelled()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run(main())

    def test_cancellation_inside_a_round_ends_it(self) -> None:
        async def main() -> None:
            running = Running(Rounds(lambda n: clock.sleep(timedelta(days=1))))
            await advance(SECOND)
            running.task.cancel()
            await asyncio.wait([running.task])
            assert running.task.cancelled()
            assert running.errors == []

        run(main())


class TestFailures:
    @pytest.mark.parametrize("error", [Unavailable("the store is away"), ZeroDivisionError()])
    def test_it_is_reported_and_tried_again(self, error: Exception) -> None:
        async def main() -> None:
            async def fail_twice(n: int) -> None:
                if n <= 2:
                    raise error

            role = Rounds(fail_twice)
            running = Running(role)
            await advance(timedelta(hours=1))
            await running.end()
            (first, one), (second, two) = running.errors
            assert first is second is error
            assert role.at == pytest.approx([0, one.total_seconds(), (one + two).total_seconds()])

        run(main())

    def test_success_resets_the_backoff(self) -> None:
        async def main() -> list[timedelta]:
            async def fail_mostly(n: int) -> timedelta:
                if n % 5:
                    raise Unavailable("away")
                return SECOND

            running = Running(Rounds(fail_mostly))
            await advance(timedelta(minutes=1))
            await running.end()
            return [delay for _, delay in running.errors]

        delays = run(main())
        assert all(delay <= 2 * Backoff.SHORTEST for delay in delays[::4])
        assert all(delay > 2 * Backoff.SHORTEST for delay in delays[2::4])

    def test_neither_hints_nor_wake_cut_the_backoff_short_but_stop_does(self) -> None:
        async def main(here: LoopClock) -> None:
            async def fail(_: int) -> None:
                raise Unavailable("away")

            role = Rounds(fail)
            running = Running(role)
            await advance(timedelta(minutes=5))
            rounds = len(role.at)
            for _ in range(100):
                await running.store.change()
                running.wake.set()
                await settle()
            assert len(role.at) == rounds
            before = here.monotonic()
            await running.end()
            assert here.monotonic() == before

        run(main)

    def test_a_wait_that_fails_is_reported_and_the_rounds_go_on(self) -> None:
        async def main() -> None:
            store = FakeHints()
            store.failing = Unavailable("no hints today")
            role = Rounds(lambda n: 4 * SECOND)
            running = Running(role, store)
            await advance(timedelta(minutes=10))
            assert running.errors[-1][0] is store.failing
            assert running.errors[-1][1] > 7 * SECOND
            gaps = [b - a for a, b in zip(role.at, role.at[1:], strict=False)]
            assert max(gaps) < 4.000001  # the role's delay holds, whatever the backoff of the wait
            assert store.calls < 80
            store.failing = None
            await advance(timedelta(minutes=1))
            rounds = len(role.at)
            await store.change()
            await settle()
            assert len(role.at) == rounds + 1  # and it hears again
            await running.end()

        run(main())

    def test_without_hints_an_idle_role_polls(self) -> None:
        async def main() -> list[float]:
            store = FakeHints()
            store.failing = OSError("no hints today")
            role = Rounds(nothing_planned)
            running = Running(role, store)
            await advance(timedelta(minutes=5))
            await running.end()
            return role.at

        at = run(main())
        assert 20 < len(at) < 60

    def test_on_error_may_end_it(self) -> None:
        async def main() -> None:
            store = FakeHints()
            store.failing = Unavailable("away")

            def refuse(error: BaseException, delay: timedelta) -> None:
                raise LookupError("enough")

            with pytest.raises(LookupError, match="enough"):
                await keep_running(Rounds(nothing_planned), store, stop=asyncio.Event(), on_error=refuse)
            assert store.waiting == 0

        run(main())


class TestBackoff:
    def test_it_grows_within_its_bounds(self) -> None:
        backoff = Backoff(Random(1))
        delays = [backoff.next() for _ in range(1000)]
        assert delays[0] < delays[3] < delays[6]
        assert all(Backoff.SHORTEST <= delay <= Backoff.LONGEST for delay in delays)
        assert min(delays[10:]) < 9 * SECOND < 13 * SECOND < max(delays[10:])

    def test_the_same_seed_gives_the_same_delays(self) -> None:
        one, other = Backoff(Random(3)), Backoff(Random(3))
        assert [one.next() for _ in range(9)] == [other.next() for _ in range(9)]
