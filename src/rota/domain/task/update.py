"""A change that is the same for every task of a batch, as a value: `life.claiming` and `life.completing` make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from ..model import Change, Task
from .shortening import ShortHistory, last_number, whole_history

_facts_of_lines = attrgetter("status", "started_at", "completed_at", "updated_at", "worker_id", "attempt")
"""The fields that the lines of a history are told from."""


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is the same for every task of a batch, as a value. So a store can apply it in one statement to all
    tasks that a query finds or a work names, and knows no rule.

    Each part names fields. `set` has their new values. `add` has numbers to add. `fill` has values by the kind of the
    task, for fields that are None. `by_id` has values by the id of the task; a missing id means None. If the status is
    set, the history gets one more line: the last that the fields imply (see `whole_history`). If that is a completion,
    it is by `actor`."""

    set: Mapping[str, Any]
    add: Mapping[str, int] = MappingProxyType({})
    fill: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    by_id: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    actor: str | None = None

    @property
    def sets_status(self) -> bool:
        return "status" in self.set

    @property
    def fields(self) -> frozenset[str]:
        """The fields that may differ after it, the history aside."""
        return frozenset((*self.set, *self.add, *self.fill, *self.by_id))

    def applied_to(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks after the change: what every store must make of them. Tasks that were claimed together have the
        same history: it gets its line once for all of them."""
        changed: list[Task] = []
        before: tuple[Change, ...] | None = None
        facts: tuple[Any, ...] = ()
        history: tuple[Change, ...] = ()
        for task in tasks:
            new = replace(task, **self.set, **self._own_fields(task))
            if self.sets_status and (task.history is not before or _facts_of_lines(new) != facts):
                before, facts = task.history, _facts_of_lines(new)
                history = whole_history(new, ShortHistory(before, last_number(before) + 1, self.actor))
            changed.append(replace(new, history=history) if self.sets_status else new)
        return changed

    def _own_fields(self, task: Task) -> dict[str, Any]:
        fields = {name: getattr(task, name) + number for name, number in self.add.items()}
        for name, by_kind in self.fill.items():
            if getattr(task, name) is None:
                fields[name] = by_kind.get(task.kind)
        for name, values in self.by_id.items():
            fields[name] = values.get(task.id)
        return fields
