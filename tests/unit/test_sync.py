"""`rota.sync`: whatever it gives out is sync too, and can be seen in a REPL."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rota
import rota.sync

AWAITED = ("__await__", "__aiter__", "__anext__", "__aenter__")
AT = datetime(2026, 1, 1, tzinfo=UTC)

Call = Callable[[rota.sync.Queue], Any]


def is_async(value: object) -> bool:
    """Whether it is awaited, or has public methods that are."""
    if any(hasattr(type(value), name) for name in AWAITED):
        return True
    found = (inspect.getattr_static(value, name) for name in dir(value) if not name.startswith("_"))
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in found)


def parts(value: object) -> Iterator[object]:
    """All that is in it, at any depth."""
    yield value
    inner: Iterable[object] = ()
    if isinstance(value, Mapping):
        inner = (*value.keys(), *value.values())
    elif isinstance(value, msgspec.Struct):
        inner = [getattr(value, name) for name in value.__struct_fields__]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = value
    for each in inner:
        yield from parts(each)


app = rota.App()


@app.task
def double(n: int) -> int:
    return 2 * n


def bound(queue: rota.sync.Queue) -> list[object]:
    """All that comes of a function that is bound to a queue."""
    function = queue.bind(double)
    sent = function.options(priority=1).submit(5)
    assert (sent.task.priority, sent.get().id, sent.cancel("never mind").status) == (1, sent.id, "cancelled")
    with pytest.raises(rota.TaskFailed, match=f"^double was cancelled: never mind \\(task {sent.id}\\)$"):
        sent.result(timeout=30)
    return [function, function.options(), function.args(1), sent, function.map([1, 2])]


def a_task(queue: rota.sync.Queue) -> str:
    return queue.submit("work").id


def a_deleted_schedule(queue: rota.sync.Queue) -> str:
    queue.delete_schedule("hourly")
    return "hourly"


def a_cancelled_task(queue: rota.sync.Queue) -> str:
    return queue.cancel(a_task(queue)).id


def a_template(queue: rota.sync.Queue) -> str:
    return queue.create_template("made", "work").id


def a_calendar(queue: rota.sync.Queue) -> str:
    return queue.create_calendar("made", windows=["22:00-06:00"]).name


def crowded(queue: rota.sync.Queue) -> rota.Spread:
    for number in range(8):
        queue.create_schedule(f"daily-{number}", task_type="work", cron="30 4 * * *")
    return queue.spread(dry_run=True)


def an_open_artifact(queue: rota.sync.Queue) -> rota.sync.OpenArtifact:
    app = rota.App()

    @app.task("leave")
    def leave(context: rota.Context) -> None:
        context.artifact("note.txt", "left in a thread")

    inside: Any = queue
    task = queue.submit("leave")
    inside._portal.call(rota.Worker(inside._queue, app).run_once())
    return queue.open_artifact(task.id, "note.txt")


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
CALLS: dict[str, Call] = {
    "archive": lambda queue: queue.archive(a_cancelled_task(queue)),
    "bind": bound,
    "backfill": lambda queue: queue.backfill("hourly", LONG_AGO, LONG_AGO),
    "cancel_backfill": lambda queue: (
        queue.backfill("hourly", LONG_AGO, LONG_AGO),
        queue.cancel_backfill("hourly"),
    ),
    "artifacts": lambda queue: queue.artifacts(a_task(queue)),
    "cancel": lambda queue: queue.cancel(a_task(queue)),
    "cancel_many": lambda queue: queue.cancel_many(),
    "cancel_page": lambda queue: queue.cancel_page(),
    "count": lambda queue: queue.count(),
    "count_schedules": lambda queue: queue.count_schedules(),
    "create_key": lambda queue: queue.create_key("ci", "viewer"),
    "create_schedule": lambda queue: queue.create_schedule("other", task_type="work", interval=60),
    "create_schedules": lambda queue: queue.create_schedules({"many": {"task_type": "t", "interval": "1h"}}),
    "apply": lambda queue: queue.apply({}),
    "export": lambda queue: queue.export(),
    "plan": lambda queue: queue.plan({}),
    "forecast": lambda queue: queue.forecast(),
    "last_day": lambda queue: queue.last_day(),
    "plan_create": lambda queue: queue.plan_create("planned", task_type="work", cron="@daily"),
    "plan_update": lambda queue: queue.plan_update("hourly", priority=3),
    "spread": crowded,
    "create_calendar": lambda queue: queue.create_calendar("free", days=["2027-12-24"]),
    "get_calendar": lambda queue: queue.get_calendar(a_calendar(queue)),
    "list_calendars": lambda queue: queue.list_calendars(),
    "update_calendar": lambda queue: queue.update_calendar(a_calendar(queue), days=["2027-12-31"]),
    "delete_calendar": lambda queue: queue.delete_calendar(a_calendar(queue)),
    "create_template": lambda queue: queue.create_template("other", "work"),
    "create_tenant": lambda queue: queue.create_tenant("other"),
    "declare_schedules": lambda queue: queue.declare_schedules(rota.App()),
    "declare_limits": lambda queue: queue.declare_limits(rota.App()),
    "delete_schedule": lambda queue: queue.delete_schedule("hourly"),
    "delete_template": lambda queue: queue.delete_template(a_template(queue)),
    "disable_schedule": lambda queue: queue.disable_schedule("hourly"),
    "enable_schedule": lambda queue: queue.enable_schedule("paused"),
    "drain_queue": lambda queue: queue.drain_queue("mail"),
    "events": lambda queue: queue.events(),
    "execute_template": lambda queue: queue.execute_template(a_template(queue)),
    "explained_runs": lambda queue: (queue.trigger_schedule("hourly"), queue.explained_runs("hourly")),
    "for_tenant": lambda queue: queue.for_tenant("other"),
    "get": lambda queue: queue.get(a_task(queue)),
    "task_id": lambda queue: queue.task_id(a_task(queue)[:30]),
    "schedule_id": lambda queue: queue.schedule_id("hourly"),
    "template_id": lambda queue: queue.template_id(a_template(queue)),
    "get_schedule": lambda queue: queue.get_schedule("hourly"),
    "get_template": lambda queue: queue.get_template(a_template(queue)),
    "get_tenant": lambda queue: queue.get_tenant("acme"),
    "history": lambda queue: queue.history(a_task(queue)),
    "limit_kind": lambda queue: queue.limit_kind("work", rate="100/m"),
    "limit_queue": lambda queue: queue.limit_queue("default", concurrency=5),
    "last_runs": lambda queue: queue.last_runs(queue.list_schedules()),
    "list": lambda queue: queue.list(),
    "alarms": lambda queue: queue.alarms(),
    "alarm_rules": lambda queue: queue.alarm_rules(),
    "set_alarm_rules": lambda queue: queue.set_alarm_rules("money", alarm_failures=2),
    "remove_alarm_rules": lambda queue: queue.remove_alarm_rules("money"),
    "list_keys": lambda queue: queue.list_keys(),
    "list_queues": lambda queue: queue.list_queues(),
    "list_schedules": lambda queue: queue.list_schedules(),
    "list_templates": lambda queue: queue.list_templates(),
    "list_tenants": lambda queue: queue.list_tenants(),
    "mark_expired": lambda queue: queue.mark_expired(a_task(queue)),
    "sorted_schedules": lambda queue: queue.sorted_schedules(),
    "nodes": lambda queue: queue.nodes(),
    "now": lambda queue: queue.now(),
    "pause_queue": lambda queue: queue.pause_queue("mail"),
    "open_artifact": lambda queue: an_open_artifact(queue),
    "open_schedules": lambda queue: queue.open_schedules(),
    "overview": lambda queue: queue.overview(),
    "pause_schedule": lambda queue: queue.pause_schedule("hourly"),
    "preview": lambda queue: queue.preview("hourly"),
    "preview_timing": lambda queue: queue.preview_timing(cron="0 9 * * *"),
    "recent": lambda queue: queue.recent(back=60),
    "replay": lambda queue: queue.replay(a_cancelled_task(queue)),
    "replay_many": lambda queue: queue.replay_many(since=60),
    "replay_page": lambda queue: queue.replay_page(),
    "request_cancellation": lambda queue: queue.request_cancellation(a_task(queue)),
    "restore_schedule": lambda queue: queue.restore_schedule(a_deleted_schedule(queue)),
    "resume_queue": lambda queue: queue.resume_queue("mail"),
    "resume_schedule": lambda queue: queue.resume_schedule("paused"),
    "resume_tenant": lambda queue: (queue.suspend_tenant("acme"), queue.resume_tenant("acme")),
    "revoke_key": lambda queue: queue.revoke_key(queue.create_key("ci", "viewer")[0].id),
    "run_due": lambda queue: queue.run_due(),
    "run_tree": lambda queue: queue.run_tree(queue.start_workflow("work").id),
    "count_runs": lambda queue: queue.count_runs("hourly"),
    "runs": lambda queue: (queue.trigger_schedule("hourly"), queue.runs("hourly")),
    "put_back_schedule": lambda queue: queue.put_back_schedule("hourly", 1),
    "schedule_history": lambda queue: queue.schedule_history("hourly"),
    "set_limits": lambda queue: queue.set_limits("acme", schedules=5),
    "signal": lambda queue: queue.signal(queue.start_workflow("work").id, "paid", 1),
    "steps": lambda queue: queue.steps(queue.start_workflow("work").id),
    "unread_signals": lambda queue: queue.unread_signals(queue.start_workflow("work").id),
    "start_workflow": lambda queue: queue.start_workflow("work"),
    "start_workflows": lambda queue: queue.start_workflows([("work", None)]),
    "submit": lambda queue: queue.submit("work"),
    "submit_many": lambda queue: queue.submit_many([("work", None)]),
    "suspend_tenant": lambda queue: queue.suspend_tenant("acme"),
    "task_limits": lambda queue: queue.task_limits(),
    "trigger_schedule": lambda queue: queue.trigger_schedule("hourly"),
    "update_schedule": lambda queue: queue.update_schedule("hourly", interval=120),
    "update_template": lambda queue: queue.update_template(a_template(queue), queue="slow"),
    "wait": lambda queue: queue.wait(a_cancelled_task(queue)),
    "waiting": lambda queue: queue.waiting(a_task(queue)),
    "why": lambda queue: queue.why("hourly", AT),
    "clock_changes": lambda queue: queue.clock_changes("hourly"),
    "close": lambda queue: queue.close(),
}
"""Every call, made so that it succeeds."""
PROPERTIES = {"tenant", "actor", "clock"}


@contextmanager
def prepared() -> Iterator[rota.sync.Queue]:
    with rota.sync.connect("memory:") as queue:
        queue.create_schedule("hourly", task_type="work", interval=3600)
        queue.create_schedule("paused", task_type="work", interval=3600)
        queue.pause_schedule("paused")
        queue.create_tenant("acme")
        yield queue


@pytest.fixture
def queue() -> Iterator[rota.sync.Queue]:
    with prepared() as queue:
        yield queue


def public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def test_a_queue_for_another_tenant_submits(queue: rota.sync.Queue) -> None:
    acme = queue.for_tenant("acme")
    task = acme.submit("greet")
    assert acme.get(task.id).tenant == "acme"
    assert acme.for_tenant("default").count() == 0
    assert (acme.tenant, queue.tenant) == ("acme", "default")


def test_closing_either_closes_both() -> None:
    queue = rota.sync.connect("memory:")
    acme = queue.for_tenant("acme")
    acme.close()
    queue.close()
    for closed in (queue, acme):
        with pytest.raises(rota.Unavailable, match="is closed: open another"):
            closed.submit("greet")


def test_a_callback_of_a_call_is_refused_the_queue(queue: rota.sync.Queue) -> None:
    queue.submit("work")

    def submit(done: int) -> None:
        queue.submit("more")

    def close(done: int) -> None:
        queue.close()

    for use in (submit, close):
        with pytest.raises(RuntimeError, match="a callback of a call cannot use the queue that calls it"):
            queue.cancel_many(kind="work", report=use)
    assert queue.count() == 1


FORKING = """
import os, sys, rota, rota.sync
with rota.sync.connect(sys.argv[1]) as queue:
    if (child := os.fork()) == 0:
        with queue:
            try:
                queue.submit("lost")
            except rota.Unavailable as problem:
                print(problem, flush=True)
        with rota.sync.connect(sys.argv[1]) as own:
            own.submit("kept")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print([task.kind for task in queue.list()])
"""


def test_a_forked_process_is_told_to_open_a_queue_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, f"sqlite:///{tmp_path}/rota.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    problem = "this queue was opened by the process that this one was forked from"
    assert done.stdout.splitlines() == [f"{problem}: open another with rota.sync.connect()", "['kept']"]


def test_dir_and_help_show_every_call(queue: rota.sync.Queue) -> None:
    assert public(queue) == public(rota.Queue) | PROPERTIES
    assert public(queue) == {*CALLS, *PROPERTIES}
    assert str(inspect.signature(queue.submit)).startswith("(kind: 'str', input: 'Any' = None")
    assert (queue.submit.__doc__ or "").startswith("Submit a task")


def test_nothing_that_a_queue_gives_out_is_async(queue: rota.sync.Queue) -> None:
    inner = vars(queue)["_queue"]  # the stub has no private parts
    assert all(map(is_async, (inner, inner.store, rota.connect("memory:"))))
    assert not is_async(queue)
    for name in PROPERTIES:
        assert not is_async(getattr(queue, name)), name
    for name, call in CALLS.items():
        with prepared() as fresh:
            for part in parts(call(fresh)):
                assert not is_async(part), f"{name} gave out {part!r}"


def test_the_walk_finds_what_is_async_at_any_depth(queue: rota.sync.Queue) -> None:
    hidden = vars(queue)["_queue"]
    for value in ({"a": [hidden]}, {hidden: 1}, rota.RetryPolicy(multiplier=hidden), [({"b": hidden},)]):
        assert any(map(is_async, parts(value)))


def test_an_artifact_is_read_without_an_event_loop(queue: rota.sync.Queue, tmp_path: Path) -> None:
    opened = an_open_artifact(queue)
    assert opened.artifact.media_type == "text/plain; charset=utf-8"
    assert opened.read() == b"left in a thread"
    assert b"".join(opened.chunks(5, 7)) == b"in"
    opened.save(tmp_path / "note.txt")
    assert (tmp_path / "note.txt").read_text() == "left in a thread"
