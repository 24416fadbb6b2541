"""Who is there to run tasks."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from .shared import Record


class NodeState(Record, frozen=True, kw_only=True, tag_field="record", tag="node.1"):
    """A process that runs roles, as it says of itself every `heartbeat`. `id` is the `worker_id` of the tasks that it
    takes; `tenant` is whose tasks it takes, `*`: those of every tenant; `queues` are those that it serves, None: all.
    `running` counts by kind what it ran when it was seen last; None: that is not told. `workflows` has the kinds that
    are workflows, each with the oldest and the newest version of a run that the node can continue."""

    host: str
    pid: int
    release: str
    roles: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    workflows: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    queues: tuple[str, ...] | None = None
    slots: int = 0
    running: dict[str, int] | None = msgspec.field(default_factory=dict)
    started_at: datetime
    seen_at: datetime
    heartbeat: timedelta


class PausedQueue(Record, frozen=True, kw_only=True, tag_field="record", tag="paused_queue.1"):
    """A queue of a tenant whose tasks no worker takes. There is such a record while it is paused."""

    queue: str
    note: str = ""
    paused_at: datetime
    paused_by: str
