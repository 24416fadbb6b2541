"""What is stored is nobody's to change: not through what was put, not through what was read."""

from __future__ import annotations

from typing import Any

import pytest

from records import schedule, task, template
from rota.domain.errors import Invalid
from rota.domain.model import Schedule, Task, TaskTarget, Template
from rota.stores.base import Store
from rota.stores.queries import ReadyTasks, TasksInLine
from stores import find, get, put


async def test_changing_what_was_put_changes_nothing(store: Store) -> None:
    given: dict[str, Any] = {"deep": {"list": [1]}}
    metadata = {"a": "b"}
    await put(store, task("a", input=given, metadata=metadata))
    given["deep"]["list"].append(2)
    metadata.clear()
    stored = await get(store, Task, "a")
    assert stored is not None
    assert (stored.input, stored.metadata) == ({"deep": {"list": [1]}}, {"a": "b"})


async def test_changing_what_was_read_changes_nothing(store: Store) -> None:
    parameters = {"a": [1]}
    await put(
        store,
        task("a", input={"a": [1]}),
        schedule("s", target=TaskTarget(kind="report", input={"a": [1]})),
        template("m", parameters=parameters),
    )
    for _ in range(2):
        read_task, read_schedule = await get(store, Task, "a"), await get(store, Schedule, "s")
        read_template = await get(store, Template, "m")
        assert read_task is not None
        assert read_schedule is not None
        assert read_template is not None
        [found] = await find(store, ReadyTasks(at=await store.now()))
        [listed] = (await store.snapshot())["task"]
        assert isinstance(listed, Task)
        for held in (
            read_task.input,
            read_schedule.target.input,
            read_template.parameters,
            found.input,
            listed.input,
        ):
            assert held == {"a": [1]}
            held["a"].append("mine")


async def test_tasks_that_are_alike_keep_what_is_their_own(store: Store) -> None:
    own: dict[str, dict[str, Any]] = {
        f"t{n}": {"input": [n], "metadata": {"n": str(n)}, "gates": (f"g{n}",), "passed": 1} for n in range(3)
    }
    await put(store, *(task(id, **values) for id, values in own.items()))
    ready = await find(store, ReadyTasks(at=await store.now()))
    assert {each.id: {name: getattr(each, name) for name in own["t0"]} for each in ready} == own


async def test_tasks_that_are_alike_are_each_in_the_line_of_their_own_gate(store: Store) -> None:
    gates = ("g0", "g1", "g2")
    await put(store, *(task(f"t-{id}", gates=(id,), line=id) for id in gates))
    waiting = await find(store, TasksInLine(gates=gates, most=1, at=await store.now()))
    assert [(each.id, each.gates, each.line) for each in waiting] == [(f"t-{id}", (id,), id) for id in gates]


async def test_texts_and_numbers_come_back_as_they_went(store: Store) -> None:
    given = {
        "unicode": "äöü 🎉 \u2028",
        "nul": "a\u0000b",
        "large": 2**53 + 1,
        "huge": 2**80,
        "float": 0.1,
        "nothing": None,
        "": [[], {}, False, True],
    }
    await put(store, task("a", input=given, error=None))
    stored = await get(store, Task, "a")
    assert stored is not None
    assert stored.input == given


@pytest.mark.parametrize("value", [object(), {"a": {1j}}, "\ud800"], ids=["object", "complex", "surrogate"])
async def test_what_is_not_json_is_refused_and_nothing_is_written(store: Store, value: Any) -> None:
    with pytest.raises(Invalid, match="task bad"):
        await put(store, task("good"), task("bad", input=value))
    assert await get(store, Task, "good") is None
