"""Notices of alarms: when they are due, when they are tried again, and what they say. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from ..model import Alarm

__all__ = ["CLAIMED_FOR", "GATHERED_FOR", "claimed", "is_stale", "message", "recorded"]

GATHERED_FOR = timedelta(seconds=10)
"""A notice waits so long for others, which go along."""
CLAIMED_FOR = timedelta(minutes=5)
"""Who has not sent it by then is dead."""
STALE = timedelta(hours=1)
SHOWN = 20
FIRST_RETRY, LAST_RETRY = timedelta(seconds=30), timedelta(hours=1)
TRIES = 24


def is_stale(alarm: Alarm, now: datetime) -> bool:
    """Whether it was over so long ago that nobody need be told: nobody was there to tell it."""
    return alarm.over_at is not None and not alarm.told and now - alarm.over_at > STALE


def claimed(alarm: Alarm, now: datetime) -> Alarm:
    return replace(alarm, tell_at=now + CLAIMED_FOR, tries=alarm.tries + 1)


def recorded(alarm: Alarm, told: Collection[str], wanted: Collection[str], now: datetime) -> Alarm:
    """After a try: `told` have it, `wanted` should. What is missing is tried again, but not for ever."""
    known = tuple(dict.fromkeys((*alarm.told, *told)))
    done = set(wanted) <= set(known) or alarm.tries >= TRIES
    again = min(FIRST_RETRY * 2 ** min(alarm.tries, 20), LAST_RETRY)
    tell_at, tries = (None, 0) if done else (now + again, alarm.tries)
    return replace(alarm, told=known, told_at=now if told else alarm.told_at, tell_at=tell_at, tries=tries)


def message(alarms: Sequence[Alarm]) -> tuple[str, str]:
    """A title and a text: what is wrong first, then what is over."""
    began = [alarm for alarm in alarms if alarm.is_open]
    over = [alarm for alarm in alarms if not alarm.is_open]
    parts = [f"{len(each)} {what}" for each, what in ((began, "began"), (over, "over")) if each]
    if len(alarms) == 1:
        title = f"Rota: {alarms[0].subject}: {_state(alarms[0])}"
    else:
        title = f"Rota: alarms: {', '.join(parts)}"
    lines = [_line(alarm) for alarm in (*began, *over)]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"and {len(lines) - SHOWN} more; `rota alarms` lists them"]
    return title, "\n".join(lines)


def _state(alarm: Alarm) -> str:
    return f"alarm ({alarm.rule})" if alarm.is_open else f"alarm over ({alarm.rule})"


def _line(alarm: Alarm) -> str:
    at = alarm.over_at or alarm.began_at
    where = "" if alarm.tenant in ("default", "*") else f" of {alarm.tenant}"
    return f"{at.isoformat(timespec='seconds')} {alarm.subject}{where}: {_state(alarm)}: {alarm.detail}"
