"""`rota --server`: every command that makes sense gives the answer that it gives on the store itself."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import rota as package
from command_line import PATIENCE, Process, all_commands, bare_folder, complaint, document, rota
from records import node
from rota import sync
from rota.domain.errors import NotFound, Refused, Unavailable
from rota.surfaces.python.calls.plans import PlanCalls
from rota.surfaces.remote import wire
from rota.surfaces.remote.queue import RemoteQueue
from served import Served, serving
from stores import put

APP = """
import rota

app = rota.App()


@app.task("double")
async def double(number, ctx: rota.Context):
    await ctx.artifact("large.bin", bytes(200_000))
    return 2 * number


@app.task("bad", max_retries=0)
async def bad():
    raise ValueError("no")


@app.workflow("order")
async def order(ctx, sku):
    return await ctx.receive("paid")
"""
ON_A_STORE = {
    *("up", "worker", "serve", "scheduler run", "monitor", "tick", "migrate", "doctor"),
}
_AGE = re.compile(r'"oldest_seconds": [0-9.]+')
NOWHERE = {"preview", "config", "completion", "import crontab"}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    bare_folder(monkeypatch, tmp_path)
    (tmp_path / "afar.py").write_text(APP)
    (tmp_path / "declared.json").write_text(
        json.dumps(
            {"schedules": {"filed": {"task_type": "double", "input": {"number": 4}, "interval": "1h"}}}
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    with serving("sqlite:///rota.db", allow_shell=True) as server:
        monkeypatch.setenv("ROTA_KEY", server.key("*"))
        yield server


class Walk:
    """Commands on the server; `same` are asked of the store, too."""

    def __init__(self, served: Served) -> None:
        self._server = f"--server {served.url}"
        self.walked: set[str] = set()

    def do(self, name: str, rest: str = "") -> str:
        self.walked.add(name)
        return rota(f"{name} {rest} {self._server}").stdout.strip()

    def same(self, name: str, rest: str = "") -> str:
        self.walked.add(name)
        line = f"{name} {rest} --json"
        there, here = rota(f"{line} {self._server}").stdout, rota(line).stdout
        assert _AGE.sub("", there) == _AGE.sub("", here), line
        return there


def test_bulk_calls_are_made_page_by_page(served: Served) -> None:
    """However many tasks there are, a request is bounded, and whoever waits hears how far it is."""
    Path("lines.jsonl").write_text("{}\n" * 1100)
    walk = Walk(served)
    walk.do("submit", "-t nobody -i @lines.jsonl --queue bulk")
    assert walk.do("cancel", "--all --queue bulk --json") == '{"cancelled": 1100}'
    assert walk.do("replay", "--status cancelled --queue bulk") == "replayed 1,100 tasks"
    with sync.connect("sqlite:///rota.db") as queue:
        assert queue.count(status="pending") == 1100


async def test_a_server_says_how_far_it_is(served: Served) -> None:
    declared = {f"s{number}": {"task_type": "double", "cron": "0 9 * * *"} for number in range(50)}
    queue = RemoteQueue(served.url, served.key("*"))
    told: list[int] = []
    plan = await queue.plan({"schedules": declared}, report=told.append)
    assert sum(told) == 50
    await queue.apply({"schedules": declared}, plan, report=told.append)
    assert sum(told) == 50 + 50 + 50, "compared again, and each change was made ready"
    await queue.trigger_schedule("s0")
    assert await queue.count_runs("s0") == 1
    with pytest.raises(Refused, match="somebody") as refused:
        await queue.apply({"schedules": {"somebody\u2028's": {"after": "nobody"}}}, report=told.append)
    assert refused.value.code == "invalid"
    told.clear()
    await queue.delete_schedule("s0", hard=True, report=told.append)
    assert sum(told) == 1
    with pytest.raises(NotFound, match="'s0'"):
        await queue.delete_schedule("s0", hard=True, report=told.append)
    await queue.close()


async def test_a_server_whose_store_is_away_says_so_behind_its_steps(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: object, **how: object) -> None:
        raise Unavailable("the disk is full")

    queue = RemoteQueue(served.url, served.key("*"))
    monkeypatch.setattr(PlanCalls, "_planned", away)
    with pytest.raises(Unavailable, match="the store does not answer"):
        await queue.plan({"schedules": {}}, report=lambda steps: None)
    await queue.close()


async def test_a_call_that_tells_its_steps_ends_if_its_caller_goes_away(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    async def endless(*args: object, **how: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(PlanCalls, "_planned", endless)
    queue = RemoteQueue(served.url, served.key("*"))

    def go_away(steps: int) -> None:
        asking.cancel()

    asking = asyncio.create_task(queue.plan({"schedules": {}}, report=go_away))
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await asyncio.to_thread(ended.wait, PATIENCE)
    await queue.close()


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b"", "has ended before its answer"),
        (b"3\n4\n", "has ended before its answer"),
        (b"3\n20", "does not answer as a rota server does"),
        (b'3\n200 {"answer": [1, ', "does not answer as a rota server does"),
        (b"3\n<html> Bad Gateway", "does not answer as a rota server does"),
        (b"<html>\n</html>\n", "does not answer as a rota server does"),
    ],
    ids=str,
)
async def test_an_answer_behind_steps_that_is_cut_off_is_none(said: bytes, problem: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={wire.PROGRESS_HEADER: "lines"}, content=said)

    queue, told = RemoteQueue("http://rota.example"), list[int]()
    await queue._client.aclose()
    queue._client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    with pytest.raises(Unavailable, match=problem):
        await queue.plan({"schedules": {}}, report=told.append)
    assert sum(told) in (0, 3, 7)
    await queue.close()


async def test_a_server_that_does_not_say_how_far_it_is_answers_all_the_same(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = RemoteQueue(served.url, served.key("*"))
    monkeypatch.setattr(wire, "reports", lambda name: False)
    assert (await queue.plan({"schedules": {}}, report=lambda steps: None)).items == ()
    await queue.close()


def test_every_command_answers_as_on_the_store(served: Served) -> None:
    walk = Walk(served)
    task = walk.do("submit", "-t double -i '{\"number\": 2}' --idempotency-key once --ttl 1h --tag red")
    later = walk.do(
        "submit",
        "-t double -i '{\"number\": 3}' --at 2099-01-01T00:30Z --queue slow --retry-policy initial=5s",
    )
    bad = walk.do("submit", "-t bad")
    order = walk.do("workflow start", 'order -i \'{"sku": "$time"}\'')
    rota("tick afar:app")
    walk.same("wait", task)
    walk.same("status", task[:-2])
    walk.same("status", later)
    walk.same("history", task)
    walk.same("artifacts", task)
    walk.do("artifact get", f"{task} large.bin -o large.bin")
    assert Path("large.bin").read_bytes() == bytes(200_000)
    walk.do("replay", bad)
    walk.do("cancel", f"{later} --reason 'too late'")
    walk.do("archive", task)
    walk.same("workflow show", order)
    walk.do("workflow signal", f"{order} paid '{{\"$time\": 40}}'")
    walk.do("workflow cancel", walk.do("workflow start", "order -i '{\"sku\": 1}'"))
    rota("tick afar:app")
    assert '{"$time": 40}' in rota(f"workflow show {order}").stdout
    walk.do("workflow replay", json.loads(walk.same("workflow list", "--status cancelled"))["tasks"][0]["id"])
    walk.same("list", "--queue slow")
    walk.same("tail", "--no-follow -n 100")
    _walk_schedules(walk)
    _walk_the_rest(walk)
    assert walk.walked == all_commands() - ON_A_STORE - NOWHERE


def _walk_schedules(walk: Walk) -> None:
    times = "--start-at 2027-01-01T09:00 --jitter 90s --exclude closed --alarm-late 5m"
    walk.do("calendar create", "closed --day 2027-12-24")
    walk.do("calendar update", "closed --day 2027-12-31")
    walk.same("calendar show", "closed")
    walk.same("calendar list")
    walk.do("template create", "tidy --shell 'echo hello' --timeout 10s")
    walk.do("template update", "tidy --timeout 1m --retry-policy initial=5s,multiplier=3")
    walk.do("template execute", "tidy")
    walk.same("template show", "tidy")
    walk.same("template list")
    walk.do("schedule create", f"zoned -t double -i '{{}}' --cron '0 9 * * *' --timezone Asia/Tokyo {times}")
    assert json.loads(walk.same("schedule show", "zoned"))["start_at"] == "2027-01-01T00:00:00Z"
    walk.do("schedule create", "tidy --template tidy --cron '30 * * * *'")
    walk.do("schedule update", "zoned --priority 3 --clear alarm-late")
    walk.do("schedule pause", "zoned --note 'for now'")
    walk.do("schedule enable", "zoned")
    walk.do("schedule disable", "zoned")
    walk.do("schedule resume", "zoned")
    walk.do("schedule trigger", "zoned -i '{\"number\": 7}'")
    walk.do("schedule backfill", "tidy --from 2026-01-01 --to 2026-01-01T03:00 --dry-run")
    tidy = document("schedule show tidy")["uid"]
    walk.do("schedule delete", "tidy")
    assert json.loads(walk.same("schedule show", tidy))["deleted_at"] is not None
    walk.do("schedule restore", tidy)
    walk.same("schedule list")
    walk.same("schedule runs", "zoned")
    walk.same("schedule preview", "zoned")
    walk.same("schedule why", "zoned 2027-01-05T09:00")
    walk.same("schedule history", "zoned")
    for number in range(6):
        rota(f"schedule create crowd-{number} -t double --cron '0 9 * * *'")
    walk.same("forecast", "--from 2027-02-01 --to 2027-02-03 --by day")
    assert "Spread 5 schedules." in walk.do("spread", "2027-02-01T09:00Z --over 10m --yes")
    there, here = json.loads(walk.do("plan", "declared.json --json")), document("plan declared.json")
    assert (there["token"], there["items"][0]["differences"]) == (
        here["token"],
        here["items"][0]["differences"],
    )
    walk.do("apply", "declared.json --yes")
    assert "filed" in walk.same("export")
    walk.do("template delete", "tidy")
    walk.do("schedule delete", "zoned --hard --yes")
    walk.do("calendar delete", "closed")


def _walk_the_rest(walk: Walk) -> None:
    walk.same("workers")
    walk.do("queue limit", "mail --rate 50/s")
    walk.do("queue pause", "mail --note moving")
    walk.do("queue drain", "mail")
    walk.do("queue resume", "mail")
    walk.same("queue limit", "mail")
    walk.same("queue list")
    walk.same("limits")
    walk.do("alarm-rules", "billing --alarm-late 5m")
    walk.same("alarm-rules")
    walk.same("alarms", "--over")
    walk.do("tenant create", "acme --max-schedules 5 --min-interval 10s")
    walk.do("tenant limits", "acme --max-pending 7 --max-input 2KB")
    walk.do("tenant suspend", "acme --note late")
    assert '"suspended"' in walk.same("tenant list")
    walk.do("tenant resume", "acme")
    walk.same("tenant limits", "acme")
    walk.do("keys create", "--role viewer --name looks")
    walk.do("keys create", "--role operator --name ci --tenant acme")
    walk.same("keys list", "--tenant acme")
    walk.do("keys revoke", "looks --tenant default")
    assert '"ci"' in walk.same("keys list")


def test_what_is_refused_is_said_in_the_words_of_the_command_line(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota("schedule create nightly -t double --interval 1h")
    here = complaint("schedule create nightly -t double --cron '99 * * * *'")
    near = complaint("schedule show nigtly", code=1)
    monkeypatch.setenv("ROTA_SERVER", served.url)
    assert complaint("schedule create nightly -t double --cron '99 * * * *'") == here
    assert complaint("schedule show nigtly", code=1) == near
    assert "'nightly'" in near
    for name in sorted(ON_A_STORE):
        assert "this needs the store itself" in complaint(name, code=1), name
    assert "not the address" in complaint("list --server nonsense")
    assert "does not answer" in complaint("list --server http://127.0.0.1:9", code=1)
    assert "a store is named there, too" in complaint("list --server https://a.example --store memory:")
    assert "not valid" in complaint("list --key rota_wrong", code=1)
    monkeypatch.delenv("ROTA_KEY")
    assert "give it with --key" in complaint("list")
    assert rota("list --store sqlite:///rota.db").exit_code == 0


def test_a_profile_names_the_server_and_a_key_has_its_role(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = served.key(role="viewer", name="looks")
    (tmp_path / "rota.toml").write_text(
        f'store = "sqlite:///rota.db"\n[profile.far]\nserver = "{served.url}"\nkey = "{viewer}"\n'
    )
    monkeypatch.delenv("ROTA_KEY")
    assert document("--profile far schedule list") == document("schedule list")
    assert "role operator" in complaint("--profile far submit -t double", code=1)
    assert viewer not in rota("--profile far config").stdout


def test_a_key_to_one_tenant_makes_keys_of_that_tenant_only(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_SERVER", served.url)
    monkeypatch.setenv("ROTA_KEY", served.key(name="own"))
    made = rota("keys create --role operator --name ci --tenant default").stdout.strip()
    shown = document("keys list --tenant default")["keys"]
    assert [each["name"] for each in shown] == ["ci", "own"]
    assert "with another one" in complaint("keys revoke own --tenant default")
    for line in ("keys list", "keys revoke ci", "keys create --role viewer --name me --tenant '*'"):
        assert "made with --tenant '*', or name yours: --tenant default" in complaint(line, code=1), line
    for rest in ("create acme", "list", "limits acme", "limits acme --max-pending 1", "suspend acme"):
        assert complaint(f"tenant {rest}", code=1).endswith("use a key made with --tenant '*'"), rest
    assert "no tenant 'acme'" in complaint("keys list --tenant acme", code=1)
    fleet = served.client(served.key(name="asks")).post(
        "/api/tenants/default/calls/alarms", json={"fleet": True}
    )
    assert fleet.status_code == 403
    monkeypatch.setenv("ROTA_KEY", made)
    for line in ("keys list", "keys create --role viewer --name me", "tenant list", "tenant resume acme"):
        assert "role admin" in complaint(line, code=1), line
    digests = served.client(served.key("*", name="all")).post(
        "/api/tenants/default/calls/list_keys", json={"every_tenant": True}
    )
    assert {each["digest"] for each in digests.json()["answer"]["items"]} == {""}


def test_tail_follows_over_a_server(served: Served, tmp_path: Path) -> None:
    """As on the store, step by step and filter by filter; and on, if the server lets go."""
    rota("schedule create often -t bad --interval 1h")
    rota("schedule trigger often")
    line = f"tail -n 1 --server {served.url} --json"
    with Process(line, tmp_path) as all_of_it, Process(f"{line} --schedule often", tmp_path) as one:
        for each in (all_of_it, one):
            assert '"created"' in each.until("task_id")  # the past: from here on it hears all that happens
        order = rota("workflow start order -i '{\"sku\": 1}'").stdout.strip()
        rota("tick afar:app")
        step = json.loads(all_of_it.until('"receive:paid"'))
        assert (step["task_id"], step["step"]["status"]) == (order, "waiting")
        json.loads(one.until('"failed"'))
        served.end_streams()
        rota("schedule trigger often")
        one.until("has ended the stream of events: trying again")
        assert '"created"' in one.until("task_id")
    told = [json.loads(each) for each in one.lines if each.startswith("{")]
    assert {each["task_type"] for each in told} == {"bad"}
    numbers = [(each["task_id"], each["version"]) for each in told]
    assert len(numbers) == len(set(numbers))


def test_another_version_of_the_server_is_named(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SERVER", served.url)
    monkeypatch.setattr("rota.surfaces.remote.queue.__version__", "9.9.9")
    assert document("list")["tasks"] == []  # what is understood is no problem
    read, sentence = (
        wire.read_arguments,
        ("runs rota 0.1.0, and this is 9.9.9: they do not understand each other here; use the same version"),
    )
    monkeypatch.setattr(wire, "read_arguments", lambda *_: read("now", {"since": 1}))
    assert sentence in complaint("list", code=1)


def test_the_server_warns_of_kinds_that_nobody_handles(served: Served) -> None:
    async def add(queue: package.Queue) -> None:
        now = await queue.now()
        await put(queue.store, node("w", roles=("worker",), kinds=("note",), started_at=now, seen_at=now))

    served.call(add)
    assert "nobody handles `nope`" in rota(f"submit -t nope --server {served.url}").stderr
    client, sentence = served.client(served.key(name="http")), "nobody handles `nope`; did you mean `note`?"
    schedule = {
        "name": "often",
        "scheduleType": {"type": "interval", "everySeconds": 60},
        "target": {"type": "task", "taskKind": "nope"},
    }
    for path, body in (("task-executions", {"kind": "nope"}), ("schedules", schedule)):
        assert client.post(f"/api/tenants/default/{path}", json=body).json()["warnings"] == [sentence]
    fine = client.post("/api/tenants/default/task-executions", json={"kind": "note"})
    assert (fine.status_code, "warnings" in fine.json()) == (201, False)


def test_calls_are_those_of_a_queue_and_take_no_files(served: Served) -> None:
    assert all(callable(getattr(package.Queue, name)) for name in wire.CALLS)
    key = served.key(name="direct")
    client = served.client(key)
    place = "/api/tenants/default/calls"
    assert client.post(f"{place}/close", json={}).status_code == 404
    wrong: list[Any] = [
        {"source": "/etc/hostname"},
        {"source": {}, "nonsense": 1},
        [],
        {"source": {"$time": "x"}},
    ]
    for body in wrong:
        answered = client.post(f"{place}/plan", json=body)
        assert (answered.status_code, answered.json()["code"]) == (422, "invalid"), body
    assert client.post(f"{place}/submit", json={"kind": "a", "connection": 1}).status_code == 422
    assert client.post("/api/tenants/other/calls/now", json={}).status_code == 404


@pytest.mark.parametrize("through", ["the store", "the server"])
def test_the_beginning_of_an_id_names_schedules_and_templates(
    served: Served, monkeypatch: pytest.MonkeyPatch, through: str
) -> None:
    rota("template create tidy --shell 'echo hello'")
    rota("template create dust --shell 'echo dust'")
    rota("schedule create cafe -t double -i '{\"number\": 1}' --interval 1h")
    rota("schedule create hourly -t double -i '{\"number\": 1}' --interval 1h")
    tidy, dust = (document(f"template show {name}")["id"] for name in ("tidy", "dust"))
    hourly = _id_of("hourly")
    if through == "the server":
        monkeypatch.setenv("ROTA_SERVER", served.url)
    assert document(f"template show {tidy[:-2]}")["alias"] == "tidy"
    assert document("schedule show cafe")["id"] == "cafe"
    assert document(f"schedule pause {hourly[:-2]}")["status"] == "paused"
    assert document(f"schedule create tidies --template {tidy[:-1]} --interval 1h")["id"] == "tidies"
    task = rota(f"schedule trigger {hourly[:-2]}").stdout.strip()
    assert document(f"list --schedule {hourly[:-2]} -n 1")["tasks"][0]["id"] == task
    assert document(f"alarms --schedule {hourly[:-2]}") == []
    assert f"2 templates have an id that begins with '0': {dust} (dust), {tidy} (tidy); give" in complaint(
        "template show 0", code=1
    )
    assert "3 schedules have an id that begins with '0': " in complaint("schedule delete 0", code=1)
    rota(f"schedule delete {hourly[:-2]}")
    rota(f"schedule restore {hourly[:-2]}")
    assert "no schedule 'abcd'" in complaint("schedule show abcd", code=1)


def _id_of(schedule: str) -> str:
    task = rota(f"schedule trigger {schedule}").stdout.strip()
    return str(document(f"status {task}")["schedule_id"])
