"""The calls of a queue that look ahead: how much is coming, and taking the peaks out of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from ....domain.checks import check_duration
from ....domain.errors import Invalid, Refused
from ....domain.options import Duration
from ....domain.schedule.forecast import Forecast
from ....domain.schedule.spread import MINUTE, Spread, check_over, minute_of
from ....engine import commands, queries
from .base import Calls

AHEAD = timedelta(hours=24)
AT_ONCE = 500
_YEARS = (1970, 9998)
_BY = ("minute", "hour", "day")


class ForecastCalls(Calls):
    """See what is coming, and spread what comes all at once."""

    async def forecast(
        self, start: datetime | None = None, end: datetime | None = None, by: str = "hour"
    ) -> Forecast:
        """How many runs are expected from `start` (now) to before `end` (24 hours later), and how much work they are,
        by minute, hour or day on the clock of `start`; the busiest minutes, who is in them, and what spreading them
        would do. It comes from the schedules themselves, and from how long their last runs took."""
        if by not in _BY:
            raise Invalid("by", f"{by!r:.60} is not one of them", f"give {', '.join(_BY)}")
        now = await self.now()
        begin = now if start is None else _aware("start", start)
        until = begin + AHEAD if end is None else _aware("end", end)
        return (await queries.forecast(self.store, self.tenant, begin, until, by)).result()

    async def spread(
        self,
        at: datetime | None = None,
        over: Duration | None = None,
        *,
        token: str | None = None,
        dry_run: bool = False,
    ) -> Spread:
        """Spread the schedules that fire in the minute of `at` (the busiest of the next 24 hours) over a while: each
        gets an `offset`, so that all minutes of the while become equally busy. `over` is how long the while is; by
        default, the shortest that takes the peak to a quarter. A schedule that has an offset or a jitter is left alone,
        and one that fires again within the while. With `dry_run` nothing is changed. With the `token` of a dry run,
        exactly its changes are made, or none."""
        wanted = None if over is None else check_over(check_duration("over", over))
        if at is None:
            busiest = (await self.forecast()).busiest
            at = next((each.at for each in busiest if each.spread is not None), None)
            if at is None:
                raise Refused("nothing_to_spread", at="any minute of the next 24 hours")
        minute, now = minute_of(_aware("at", at)), await self.now()
        if minute + MINUTE <= now:
            raise Invalid("at", f"{at.isoformat()} has passed", "give a minute that is to come")
        ahead = (wanted or timedelta(hours=1)) + 2 * MINUTE
        counted = await queries.forecast(self.store, self.tenant, minute, minute + ahead)
        found = counted.spread(minute, wanted)
        if found is None or found.after >= found.before:
            raise Refused("nothing_to_spread", at=f"{minute.isoformat(timespec='minutes')}")
        moves, done = counted.moves(found), 0
        found = found.with_moves(moves)
        if token is not None and token != found.token:
            raise Refused("plan_outdated", changed="other schedules fire in these minutes now")
        if dry_run:
            return found
        for first in range(0, len(moves), AT_ONCE):
            some = moves[first : first + AT_ONCE]
            done += await self._commit(commands.spread_schedules(some, minute, found.over, self.actor))
        return replace(found, moving=done)


def _aware(name: str, at: object) -> datetime:
    """A naive time is the local time of the process."""
    if not isinstance(at, datetime):
        raise Invalid(name, f"{at!r:.60} is not a time", "give a datetime")
    if not _YEARS[0] <= at.year <= _YEARS[1]:
        raise Invalid(name, f"{at.isoformat()} is out of range", "give a time from {} to {}".format(*_YEARS))
    return at if at.utcoffset() is not None else at.astimezone()
