"""What tasks leave: stored before they end, kept as long as they are, and gone with them."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import rota
from rota import TaskStatus
from rota.domain import artifact as rules
from rota.domain.errors import Corrupt, Invalid, NotFound, Refused
from rota.engine import artifacts
from rota.engine.artifacts import leave, sweep_contents
from rota.stores.base import Store
from simulation.faults import Fault, Node, Plan
from worlds import HOUR, MINUTE, SECOND, STORES, World, on_any_store, play, some_calls

LARGE = bytes(range(256)) * 200
DAY = timedelta(days=1)
KEPT = rota.Retention(tasks=7 * DAY)


async def done(world: World, kind: str, **options: Any) -> rota.Task:
    """Submit one, and run it to its end."""
    task = await world.queue.submit(kind, **options)
    async with world.running():
        return await world.queue.wait(task.id)


async def read(world: World, task: rota.Task, name: str) -> bytes:
    return await (await world.queue.open_artifact(task.id, name)).read()


async def contents(store: Store) -> list[str]:
    return await store.contents.keys()


async def test_bytes_texts_and_files_are_listed_and_read(world: World, tmp_path: Path) -> None:
    @world.app.task("report")
    async def report(context: rota.Context) -> dict[str, int]:
        page = tmp_path / "page.bin"
        page.write_bytes(LARGE)
        stored = await context.artifact("report.pdf", page)
        assert (stored.size, stored.attempt) == (len(LARGE), 1)
        page.unlink()
        await context.artifact("notes.txt", "Grüße")
        await context.artifact("raw", b"\x00\xff", media_type="Application/X-Raw")
        return {"pages": 3}

    task = await done(world, "report")
    assert task.status is TaskStatus.COMPLETED, task.error
    found = await world.queue.artifacts(task.id)
    assert [(each.name, each.media_type, each.size) for each in found] == [
        ("result", "application/json", 11),
        ("notes.txt", "text/plain; charset=utf-8", 7),
        ("raw", "application/x-raw", 2),
        ("report.pdf", "application/pdf", len(LARGE)),
    ]
    assert await read(world, task, "result") == b'{"pages":3}'
    assert (await read(world, task, "notes.txt")).decode() == "Grüße"
    opened = await world.queue.open_artifact(task.id, "report.pdf")
    assert opened.artifact.digest == sha256(LARGE).hexdigest()
    assert await opened.read() == LARGE
    assert b"".join([piece async for piece in opened.chunks(1000, 30_000)]) == LARGE[1000:30_000]
    assert b"".join([piece async for piece in opened.chunks(len(LARGE) + 5)]) == b""
    await opened.save(tmp_path / "copy.pdf")
    assert (tmp_path / "copy.pdf").read_bytes() == LARGE
    assert [path.name for path in tmp_path.glob(".*")] == []
    assert len(await contents(world.store)) == 1
    other = world.queue.for_tenant("other")
    with pytest.raises(NotFound):
        await other.artifacts(task.id)
    with pytest.raises(NotFound):
        await other.open_artifact(task.id, "report.pdf")
    with pytest.raises(NotFound, match="there is no artifact 'nothing'"):
        await world.queue.open_artifact(task.id, "nothing")


@on_any_store
async def test_a_sync_handler_has_stored_it_when_the_call_returns(world: World, tmp_path: Path) -> None:
    @world.app.task("report")
    def report(context: rota.Context) -> None:
        page = tmp_path / "page.bin"
        page.write_bytes(LARGE)
        context.artifact("page.bin", page)
        page.unlink()
        with pytest.raises(Invalid, match="name: 'a/b' is not a valid name"):
            context.artifact("a/b", b"")

    task = await done(world, "report")
    assert task.error is None
    assert await read(world, task, "page.bin") == LARGE


@on_any_store
async def test_what_is_not_awaited_is_stored_before_the_task_ends(world: World) -> None:
    @world.app.task("hasty")
    async def hasty(context: rota.Context) -> None:
        context.artifact("left", LARGE)

    @world.app.task("failing")
    async def failing(context: rota.Context) -> None:
        context.artifact("left", LARGE)
        raise ValueError("after all")

    @world.app.task("wrong", max_retries=0)
    async def wrong(context: rota.Context) -> None:
        context.artifact("..", LARGE)

    @world.app.task("caught")
    async def caught(context: rota.Context) -> str:
        with pytest.raises(Invalid):
            await context.artifact("..", LARGE)
        return "well"

    assert await read(world, await done(world, "hasty"), "left") == LARGE
    failed = await done(world, "failing", max_retries=0)
    assert failed.status is TaskStatus.FAILED
    assert await read(world, failed, "left") == LARGE
    assert "Invalid: name: '..' is not a valid name" in str((await done(world, "wrong")).error)
    assert (await done(world, "caught")).output == "well"


@on_any_store
async def test_the_last_under_a_name_counts_and_the_same_is_not_written_again(world: World) -> None:
    @world.app.task("twice", max_retries=2)
    async def twice(context: rota.Context) -> None:
        await context.artifact("same", LARGE)
        await context.artifact("other", LARGE + bytes([context.attempt]))
        if context.attempt == 1:
            raise ValueError("once more")

    task = await done(world, "twice")
    found = {each.name: each for each in await world.queue.artifacts(task.id)}
    assert (found["same"].attempt, found["same"].version) == (1, 1)
    assert (found["other"].attempt, found["other"].version) == (2, 2)
    assert await read(world, task, "other") == LARGE + b"\x02"
    assert len(await contents(world.store)) == 3, "the one that was replaced, too"
    await world.at(25 * HOUR)
    assert await sweep_contents(world.store) == 1
    assert await contents(world.store) == sorted(str(each.content) for each in found.values())


async def test_a_stale_worker_leaves_nothing(world: World) -> None:
    await world.queue.submit("work")
    world.app.task("work")(lambda: None)
    stale = world.worker(scheduler=False, janitor=False)
    await stale.tasks.claim()
    held = stale.tasks.held
    stale.tasks.abandon_handlers()
    stale.tasks.close()
    await world.at(MINUTE)
    async with world.running():
        await world.queue.wait(held[0].id)
    for body in (b"small", LARGE):
        with pytest.raises(Refused, match="lease") as refused:
            await leave(world.store, world.clock, held[0], "late", body)
        assert refused.value.code == "lease_lost"
    assert await world.queue.artifacts(held[0].id) == []


async def test_they_go_with_the_task_and_never_before(world: World) -> None:
    @world.app.task("report")
    async def report(context: rota.Context) -> None:
        await context.artifact("small", b"1")
        await context.artifact("large", LARGE)

    task = await done(world, "report")
    await world.at(7 * DAY - HOUR)
    await world.worker(retention=KEPT).run_once()
    assert await read(world, task, "large") == LARGE
    assert len(await world.queue.artifacts(task.id)) == 2
    await world.at(7 * DAY + HOUR)
    for _ in range(2):  # what is forgotten comes first
        await world.worker(retention=KEPT).run_once()
    with pytest.raises(NotFound):
        await world.queue.artifacts(task.id)
    assert (await world.store.snapshot())["artifact"] == []
    assert await contents(world.store) == []


@on_any_store
async def test_more_than_fits_into_one_commit_goes_in_several(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.engine.commands.upkeep.PARTS_AT_ONCE", 2)

    @world.app.task("report")
    async def report(context: rota.Context) -> None:
        for number in range(5):
            await context.artifact(f"{number}", b"1")

    await done(world, "report")
    await world.at(8 * DAY)
    await world.worker(retention=KEPT).run_once()
    remaining = {name: len(records) for name, records in (await world.store.snapshot()).items() if records}
    for _ in range(3):
        await world.worker(retention=KEPT).run_once()
    assert (remaining["task"], remaining["artifact"]) == (1, 3), "the task goes last"
    assert not any((await world.store.snapshot()).values())


@on_any_store
async def test_content_without_a_record_is_removed_after_the_grace_and_never_named_then(
    world: World,
) -> None:
    begun = await world.store.now()
    orphan = rules.content_key("0" * 64, begun, "0" * 36)
    await world.store.contents.write(orphan, iter([LARGE]))
    await world.store.contents.write("aa-foreign", iter([b"not ours"]))
    await world.at(rules.GRACE - SECOND)
    assert await sweep_contents(world.store) == 0
    await world.at(rules.GRACE + SECOND)
    assert await sweep_contents(world.store) == 1
    assert await contents(world.store) == ["aa-foreign"]
    running = rota.Task(
        id="t",
        kind="k",
        status=TaskStatus.RUNNING,
        lease_id="l",
        created_at=begun,
        available_at=begun,
        updated_at=begun,
    )
    facts = {"media_type": "a/b", "size": 1, "digest": "0" * 64, "content": orphan}
    assert rules.leave(running, "l", None, "n", begun + rules.GRACE / 2, **facts).content == orphan
    with pytest.raises(Refused, match="took too long to write"):
        rules.leave(running, "l", None, "n", begun + rules.GRACE / 2 + SECOND, **facts)


@on_any_store
async def test_sources_that_cannot_be_left(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")

    @world.app.task("wrong", max_retries=0)
    async def wrong(context: rota.Context) -> list[str]:
        said = []
        sources: list[Any] = [tmp_path / "missing", tmp_path, tmp_path / "pipe", 5, None]
        for source in sources:
            with pytest.raises(Invalid) as invalid:
                await context.artifact("x", source)
            said.append(str(invalid.value))
        for options in ({"media_type": "no type"}, {"media_type": "text/html\r\nX: y"}):
            with pytest.raises(Invalid) as invalid:
                await context.artifact("x", b"", **options)
            said.append(str(invalid.value))
        with pytest.raises(Invalid) as invalid:
            await context.artifact("result", b"")
        said.append(str(invalid.value))
        monkeypatch.setattr(rules, "MOST_BYTES", 10)
        with pytest.raises(Invalid) as invalid:
            await context.artifact("x", b"01234567890")
        said.append(str(invalid.value))
        monkeypatch.setattr(rules, "MOST_OF_TASK", 1)
        await context.artifact("x", b"1")
        await context.artifact("x", b"2")
        with pytest.raises(Invalid) as invalid:
            await context.artifact("y", b"1")
        said.append(str(invalid.value))
        return said

    task = await done(world, "wrong")
    assert task.error is None, task.error
    said: list[str] = task.output
    assert said[0].endswith("missing cannot be read (No such file or directory); give the path of a file")
    assert said[1].endswith("is not a file; give the path of one")
    assert said[2].endswith("pipe is not a file; give the path of one")
    assert said[3] == "source: 5 cannot be left; give bytes, a text or a pathlib.Path"
    assert said[5] == "media_type: 'no type' is not a media type; write it as text/plain"
    assert "is not a media type" in said[6]
    assert said[7] == "name: 'result' is what the handler returns; choose another"
    assert said[8] == "size: 'x' has 11 bytes; the most is 10"
    assert said[9] == f"name: task {task.id} has left 1 artifacts; that is the most"


@pytest.mark.parametrize("size", [100, len(LARGE)])
@on_any_store
async def test_a_file_that_changes_meanwhile_is_refused(
    world: World, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "growing"
    path.write_bytes(bytes(size))
    measure = artifacts._measure

    def then_changed(opened: Any) -> Any:
        measured = measure(opened)
        path.write_bytes(b"1" * size)
        return measured

    monkeypatch.setattr(artifacts, "_measure", then_changed)

    @world.app.task("wrong", max_retries=0)
    async def wrong(context: rota.Context) -> None:
        await context.artifact("x", path)

    task = await done(world, "wrong")
    assert "the file changed while it was read" in str(task.error)
    assert await world.queue.artifacts(task.id) == []


@on_any_store
async def test_bytes_that_are_not_what_was_stored_are_said(world: World, tmp_path: Path) -> None:
    @world.app.task("report")
    async def report(context: rota.Context) -> None:
        await context.artifact("large", LARGE)

    task = await done(world, "report")
    opened = await world.queue.open_artifact(task.id, "large")
    key = str(opened.artifact.content)
    await world.store.contents.delete([key])
    await world.store.contents.write(key, iter([b"1" * len(LARGE)]))
    with pytest.raises(Corrupt, match="is not what was stored: its digest differs"):
        await opened.save(tmp_path / "copy")
    assert list(tmp_path.glob("*copy*")) == []
    with pytest.raises(Invalid, match="cannot be written"):
        await opened.save(tmp_path / "no" / "folder")


def body_of(task_id: str) -> bytes:
    return sha256(task_id.encode()).digest() * 1000


async def faulty_scenario(world: World, plan: Plan) -> Node:
    """Two tasks that leave something small and something large, while the store fails once; then a day, and the end of
    the retention."""

    @world.app.task("work", max_retries=20)
    async def work(context: rota.Context) -> str:
        context.artifact("large", body_of(context.task.id))
        await context.artifact("small", context.task.id)
        return "done"

    tasks = await world.queue.submit_many([("work", 1), ("work", 2)])
    stop, node = asyncio.Event(), Node(world, plan, "node")
    running = asyncio.create_task(node.run(stop))
    await world.at(5 * MINUTE)
    stop.set()
    await running
    for task in tasks:
        ended = await world.queue.get(task.id)
        assert ended.status is TaskStatus.COMPLETED, f"lost: {ended}"
        assert await read(world, task, "large") == body_of(task.id)
        assert await read(world, task, "small") == task.id.encode()
    await world.at(25 * HOUR)
    await sweep_contents(world.store)
    named = [str((await world.queue.open_artifact(task.id, "large")).artifact.content) for task in tasks]
    assert await contents(world.store) == sorted(named), "content was orphaned, or lost"
    await world.at(8 * DAY)
    await world.worker(retention=KEPT).run_once()
    await world.worker(retention=KEPT).run_once()
    assert (await world.store.snapshot())["artifact"] == []
    assert await contents(world.store) == []
    return node


@pytest.mark.parametrize("fault", Fault)
def test_one_fault_at_every_call(fault: Fault, tmp_path: Path) -> None:
    """Whatever fails, and wherever: what a completed task left is there, and nothing else stays."""
    for call in some_calls(15, fault, Fault):

        async def one(world: World, call: int = call) -> None:
            node = await faulty_scenario(world, lambda number: fault if number == call else None)
            assert node.calls >= call, "the scenario is shorter than the plan: the fault never struck"

        play(one, STORES["memory"], tmp_path)
