"""Those outside, and the roles of a node that tell them: people by notices of alarms, a monitor by pings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from ..domain.checks import check_number
from ..domain.runtimes import check_url
from .observe.log import log_observation
from .observe.telemetry import Observer, fan_out
from .roles.leases import QueueLike
from .roles.notices import Notices
from .roles.pings import Pings

NOTICES_PER_HOUR = 12


class OutwardOptions(TypedDict, total=False):
    """The options about those outside: `notify` are addresses for notices of alarms, as apprise knows them, and
    `notices_per_hour` how many there are at most; `heartbeat_url` is asked for every minute while the fleet is well."""

    notify: Sequence[str]
    notices_per_hour: int
    heartbeat_url: str | None


def outward_roles(
    queue: QueueLike, options: OutwardOptions, observers: Iterable[Observer], allow_private: bool
) -> tuple[Notices | None, Pings]:
    """The roles that tell those outside."""
    url, addresses = options.get("heartbeat_url"), options.get("notify", ())
    if url is not None:
        check_url(url, "heartbeat_url")
    per_hour = check_number("notices_per_hour", options.get("notices_per_hour", NOTICES_PER_HOUR), 1, 100_000)
    notices = Notices(queue.store, addresses, per_hour=per_hour) if addresses else None
    observe = fan_out((log_observation, *observers))
    return notices, Pings(queue.store, queue.clock, observe, fleet_url=url, allow_private=allow_private)
