import asyncio
import gc
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rota
from rota.domain.task import Defaults
from rota.engine import commands
from rota.engine.commands import Claim
from rota.testing import (
    Deadlock,
    LoopClock,
    RealIO,
    VirtualLoop,
    advance,
    run,
    settle,
    sleep_until,
    virtual_loop,
)
from stores import ADDRESSES

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class TestTime:
    def test_a_year_passes_at_once(self) -> None:
        async def main(clock: LoopClock) -> datetime:
            await asyncio.sleep(365 * 86400)
            return clock.now()

        began = time.thread_time()
        assert run(main) == datetime(2027, 1, 1, tzinfo=UTC)
        assert time.thread_time() - began < 5

    def test_it_begins_where_told(self) -> None:
        async def main(clock: LoopClock) -> datetime:
            return clock.now()

        start = datetime(2031, 5, 5, 5, tzinfo=UTC)
        assert run(main, start=start) == start

    def test_timers_keep_their_order(self) -> None:
        async def main() -> list[int]:
            seen: list[int] = []

            async def at(second: int) -> None:
                await asyncio.sleep(second)
                seen.append(second)

            await asyncio.gather(*(at(second) for second in (5, 1, 86400, 3)))
            return seen

        assert run(main()) == [1, 3, 5, 86400]

    def test_it_stands_still_while_callbacks_are_ready(self) -> None:
        async def main(clock: LoopClock) -> datetime:
            timer = asyncio.create_task(asyncio.sleep(0.001))
            for _ in range(1000):
                await asyncio.sleep(0)
            timer.cancel()
            return clock.now()

        assert run(main) == START

    @pytest.mark.parametrize("after", [timedelta(0), timedelta(days=200), timedelta(days=365 * 50)])
    def test_no_drift_and_no_early_timer(self, after: timedelta) -> None:
        """Asyncio's own resolution makes timers spin for ever after 194 days."""

        async def main(clock: LoopClock) -> None:
            begin = START + after
            await sleep_until(begin)
            for k in range(1, 500):
                due = begin + k * timedelta(microseconds=333_333)
                await asyncio.sleep((due - clock.now()).total_seconds())
                assert clock.now() == due

        run(main)

    @pytest.mark.parametrize("seconds", [1e-6, 2e-6, 0.1234561, 0.1234567891])
    def test_a_timer_is_not_early_by_a_microsecond(self, seconds: float) -> None:
        async def main(clock: LoopClock) -> timedelta:
            await asyncio.sleep(seconds)
            return clock.now() - START

        assert run(main) == timedelta(seconds=seconds)

    def test_less_than_a_microsecond_ends(self) -> None:
        async def main() -> None:
            for _ in range(100):
                await asyncio.sleep(1e-7)

        run(main())

    def test_timeouts_are_virtual(self) -> None:
        async def main(clock: LoopClock) -> datetime:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3600):
                    await asyncio.Event().wait()
            return clock.now()

        assert run(main) == START + HOUR


class TestPassingTime:
    def test_advance_includes_what_falls_due_at_its_end(self) -> None:
        async def main() -> list[str]:
            seen: list[str] = []

            async def work() -> None:
                await asyncio.sleep(3600)
                await asyncio.to_thread(seen.append, "thread")
                await asyncio.sleep(0)
                seen.append("after")

            working = asyncio.create_task(work())
            await advance(HOUR)
            assert working.done()
            return seen

        assert run(main()) == ["thread", "after"]

    def test_settle_lets_no_time_pass(self) -> None:
        async def main(clock: LoopClock) -> tuple[int, datetime]:
            turns = 0

            async def work() -> None:
                nonlocal turns
                for _ in range(10):
                    await asyncio.sleep(0)
                    turns += 1
                await asyncio.sleep(1)
                turns += 1

            working = asyncio.create_task(work())
            await settle()
            working.cancel()
            return turns, clock.now()

        assert run(main) == (10, START)

    def test_sleep_until(self) -> None:
        async def main(clock: LoopClock) -> None:
            await sleep_until(START + 5 * HOUR)
            assert clock.now() == START + 5 * HOUR
            await sleep_until(START)
            assert clock.now() == START + 5 * HOUR

        run(main)

    def test_sleep_until_goes_by_the_stepped_clock(self) -> None:
        async def main(clock: LoopClock) -> float:
            asyncio.get_running_loop().call_later(1800, clock.step, -HOUR)
            await sleep_until(START + HOUR)
            assert clock.now() == START + HOUR
            return clock.monotonic()

        assert run(main) == 7200

    def test_on_a_real_loop_it_says_so(self) -> None:
        with pytest.raises(RuntimeError, match=r"rota\.testing\.run"):
            asyncio.run(advance(HOUR))


class TestThreads:
    def test_time_waits_for_a_thread(self) -> None:
        async def main(clock: LoopClock) -> datetime:
            alarm = asyncio.create_task(asyncio.sleep(1))
            await asyncio.to_thread(time.sleep, 0.05)
            assert not alarm.done()
            return clock.now()

        assert run(main) == START

    def test_many_hops_take_no_time(self) -> None:
        async def main(clock: LoopClock) -> datetime:
            alarm = asyncio.create_task(asyncio.sleep(1e-6))
            for _ in range(300):
                await asyncio.to_thread(int)
            assert not alarm.done()
            return clock.now()

        assert run(main) == START

    def test_an_executor_of_ones_own_counts(self) -> None:
        async def main(clock: LoopClock) -> datetime:
            alarm = asyncio.create_task(asyncio.sleep(1))
            with ThreadPoolExecutor(1) as pool:
                await asyncio.get_running_loop().run_in_executor(pool, time.sleep, 0.02)
            assert not alarm.done()
            return clock.now()

        assert run(main) == START

    def test_a_default_executor_of_ones_own_is_used(self) -> None:
        async def main() -> str:
            pool = ThreadPoolExecutor(1, thread_name_prefix="mine")
            asyncio.get_running_loop().set_default_executor(pool)
            return await asyncio.to_thread(lambda: threading.current_thread().name)

        assert run(main()).startswith("mine")

    def test_an_abandoned_thread_still_counts(self) -> None:
        async def main(clock: LoopClock) -> bool:
            ended = False

            def work() -> None:
                nonlocal ended
                time.sleep(0.05)
                ended = True

            working = asyncio.create_task(asyncio.to_thread(work))
            await asyncio.sleep(0)
            working.cancel()
            await asyncio.sleep(1)
            return ended

        assert run(main)

    def test_a_job_cancelled_in_the_queue_releases_time(self) -> None:
        async def main(clock: LoopClock) -> None:
            gate = threading.Event()
            with ThreadPoolExecutor(1) as pool:
                loop = asyncio.get_running_loop()
                first = loop.run_in_executor(pool, gate.wait)
                second = loop.run_in_executor(pool, gate.wait)
                second.cancel()
                gate.set()
                await first
            await asyncio.sleep(3600)
            assert clock.now() == START + HOUR

        run(main)

    def test_an_exception_comes_back(self) -> None:
        async def main() -> None:
            with pytest.raises(ZeroDivisionError):
                await asyncio.to_thread(lambda: 1 // 0)
            await asyncio.sleep(1)

        run(main())

    def test_a_foreign_thread_is_waited_for_while_held(self) -> None:
        async def main(clock: LoopClock) -> datetime:
            loop = virtual_loop()
            answer: asyncio.Future[int] = loop.create_future()

            def work() -> None:
                time.sleep(0.02)
                loop.call_soon_threadsafe(answer.set_result, 7)

            alarm = asyncio.create_task(asyncio.sleep(1))
            thread = threading.Thread(target=work)
            with loop.hold():
                thread.start()
                assert await answer == 7
            thread.join()
            assert not alarm.done()
            return clock.now()

        assert run(main) == START


class TestDeadlock:
    def test_nothing_left_is_an_error_that_says_who_waits(self) -> None:
        async def main() -> None:
            current = asyncio.current_task()
            assert current is not None
            current.set_name("the-test")
            await asyncio.Event().wait()

        with pytest.raises(Deadlock, match=r"the-test \(.*main\) at .*test_virtual_loop\.py:\d+"):
            run(main())

    def test_the_tasks_are_cancelled_after_it(self) -> None:
        seen: list[str] = []

        async def main() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(5)
                seen.append("cleaned up")

        with pytest.raises(Deadlock):
            run(main())
        assert seen == ["cleaned up"]

    @pytest.mark.parametrize("ttl", [None, HOUR], ids=["", "expiring"])
    @pytest.mark.parametrize("kind", ["memory", "sqlite", "folder"])
    def test_a_queue_that_was_given_no_clock_waits_no_longer(
        self, kind: str, ttl: timedelta | None, tmp_path: Path
    ) -> None:
        """Its clock is that of the machine, which virtual time does not move."""
        address = ADDRESSES[kind](tmp_path) if kind in ADDRESSES else "memory:"

        async def main() -> None:
            async with rota.connect(address) as queue:
                await queue.wait((await queue.submit("report", ttl=ttl)).id)

        with pytest.raises(Deadlock, match="is there a worker for report"):
            run(main())

    def test_to_wait_for_a_running_task_that_nobody_ends(self) -> None:
        ask = Claim(
            worker_id="gone", lease_id="l", lease=timedelta(days=1), limit=1, kinds={"report": Defaults()}
        )

        async def main() -> None:
            async with rota.connect("memory:") as queue:
                await queue.submit("report")
                assert (await queue.store.transact(commands.claim_tasks(ask))).tasks
                await queue.drain_queue("default")

        with pytest.raises(Deadlock, match="that_nobody_ends"):
            run(main())

    @pytest.mark.parametrize("kind", ["memory", "sqlite", "folder"])
    def test_to_wait_for_a_task_that_nobody_runs_says_for_which(self, kind: str, tmp_path: Path) -> None:
        """Stores that look for the changes of others do so for ever."""
        address = ADDRESSES[kind](tmp_path) if kind in ADDRESSES else "memory:"
        ids: list[str] = []

        async def main(clock: LoopClock) -> None:
            async with rota.connect(address, clock=clock) as queue:
                ids.append((await queue.submit("report")).id)
                await queue.wait(ids[0])

        with pytest.raises(Deadlock) as caught:
            run(main)
        waiting = f"for the end of task {ids[0]}, which is pending: is there a worker for report?"
        assert waiting in str(caught.value)
        assert "test_virtual_loop.py" in str(caught.value)

    def test_to_wait_for_a_task_that_expires_ends(self) -> None:
        async def main(clock: LoopClock) -> str:
            async with rota.connect("memory:", clock=clock) as queue:
                task = await queue.submit("report", ttl=HOUR)
                return (await queue.wait(task.id)).status

        assert run(main) == "expired"

    def test_a_poll_that_still_sees_something_is_no_deadlock(self, tmp_path: Path) -> None:
        async def main(clock: LoopClock) -> str:
            address = ADDRESSES["sqlite"](tmp_path)
            async with rota.connect(address, clock=clock) as one, rota.connect(address, clock=clock) as other:
                task = await one.submit("report")
                waiting = asyncio.create_task(one.wait(task.id))
                await advance(HOUR / 10)
                await other.cancel(task.id)
                return (await waiting).status

        assert run(main) == "cancelled"

    def test_a_thread_that_does_not_come_back(self) -> None:
        async def hang(gate: threading.Event) -> None:
            await asyncio.to_thread(gate.wait)

        gate = threading.Event()
        loop = VirtualLoop(patience=timedelta(milliseconds=20))
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            with pytest.raises(Deadlock, match="not come back"):
                runner.run(hang(gate))
            gate.set()


class TestRealIO:
    @pytest.mark.parametrize(
        "use",
        [
            lambda: asyncio.create_subprocess_exec("true"),
            lambda: asyncio.create_subprocess_shell("true"),
            lambda: asyncio.open_connection("127.0.0.1", 9),
            lambda: asyncio.start_server(lambda r, w: None, "127.0.0.1", 0),
            lambda: asyncio.open_unix_connection(os.devnull),
        ],
    )
    def test_it_is_refused(self, use: Callable[[], Awaitable[object]]) -> None:
        async def main() -> None:
            with pytest.raises(RealIO):
                await use()

        run(main())

    def test_a_bare_socket_is_refused(self) -> None:
        async def main() -> None:
            left, right = socket.socketpair()
            with left, right:
                left.setblocking(False)
                with pytest.raises(RealIO):
                    await asyncio.get_running_loop().sock_recv(left, 1)

        run(main())


class TestCleanup:
    def test_results_and_exceptions_come_out(self) -> None:
        async def fail() -> None:
            raise LookupError("mine")

        async def answer() -> int:
            return 42

        assert run(answer()) == 42
        with pytest.raises(LookupError, match="mine"):
            run(fail())

    def test_tasks_generators_and_threads_end(self) -> None:
        seen: list[str] = []

        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("task")

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                seen.append("generator")

        def work() -> None:
            time.sleep(0.02)
            seen.append("thread")

        async def main() -> object:
            asyncio.create_task(forever())  # noqa: RUF006  # that it is left behind is the point
            asyncio.get_running_loop().run_in_executor(None, work)
            left = numbers()
            await anext(left)
            await asyncio.sleep(0)
            return left

        run(main())
        assert sorted(seen) == ["generator", "task", "thread"]

    def test_nothing_is_left_open(self) -> None:
        async def main() -> None:
            await asyncio.to_thread(int)
            await asyncio.sleep(1)

        before = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            run(main())
        gc.collect()  # a ResourceWarning would be an error here
        threads, files = before  # of which others may have ended meanwhile
        assert threading.active_count() <= threads
        assert len(os.listdir("/proc/self/fd")) <= files
