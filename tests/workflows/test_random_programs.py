"""A property: whatever program a workflow is, its result with crashes is its result without."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rota
from simulation.faults import Fault, Node, Plan
from workflows.test_crashes import FaultAfterCommit
from worlds import MINUTE, STORES, THOROUGH, World, play

Program = tuple[Any, ...]

leaves = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 9)),
    st.tuples(st.just("fails"), st.integers(0, 2)),
    st.tuples(st.just("sleep"), st.integers(1, 90)),
    st.tuples(st.just("child"), st.integers(0, 9)),
    st.tuples(st.just("receive")),
    st.tuples(st.just("race"), st.integers(1, 90), st.integers(1, 90)),
)
programs: st.SearchStrategy[Program] = st.recursive(
    leaves,
    lambda inner: st.tuples(
        st.sampled_from(["one after the other", "gather", "group"]), st.lists(inner, min_size=1, max_size=4)
    ),
    max_leaves=8,
)


tried: set[str] = set()
"""The steps that have failed once."""


async def interpret(ctx: rota.Workflow, program: Program, at: str = "x") -> Any:
    """Run a program. `at` says where in the whole it is: each call has a key of its own."""
    match program:
        case ("step", value):
            return await ctx.step(lambda: value, name="step", key=at)
        case ("fails", tries):
            try:
                return await ctx.step(fail, tries, at, key=at, retries=1)
            except rota.StepFailed as failed:
                return str(failed)
        case ("sleep", seconds):
            return await ctx.sleep(seconds, key=at)
        case ("child", value):
            return await ctx.child("square", value, key=at)
        case ("receive",):
            return await ctx.receive("word", key=at) is not None
        case ("race", one, two):
            return await ctx.first(a=ctx.sleep(one, key=f"{at}a"), b=ctx.sleep(two + 0.5, key=f"{at}b"))
        case ("one after the other", parts):
            return [await interpret(ctx, part, f"{at}.{n}") for n, part in enumerate(parts)]
        case ("gather", parts):
            return await asyncio.gather(*[interpret(ctx, part, f"{at}.{n}") for n, part in enumerate(parts)])
        case ("group", parts):
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(interpret(ctx, part, f"{at}.{n}")) for n, part in enumerate(parts)
                ]
            return [each.result() for each in running]
    raise AssertionError(program)


def fail(times: int, at: str) -> str:
    """Twice is more often than it may: then every run fails in the same way."""
    if times == 2 or (times == 1 and at not in tried):
        tried.add(at)
        raise ValueError(f"{times}")
    return "went well"


def outcome(program: Program, plan: Plan) -> tuple[Any, int]:
    found: list[tuple[Any, int]] = []
    tried.clear()

    async def one(world: World) -> None:
        @world.app.workflow("any", max_retries=100)
        async def any_program(ctx: rota.Workflow) -> Any:
            return await interpret(ctx, program)

        @world.app.task("square", max_retries=100)
        async def square(input: int) -> int:
            return input * input

        stop = asyncio.Event()
        node = Node(world, plan, "node")
        running = asyncio.create_task(node.run(stop))
        task = await world.queue.start_workflow("any")
        for _ in range(8):
            await world.queue.signal(task.id, "word", True)
        done = await world.queue.wait(task.id, timeout=100 * MINUTE)
        stop.set()
        await running
        assert done.status == "completed", done.error
        found.append((done.output, node.lives))

    with tempfile.TemporaryDirectory() as folder:
        play(one, STORES["memory"], Path(folder))
    return found[0]


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "store_class", FaultAfterCommit)


@settings(max_examples=200 if THOROUGH else 15)
@given(program=programs, deaths=st.sets(st.integers(1, 25), min_size=1, max_size=4))
def test_crashes_change_no_result(program: Program, deaths: set[int]) -> None:
    whole, _ = outcome(program, lambda number: None)
    crashed, lives = outcome(program, lambda number: Fault.DIES_AFTER if number in deaths else None)
    assert crashed == whole
    assert lives <= 1 + len(deaths)
