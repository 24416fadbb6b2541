"""The views: objects for people and scripts. Rota never reads them.

    schedules/{key}.json                  the schedule: all its options, and its state
    schedules/{key}/last_run.json         when it ran last, which task that was, when it runs next
    schedules/{key}/history/{time}.json   what became of one expected time
    tasks/{id}.json                       a task that has ended, if asked for (`?views=tasks`)

Views of other tenants are under `tenants/{tenant}/`. Characters that some services refuse in a key are written as `~`
and their code. So is the dot of a schedule named `a.json`: its folder would have the name of the view of `a`, and no
file system has both.

**After a commit** a node writes the views that its commit changed. If it dies before that, or somebody deletes a view,
the next comparison repairs it. **A comparison** lists the views, writes the missing and the old ones, and removes views
that belong to no record. It makes the only LIST of a running node, so it comes once after a start, then once a day, and
after a failure. The node that purges a schedule also removes its views. Views of a kind that this node does not write
(those of tasks, without `?views=tasks`) are left alone: another node may write them.

A view that cannot be written stops no other. It is tried again by comparisons that come ever more rarely. Only if no
view can be written for a while, the service is taken to be down, and the rest is left for later.

Several nodes write one view, and a PUT has no order. So a node reads the log before it writes views, and again
afterwards. If a record has changed meanwhile, the node may have written over a newer view, and it writes the view
again. Only a node that stops between the two leaves an old view behind, until the comparison.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b, md5
from typing import Any
from urllib.parse import quote

import msgspec

from ...domain.errors import StoreError, Unavailable
from ...domain.model import Record, RetryPolicy, Run, RunTrigger, Schedule, Target, Task
from ...domain.recurrence import After, Cron, Interval, Once, RRule, Several, Timing
from ...domain.schedule.definition import SCHEDULE_FIELDS
from ..codec import TABLES
from ..memory.finders import walk
from ..queries import RunList, ScheduleByKey
from .archive.lookups import LookupResults, SegmentCache, answer_all, read_with_archive
from .commit import Committed
from .log import Log
from .service.bucket import ListedObject
from .service.clock import Moment

View = tuple[str, bytes | None]
"""A key and its text. None means that nothing should be there."""

_LONGEST = 150
_ENDING = ".json"


def view_folders(*, tasks: bool) -> tuple[str, ...]:
    """The prefixes of all views."""
    return ("schedules/", "tasks/", "tenants/") if tasks else ("schedules/", "tenants/")


def is_view(key: str, *, tasks: bool) -> bool:
    """Whether a key in one of the folders is a view that this node writes. With `tasks` it writes those of tasks, too;
    without, another node may."""
    parts = key.split("/")
    kind = parts[2] if parts[0] == "tenants" and len(parts) > 3 else parts[0]
    return key.endswith(".json") and (kind == "schedules" or (tasks and kind == "tasks"))


def views_of(record: Record, schedule: Schedule | None, *, gone: bool, tasks: bool) -> Iterator[View]:
    """The views that a record has now. `schedule` is the one that a run belongs to."""
    if isinstance(record, Schedule):
        yield from _schedule_views(record, gone=gone or record.deleted_at is not None)
    elif isinstance(record, Run) and schedule is not None:
        yield _history(schedule, record), _text(None if gone else _run(schedule, record))
    elif tasks and isinstance(record, Task) and not record.is_live:
        yield f"{_tenant(record)}tasks/{_name(record.id)}.json", _text(None if gone else record)


def _schedule_views(schedule: Schedule, *, gone: bool) -> Iterable[View]:
    last = None if gone or schedule.last_run_at is None else _last_run(schedule)
    return [
        (f"{_home(schedule)}.json", _text(None if gone else _definition(schedule))),
        (f"{_home(schedule)}/last_run.json", _text(last)),
    ]


def _home(schedule: Schedule) -> str:
    name = _name(schedule.key)
    if name.lower().endswith(_ENDING):
        name = f"{name[: -len(_ENDING)]}~2E{name[1 - len(_ENDING) :]}"
    return f"{_tenant(schedule)}schedules/{name}"


def _history(schedule: Schedule, run: Run) -> str:
    kind = "" if run.trigger is RunTrigger.SCHEDULED else f"-{run.trigger}"  # a manual run has its own
    return f"{_home(schedule)}/history/{_time(run.scheduled_at)}{kind}.json"


def _tenant(record: Record) -> str:
    return "" if record.tenant == "default" else f"tenants/{_name(record.tenant)}/"


def _time(at: datetime) -> str:
    shape = "%Y-%m-%dT%H-%M-%SZ" if at.microsecond == 0 else "%Y-%m-%dT%H-%M-%S.%fZ"
    return at.astimezone(UTC).strftime(shape)


def _name(text: str) -> str:
    """A text as a part of a key. It is readable where possible, and no two texts have one name."""
    safe = quote(text, safe="@+=").replace("~", "%7E").replace("%", "~")
    if safe.startswith("."):
        safe = "~2E" + safe[1:]
    if len(safe) <= _LONGEST:
        return safe
    return f"{safe[:_LONGEST]}~{blake2b(text.encode(), digest_size=8).hexdigest()}"


def _text(value: Any) -> bytes | None:
    return None if value is None else msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _definition(schedule: Schedule) -> dict[str, Any]:
    """Every option of a schedule by its name, durations in seconds, and then its state."""
    given = {name: _value(getattr(schedule, name)) for name in SCHEDULE_FIELDS}
    return {
        "id": schedule.key,
        **_target(schedule.target),
        **_timing(schedule.timing),
        "timezone": schedule.timezone,
        "enabled": schedule.enabled,
        **given,
        "next_run_at": schedule.next_run_at,
        "run_count": schedule.run_count,
        "created_at": schedule.created_at,
        "created_by": schedule.created_by,
        "updated_at": schedule.updated_at,
        "updated_by": schedule.updated_by,
    }


def _target(target: Target) -> dict[str, Any]:
    names = {"kind": "task_type", "metadata": "target_metadata"}  # a schedule has metadata of its own
    fields = {names.get(name, name): _value(getattr(target, name)) for name in target.__struct_fields__}
    return {"target_type": target.__struct_config__.tag, **fields}


def _timing(timing: Timing) -> dict[str, Any]:
    match timing:
        case Cron(expression=expression, day_match=day_match):
            matched = {} if day_match == "or" else {"day_match": day_match}
            return {"cron": expression, **matched, **_choices(timing)}
        case Interval(every=every, anchor=anchor):
            return {"interval": every.total_seconds(), "anchor": anchor}
        case RRule(rule=rule, dtstart=dtstart):
            return {"rrule": rule, "dtstart": dtstart, **_choices(timing)}
        case Once(run_at=run_at):
            return {"run_at": run_at}
        case Several(timings=timings):
            zoned = ({"timezone": getattr(part, "timezone", "UTC")} | _timing(part) for part in timings)
            return {"timings": list(zoned)}
        case After(schedules=schedules, on=on, delay=delay):
            return {"after": schedules, "after_on": on, "after_delay": delay.total_seconds()}


def _choices(timing: Cron | RRule) -> dict[str, Any]:
    """The choices for daylight saving."""
    chosen = {"dst_gap": timing.dst_gap, "dst_fold": timing.dst_fold}
    return {name: value for name, value in chosen.items() if value is not None}


def _value(value: Any) -> Any:
    """Durations in seconds, also those of a retry policy."""
    if isinstance(value, RetryPolicy):
        return {name: _value(getattr(value, name)) for name in value.__struct_fields__}
    return value.total_seconds() if isinstance(value, timedelta) else value


def _last_run(schedule: Schedule) -> dict[str, Any]:
    return {
        "schedule_id": schedule.key,
        "last_run_at": schedule.last_run_at,
        "last_task_id": schedule.last_task_id,
        "next_run_at": schedule.next_run_at,
    }


def _run(schedule: Schedule, run: Run) -> dict[str, Any]:
    return {
        "schedule_id": schedule.key,
        "scheduled_at": run.scheduled_at,
        "until": run.until,
        "count": run.count,
        "trigger": run.trigger,
        "status": run.status,
        "reason": run.reason,
        "task_id": run.target_id,
        "started_at": run.started_at,
        "completed_at": run.completed_at,
        "error": run.error,
        "causes": run.causes,
    }


_AT_ONCE = 8
_REMOVED_AT_ONCE = 1000
_ROUNDS = 8
_REMEMBERED = 1000

_GIVE_UP_AFTER = timedelta(seconds=10)
"""If no view could be written for this long, the rest is not tried."""

_FIRST_PAUSE = timedelta(minutes=1)
"""Between the first comparison that failed and the next; then twice as long each time."""


class ViewWriter:
    """Runs in the upkeep thread."""

    def __init__(self, log: Log, segment_cache: SegmentCache) -> None:
        self._log = log
        self._bucket = log.bucket
        self._replica = log.replica
        self._stopwatch = log.time.stopwatch
        self._tuning = log.tuning
        self._segment_cache = segment_cache
        self._compared_at: Moment | None = None
        self._is_behind = False
        """Whether a view could not be written since the last comparison."""

        self._failures = 0
        """Comparisons in a row that failed."""

        self._errors: list[StoreError] = []
        self._failing_since: Moment | None = None
        self._owners: OrderedDict[str, Schedule] = OrderedDict()
        """Schedules whose runs were deleted lately. When the views of the runs are removed, the schedule may be gone,
        too."""

        self.enabled = log.tuning.views != "off"
        self.folders = view_folders(tasks=self._of_tasks) if self.enabled else ()

    def note(self, commit: Committed) -> None:
        """Called in the writer thread, when the commit has just been applied."""
        gone = {each.id: each for each in commit.deletes if isinstance(each, Schedule)}
        with self._replica.lock:
            for id in {each.schedule_id for each in commit.deletes if isinstance(each, Run)}:
                owner = gone.get(id) or self._schedule(id)
                if owner is not None:
                    self._owners[id] = owner
                    self._owners.move_to_end(id)
            while len(self._owners) > _REMEMBERED:
                self._owners.popitem(last=False)

    def follow(self, commits: list[Committed]) -> bool:
        """Write the views that these commits changed; whether there were any, and no earlier one is still missing."""
        gone = {(type(record), record.id): record for each in commits for record in each.deletes}
        changed = {(type(row.record), row.record.id): row.record for each in commits for row in each.puts}
        put = [record for key, record in changed.items() if key not in gone and self._has_view(record)]
        removed = [record for record in gone.values() if self._has_view(record)]
        self._errors.clear()
        try:
            self._write(put, _AT_ONCE)
            self._write(removed, _REMOVED_AT_ONCE)
            self._raise_first_error()
        except Exception:
            self._is_behind = True  # the next comparison writes them
            raise
        return bool(put or removed) and not self._is_behind

    def compare(self) -> bool:
        """Write missing and old views and remove left-over ones, if it is time to; whether it was."""
        if not self._is_time():
            return False
        self._compared_at = self._stopwatch.moment()
        self._errors.clear()
        try:
            self._compare()
            self._raise_first_error()
        except Exception:
            self._is_behind = True
            self._failures += 1
            raise
        self._is_behind = False
        self._failures = 0
        return True

    def _is_time(self) -> bool:
        if self._compared_at is None:
            return True
        if self._is_behind and not self._failures:
            return True
        pause = _FIRST_PAUSE * 2 ** min(self._failures, 20) / 2 if self._is_behind else timedelta.max
        return self._stopwatch.since(self._compared_at) >= min(pause, self._tuning.rebuild_every)

    def _compare(self) -> None:
        found = (each for home in self.folders for each in self._bucket.list_objects(home))
        written = {key: about for key, about in found if is_view(key, tasks=self._of_tasks)}
        self._log.catch_up()  # after the list, so that every record with a listed view is known
        for records in self._differences(written):
            self._write(records, _AT_ONCE)
        self._put(dict.fromkeys(written))

    def _write(self, records: list[Record], at_once: int) -> None:
        """Write the views of these records until they agree with the newest state."""
        wrote: dict[str, int] = {}
        for _ in range(_ROUNDS if records else 0):
            self._log.catch_up()
            if not self._write_once(records, at_once, wrote):
                return
        if records:
            self._errors.append(Unavailable("views change faster than they can be written"))

    def _write_once(self, records: list[Record], at_once: int, wrote: dict[str, int]) -> bool:
        """Write the views that differ from the last round; whether there were any."""
        any_differ = False
        for start in range(0, len(records), at_once):  # each batch from the newest state
            read = partial(self._views, records[start : start + at_once])
            views = read_with_archive(self._replica.lock, self._segment_cache, read)
            views = {key: text for key, text in views.items() if wrote.get(key) != hash(text)}
            self._put(views)  # a failed one is not tried again in the next round, unless it has changed
            wrote.update({key: hash(text) for key, text in views.items()})
            any_differ = any_differ or bool(views)
        return any_differ

    def _differences(self, written: dict[str, ListedObject]) -> Iterator[list[Record]]:
        """The records whose views are to be written. Views that are right are taken out of `written`."""
        with self._replica.lock:
            schedules = {
                row.record.id: row.record
                for row in self._replica.live.rows(Schedule)
                if isinstance(row.record, Schedule)
            }
        for records in self._records():
            doubtful: list[tuple[Record, str, bytes]] = []
            differ: dict[str, Record] = {}
            for record in records:
                schedule = schedules.get(record.schedule_id) if isinstance(record, Run) else None
                for key, text in views_of(record, schedule, gone=False, tasks=self._of_tasks):
                    about = written.pop(key, None) if text is not None else None
                    if text is None or (about is not None and _is_same(about, text)):
                        continue
                    if about is None or about.size != len(text):
                        differ[record.id] = record
                    else:
                        doubtful.append((record, key, text))
            differ.update({record.id: record for record in self._unequal(doubtful)})
            yield list(differ.values())

    def _unequal(self, doubtful: list[tuple[Record, str, bytes]]) -> list[Record]:
        """The records whose views have the right size and the wrong text. Only reading tells."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rota-views") as readers:
            found = readers.map(lambda each: self._bucket.get(each[1]) == each[2], doubtful)
            return [record for (record, _, _), same in zip(doubtful, found, strict=True) if not same]

    def _records(self) -> Iterator[list[Record]]:
        """All records that have a view, live and archived."""
        for each in (Schedule, Run, Task) if self._of_tasks else (Schedule, Run):
            with self._replica.lock:
                rows = self._replica.live.rows(each)
                segments = list(self._replica.archive.segments.values())
            yield [row.record for row in rows]
            for held in segments:
                if (name := TABLES[each].name) in held.ids:
                    rows = self._segment_cache.load(held.key).rows(each)
                    yield [row.record for row in rows if (name, row.record.id) not in held.obsolete]

    def _has_view(self, record: Record) -> bool:
        return isinstance(record, Schedule | Run) or (self._of_tasks and isinstance(record, Task))

    @property
    def _of_tasks(self) -> bool:
        return self._tuning.views == "tasks"

    def _views(self, records: list[Record], results: LookupResults) -> dict[str, bytes | None]:
        found = answer_all(results, (partial(self._now, record, results) for record in records))
        return dict(view for views in found for view in views)

    def _now(self, record: Record, results: LookupResults) -> list[View]:
        """The views from the newest state: a later commit may have changed the record again, or moved it."""
        row = self._replica.row(type(record), record.id, results)
        now = record if row is None else row.record
        if isinstance(now, Run):
            return self._history_now(now, results, gone=row is None)
        if isinstance(now, Schedule) and (row is None or now.deleted_at is not None):
            for holder in self._of_key(now):  # another schedule has the key now, and with it the view
                return list(views_of(holder, None, gone=False, tasks=self._of_tasks))
        return list(views_of(now, None, gone=row is None, tasks=self._of_tasks))

    def _history_now(self, run: Run, results: LookupResults, *, gone: bool) -> list[View]:
        owner = self._schedule(run.schedule_id)
        gone = gone or owner is None
        owner = owner or self._owners.get(run.schedule_id)
        if owner is None:
            return []
        others = (*self._of_key(owner), *self._of_key(owner, deleted=True)) if gone else ()
        for other in others:  # a schedule with the same key may have run at the same time
            at = RunList(schedule_id=other.id, since=run.scheduled_at, until=run.scheduled_at)
            for row in self._replica.walk(at, _AT_ONCE, results):
                found = row.record
                if isinstance(found, Run) and found.trigger is run.trigger and found.id != run.id:
                    return list(views_of(found, other, gone=False, tasks=self._of_tasks))
        return list(views_of(run, owner, gone=gone, tasks=self._of_tasks))

    def _schedule(self, id: str) -> Schedule | None:
        row = self._replica.live.row(Schedule, id)
        return row.record if row is not None and isinstance(row.record, Schedule) else None

    def _of_key(self, schedule: Schedule, *, deleted: bool = False) -> Iterator[Schedule]:
        query = ScheduleByKey(tenant=schedule.tenant, key=schedule.key, deleted=deleted)
        return (found for found in walk(self._replica.live, query) if isinstance(found, Schedule))

    def _put(self, views: Mapping[str, bytes | None]) -> None:
        """Write or remove each view, even if others fail."""
        written = [(key, text) for key, text in views.items() if text is not None]
        removed = [key for key, text in views.items() if text is None]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rota-views") as writers:
            self._count(writers.map(lambda view: _error_of(lambda: self._bucket.put(*view)), written))
        batches = (removed[at : at + _REMOVED_AT_ONCE] for at in range(0, len(removed), _REMOVED_AT_ONCE))
        self._count(_error_of(partial(self._bucket.delete, batch)) for batch in batches)

    def _count(self, errors: Iterable[StoreError | None]) -> None:
        for error in errors:
            if error is None:
                self._failing_since = None
                continue
            self._errors.append(error)
            self._failing_since = self._failing_since or self._stopwatch.moment()
            if self._stopwatch.since(self._failing_since) >= _GIVE_UP_AFTER:
                self._raise_first_error()

    def _raise_first_error(self) -> None:
        """Called when all views were tried."""
        errors, self._errors = self._errors, []
        self._failing_since = None
        for error in errors:
            raise error


def _error_of(request: Callable[[], object]) -> StoreError | None:
    try:
        request()
    except StoreError as error:
        return error
    return None


def _is_same(written: ListedObject, text: bytes) -> bool:
    """Whether a view has this text. No read is needed where an ETag is a hash of the body."""
    return (
        written.etag is not None and written.etag.strip('"') == md5(text, usedforsecurity=False).hexdigest()
    )
