"""What SIGTERM and SIGINT do to a process that has run a worker."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

import rota

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def own(number: int, frame: FrameType | None) -> None:
    """The handler of a program that uses a worker."""


@pytest.fixture
def handled() -> Iterator[None]:
    before = {each: signal.signal(each, own) for each in SIGNALS}
    yield
    for each, did in before.items():
        signal.signal(each, did)


@pytest.mark.usefixtures("handled")
async def test_they_do_afterwards_what_they_did_before() -> None:
    during: list[object] = []
    async with rota.connect("memory:") as queue:
        worker = rota.Worker(queue)

        @worker.task("look")
        async def look() -> None:
            during.extend(signal.getsignal(each) for each in SIGNALS)
            worker.stop()

        await queue.submit("look")
        await worker.run()
    assert own not in during
    assert [signal.getsignal(each) for each in SIGNALS] == [own, own]
