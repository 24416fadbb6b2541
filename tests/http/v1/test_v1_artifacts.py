"""`/api/v1/artifacts`: the results of document 004, and the files beside them."""

from __future__ import annotations

from rota.surfaces.http.v1 import answers
from served import Served
from v1_world import Api, shaped


def test_a_job_leads_to_its_artifact(api: Api) -> None:
    """A result object, or an error with its traceback; and what else it left."""
    task = api.task("report")
    job = api.ended(task.execute())
    found = api.ask("GET", f"artifacts/{job['artifact_id']}")
    shaped(answers.JobArtifactAnswer, found)
    assert (found["id"], found["job_id"], found["task_id"]) == (job["id"], job["id"], task.id)
    assert found["created_at"] == job["finished_at"]
    assert found["data"] == job["artifact"]
    assert found["data"]["result"] == {"rows": 1}
    [file] = found["files"]
    shaped(answers.JobFileAnswer, file)
    assert (file["name"], file["media_type"], file["size"]) == ("report.csv", "text/csv; charset=utf-8", 12)
    fetched = api.send("GET", f"artifacts/{job['id']}/$files/report.csv")
    assert fetched.text == "day,sum\n1,2\n"
    part = api.send("GET", f"artifacts/{job['id']}/$files/report.csv", Range="bytes=4-6")
    assert (part.status_code, part.text) == (206, "sum")
    assert api.send("GET", f"artifacts/{job['id']}/$files/result").json() == {"rows": 1}
    broken = api.ended(api.task("broken").execute())
    error = api.ask("GET", f"artifacts/{broken['artifact_id']}")["data"]["error"]
    assert (error["type"], error["message"]) == ("RuntimeError", "the disk is full")
    assert "raise RuntimeError" in error["traceback"]


def test_the_execution_history_via_jobs_and_artifacts(api: Api) -> None:
    """As printed: `curl http://localhost:8000/api/v1/jobs?page=1&size=20`, and the same of artifacts."""
    task = api.task("health_check")
    made = [task.execute() for _ in range(2)] + [api.task("broken").execute()]
    for id in made:
        api.ended(id)
    page = api.ask("GET", "artifacts?page=1&size=20")
    shaped(answers.JobArtifactsAnswer, page)
    assert [each["id"] for each in page["items"][:3]] == list(reversed(made))
    jobs = {job["id"]: job for job in api.ask("GET", "jobs?page=1&size=20")["items"]}
    for each in page["items"][:3]:
        assert each["data"] == jobs[each["id"]]["artifact"]
    second = api.ask("GET", "artifacts?page=2&size=1")
    assert (second["page"], second["size"], second["pages"]) == (2, 1, second["total"])
    assert [each["id"] for each in second["items"]] == [made[1]]


def test_jobs_that_have_not_ended_have_none(fresh: Served) -> None:
    api = Api(fresh)
    assert api.ask("GET", "artifacts") == {"items": [], "total": 0, "page": 1, "size": 20, "pages": 0}
    job = api.task().execute()
    assert api.job(job)["artifact_id"] is None
    assert api.ask("GET", "artifacts")["items"] == []
    api.refused("GET", f"artifacts/{job}", status=404, code="not_found")
    api.refused("GET", "artifacts/nobody", status=404, code="not_found")
    api.refused("GET", f"artifacts/{job}/$files/nothing", status=404, code="not_found")
    assert "page 101 is past" in api.refused("GET", "artifacts?page=101&size=100")["detail"]
