"""Huey on its SQLite store, as its documentation sets it up.

Its settings are its own: WAL, and SQLite's default `synchronous`, which is FULL here, so its commits are as durable
as ours (`fsync=True` says the same explicitly; `fsync=False` turns it off).
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from huey import SqliteHuey

logging.getLogger("huey").setLevel(logging.ERROR)


class Rival:
    """A Huey with one no-op task. `fsync` None: its default."""

    def __init__(self, place: Path, fsync: bool | None = None) -> None:
        self.huey = SqliteHuey(filename=str(place / "huey.db"), fsync=fsync)
        self.done = threading.Event()
        self.left = 0

        def noop(number: int) -> None:
            self.left -= 1  # one worker thread: nobody else counts
            if self.left == 0:
                self.done.set()

        self.noop: Any = self.huey.task()(noop)

    def submit(self, number: int) -> float:
        """Seconds to submit so many, one after the other."""
        began = time.perf_counter()
        for _ in range(number):
            self.noop(1)
        return time.perf_counter() - began

    def submit_from(self, clients: int, number: int) -> float:
        """Seconds to submit so many from several threads."""
        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as threads:
            list(threads.map(lambda _: self.noop(1), range(number)))
        return time.perf_counter() - began

    def drain(self, number: int, workers: int = 1) -> float:
        """Seconds until a consumer (threads, in this process, default settings) has run them all."""
        self.left = number
        consumer = self.huey.create_consumer(workers=workers)
        began = time.perf_counter()
        consumer.start()
        self.done.wait()
        took = time.perf_counter() - began
        consumer.stop(graceful=True)
        return took

    def close(self) -> None:
        self.huey.storage.close()
