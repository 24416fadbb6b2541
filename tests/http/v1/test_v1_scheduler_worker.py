"""`test_scheduler_worker` of document 004: schedules made over HTTP, fired by the engine inside the server."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from http_world import eventually
from v1_world import Api, Task, at


def every_second(task: Task, **more: bool) -> dict[str, str]:
    made: dict[str, str] = task.schedule(schedule_type="interval", interval_seconds=1, **more)
    return made


def completed(task: Task, schedule: dict[str, str], status: str = "completed") -> list[str]:
    return [job["id"] for job in task.jobs(schedule) if job["status"] == status]


def test_worker_executes_due_schedules(api: Api) -> None:
    task = api.task("health_check")
    schedule = every_second(task)
    jobs = eventually(lambda: len(found := completed(task, schedule)) >= 2 and found)
    assert api.job(jobs[0])["artifact"]["result"]["cpu_percent"] == 1.5


def test_worker_skips_disabled_schedules(api: Api) -> None:
    task = api.task()
    off, on = every_second(task, enabled=False), every_second(task)
    eventually(lambda: len(completed(task, on)) >= 2)
    assert task.jobs(off) == []
    assert task.look(off)["last_run_at"] is None
    task.change(on, enabled=False)
    ran = len(task.jobs(on))
    task.change(off, enabled=True)
    eventually(lambda: completed(task, off))
    assert len(task.jobs(on)) == ran


def test_worker_continues_after_task_failure(api: Api) -> None:
    broken, healthy = api.task("broken"), api.task("health_check")
    failing, working = every_second(broken), every_second(healthy)
    jobs = eventually(lambda: len(found := completed(broken, failing, "failed")) >= 2 and found)
    eventually(lambda: len(completed(healthy, working)) >= 2)
    job = api.job(jobs[0])
    assert job["error"] == "RuntimeError: the disk is full"
    assert job["artifact"]["error"]["type"] == "RuntimeError"
    assert "the disk is full" in job["artifact"]["error"]["traceback"]
    assert broken.look(failing)["enabled"]


def test_worker_updates_last_run_at_and_next_run_at(api: Api) -> None:
    task = api.task()
    made = every_second(task)
    ran = eventually(lambda: (seen := task.look(made))["last_run_at"] and seen)
    assert at(ran["last_run_at"]) >= at(made["next_run_at"])
    assert at(ran["next_run_at"]) > at(made["next_run_at"])
    later = eventually(lambda: (seen := task.look(made))["last_run_at"] != ran["last_run_at"] and seen)
    assert at(later["last_run_at"]) > at(ran["last_run_at"])
    assert at(later["next_run_at"]) > at(ran["next_run_at"])


def test_multiple_schedules_for_same_task_execute_correctly(api: Api) -> None:
    task = api.task(parameters={"keep": 3})
    soon = (api.now() + timedelta(seconds=3)).isoformat()
    made = [
        task.schedule(schedule_type="once", run_at=soon),
        task.schedule(schedule_type="once", run_at=soon),
        task.schedule(schedule_type="cron", cron_expression="* * * * * *"),
        every_second(task),
    ]
    for schedule in made:
        job = api.job(eventually(partial(completed, task, schedule))[0])
        assert (job["task_id"], job["schedule_id"]) == (task.id, schedule["id"])
        assert job["artifact"]["result"] == {"compressed": False, "kept": 3}
    assert [len(task.jobs(schedule)) for schedule in made[:2]] == [1, 1]
