"""Running works that need something of the archive: fetch it outside the turn, and run them again with it.

A work that lacks something leaves its group at once; the others of the group, and everybody after it, go on. So nobody
waits for the archive but who asked it. For a listing that needs many segments, each round fetches twice as many as the
one before, some at a time, so that others who want a single one are not behind all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ....domain.errors import Unavailable
from ...base import Work
from ...threads import Threads
from ..replica import Replica
from .lookups import Answers, Away, Missing, Question, Shelf

__all__ = ["Errands", "ask"]

T = TypeVar("T")

_THREADS = 8
_AT_ONCE = 4
"""Of one work."""

_ROUNDS = 1000
"""Each answers at least one question. Nobody has so many, unless what he asks changes each time."""


class Errands:
    """`catch_up` brings the replica to the end of the log."""

    def __init__(
        self, replica: Replica, shelf: Shelf, catch_up: Callable[[], Awaitable[object]], name: str
    ) -> None:
        self._replica = replica
        self._shelf = shelf
        self._catch_up = catch_up
        self._name = name
        self._threads = Threads(_THREADS, "rota-archive")
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, work: Work[T], once: Callable[[Work[T]], Awaitable[T]]) -> T:
        """The work's answer. `once` runs it on the replica as it is."""
        self._under_way += 1
        self._idle.clear()
        try:
            return await self._run(work, once)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def finish(self) -> None:
        """Until everybody has what he asked for."""
        await self._idle.wait()

    def close(self) -> None:
        self._threads.close(wait=True)

    async def _run(self, work: Work[T], once: Callable[[Work[T]], Awaitable[T]]) -> T:
        lacking: Away | None = None
        for _ in range(_ROUNDS):
            try:
                return await once(work)
            except Away as away:
                if lacking is None:
                    work = away.answers.given_to(work)
                lacking = away
            await self._fetch(lacking)
        raise Unavailable(
            f"what a work asks of the archive of {self._name} changes faster than it can be read; nothing was written"
        )

    async def _fetch(self, away: Away) -> None:
        away.answers.reach_further()
        segments = list(_by_segment(away).items())
        for start in range(0, len(segments), _AT_ONCE):
            some = segments[start : start + _AT_ONCE]
            fetching = (self._fetch_one(away.answers, *each) for each in some)
            for failed in await asyncio.gather(*fetching, return_exceptions=True):
                if failed is not None:
                    raise failed

    async def _fetch_one(self, answers: Answers, key: str, questions: list[Question]) -> None:
        try:
            answers.take(await self._threads.call(self._shelf.answer, key, questions))
        except Missing:  # were we behind, so that it was removed? Then nobody will ask for it in the next run
            await self._catch_up()
            if key in self._replica.archive.segments:
                raise


def ask(replica: Replica, shelf: Shelf, question: Callable[[Answers], T]) -> T:
    """For a thread that has time: the answer from the replica, with its lock held, and what it lacks fetched here."""
    answers = Answers()
    while True:
        try:
            with replica.lock:
                return question(answers)
        except Away as away:
            lacking = away
        for key, questions in _by_segment(lacking).items():
            answers.take(shelf.answer(key, questions))


def _by_segment(away: Away) -> dict[str, list[Question]]:
    questions: dict[str, list[Question]] = {}
    for key, question in away.asked:
        questions.setdefault(key, []).append(question)
    return questions
