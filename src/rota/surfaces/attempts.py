"""The attempts of a task, as its history tells them: each claim, and the line that ended it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ..domain.model import Change, ChangeType, TaskStatus


class Attempt(NamedTuple):
    """One time that a worker took a task: when it could have begun, when it began, when and how it ended."""

    number: int | None
    worker: str
    ready_at: datetime
    began_at: datetime
    ended: Change | None

    def length(self, now: datetime) -> timedelta:
        return (self.ended.at if self.ended else now) - self.began_at


def attempts_of(history: Sequence[Change]) -> list[Attempt]:
    found: list[Attempt] = []
    for place, line in enumerate(history):
        if line.type is ChangeType.CLAIMED:
            ended = next(
                (each for each in history[place + 1 :] if each.status is not TaskStatus.RUNNING), None
            )
            before = history[place - 1] if place else line
            ready_at = min(before.at + before.delay, line.at)
            found.append(Attempt(line.attempt, line.actor, ready_at, line.at, ended))
    return found
