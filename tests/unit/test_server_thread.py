"""The thread that imports the HTTP server, of a process that ends meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rota.surfaces.cli.process.http import in_daemon_thread


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_it_may_end_after_the_loop_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the loop is closed just after it was looked at."""
    may_end = threading.Event()
    loop = asyncio.new_event_loop()
    monkeypatch.setattr(loop, "is_closed", lambda: False)
    waiting = loop.create_task(in_daemon_thread(may_end.wait))
    loop.call_soon(loop.stop)
    loop.run_forever()
    [thread] = [each for each in threading.enumerate() if each.name == "rota-http-import"]
    waiting.cancel()
    loop.run_until_complete(asyncio.wait({waiting}))
    loop.close()
    may_end.set()
    thread.join()
