"""Threads that work for an event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rota.stores.threads import Threads


async def test_a_call_answers_with_its_result_or_its_error() -> None:
    threads = Threads(1, "t")
    assert await threads.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.call(divmod, 7, 0)
    threads.close(wait=True)


async def test_one_thread_takes_calls_in_order_and_many_take_them_at_once() -> None:
    one, two = Threads(1, "one"), Threads(2, "two")
    seen: list[int] = []
    await asyncio.gather(*(one.call(seen.append, number) for number in range(100)))
    assert seen == list(range(100))
    meeting = threading.Barrier(2, timeout=60)
    assert sorted(await asyncio.gather(two.call(meeting.wait), two.call(meeting.wait))) == [0, 1]
    one.close(wait=True)
    two.close(wait=True)


async def test_threads_are_started_when_needed_and_end_when_closed() -> None:
    threads = Threads(8, "as-needed")
    for _ in range(20):
        await threads.call(int)
    names = {thread.name for thread in threading.enumerate()}
    assert [name for name in names if name.startswith("as-needed")] == ["as-needed_0"]
    threads.close(wait=True)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("as-needed")]


async def test_a_caller_who_gave_up_is_told_when_the_thread_is_free() -> None:
    freed = asyncio.Event()
    threads = Threads(1, "t", on_freed=freed.set)
    gate = threading.Event()
    calling = threads.call(gate.wait, 60)
    calling.cancel()
    assert not freed.is_set()
    gate.set()
    await asyncio.wait_for(freed.wait(), 60)
    assert await threads.call(int) == 0
    threads.close(wait=True)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_may_end_after_the_loop_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the loop is closed just after it was looked at."""
    threads, may_end = Threads(1, "late"), threading.Event()
    loop = asyncio.new_event_loop()
    monkeypatch.setattr(loop, "is_closed", lambda: False)

    async def begin() -> None:
        threads.call(may_end.wait)

    loop.run_until_complete(begin())
    [thread] = [each for each in threading.enumerate() if each.name == "late_0"]
    loop.close()
    may_end.set()
    thread.join()
