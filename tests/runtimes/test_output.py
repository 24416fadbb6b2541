"""The pipes through which a command writes."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import pytest

from rota.engine.runtimes import output
from rota.engine.runtimes.output import KeptOutput

TURNS = 8
"""More than it takes to open two pipes."""


@pytest.mark.parametrize("turns", range(TURNS))
async def test_whoever_is_cancelled_while_pipes_are_opened_leaves_none_behind(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "DRAIN", timedelta(seconds=20))  # a pipe that stays open would be waited for

    async def opening() -> None:
        with KeptOutput(print) as stdout, KeptOutput(print) as stderr:
            async with stdout.pipe(), stderr.pipe():
                await asyncio.Event().wait()

    before = set(os.listdir("/dev/fd"))
    running = asyncio.create_task(opening())
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait({running})
    await asyncio.sleep(0)  # transports close in the next turn
    await asyncio.sleep(0)
    assert running.cancelled()
    assert len(os.listdir("/dev/fd")) <= len(before)  # what is older may be closed meanwhile
