"""Whatever a handler ends in ends the handler and nothing else: its task fails, its neighbours go on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
import pytest

import rota
from rota import TaskStatus
from rota.engine.guard import name_of
from rota.engine.observe.telemetry import HookFailed, LeaseLost
from worlds import MINUTE, World, on_any_store, raising


class Weird(BaseException):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Leaving(Exception):
    """To look at it is to leave."""

    def __str__(self) -> str:
        sys.exit(7)

    __repr__ = __str__


class Interrupting(Weird):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]  # what it overrides is an attribute
        sys.exit(8)


class OfNoClass(Exception, metaclass=Nameless):
    pass


class NoTraceback(Exception):
    def with_traceback(self, traceback: object) -> NoTraceback:
        sys.exit(9)

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # an attribute in the type, a trap here
        sys.exit(10)


class Liar(rota.RescheduleError):
    def __init__(self) -> None:
        super().__init__(delay_seconds=1)
        self.delay_seconds = "later"  # type: ignore[assignment]  # a handler's own code may do so


class Hasty(rota.RetryableError):
    def __init__(self) -> None:
        super().__init__()
        self.delay_seconds = "soon"  # type: ignore[assignment]  # a handler's own code may do so


UNREADABLE: Any = ("file", "one", 2, 3)
"""Where a syntax error is, in an order that nothing expects."""


def problems() -> Iterator[BaseException]:
    yield from (SystemExit(3), KeyboardInterrupt(), StopIteration(), StopAsyncIteration(), GeneratorExit())
    yield from (asyncio.CancelledError(), Weird(), MemoryError(), RecursionError(), TimeoutError("mine"))
    yield from (Unprintable(), Leaving(), Interrupting(), OfNoClass(), NoTraceback(), Liar(), Hasty())
    yield from (ValueError("\ud800"), ValueError("\0"), SyntaxError("bad", UNREADABLE))
    yield ExceptionGroup("several", [ValueError(1), Unprintable(), ExceptionGroup("more", [Leaving()])])
    yield BaseExceptionGroup("several", [SystemExit(4), KeyboardInterrupt(), Weird()])


async def run(world: World) -> dict[str, rota.Task]:
    """One task of every kind that the app has, and how each ended; a neighbour that takes a minute is unharmed."""

    @world.app.task("neighbour")
    async def neighbour() -> str:
        await asyncio.sleep(60)
        return "fine"

    kinds = list(world.app.handlers)
    tasks = await world.queue.submit_many([(kind, None) for kind in kinds])
    async with world.running():
        done = {task.kind: await world.queue.wait(task.id) for task in tasks}
        assert (await world.queue.wait((await world.queue.submit("neighbour")).id)).output == "fine"
    assert (done["neighbour"].output, done.pop("neighbour").attempt) == ("fine", 1)
    assert not [signal for signal in world.signals if isinstance(signal, LeaseLost)]
    return done


@on_any_store
@pytest.mark.parametrize("limit", [None, MINUTE], ids=["no timeout", "timeout"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_no_exception_of_a_handler_gets_past_the_executor(
    world: World, is_async: bool, limit: Any
) -> None:
    for number, problem in enumerate(problems()):
        bad = raising(problem, is_async=is_async)
        world.app.task(f"{number}-{type.__repr__(type(problem))[8:-2]}", max_retries=0, timeout=limit)(bad)
    for kind, task in (await run(world)).items():
        assert (task.status, task.attempt) == (TaskStatus.FAILED, 1), kind
        assert task.error is not None, kind
        assert task.error.type, kind
        assert task.error.traceback, kind


@on_any_store
@pytest.mark.parametrize("limit", [None, MINUTE], ids=["no timeout", "timeout"])
async def test_a_handler_that_cancels_itself_at_its_end_has_failed(world: World, limit: Any) -> None:
    attempts = 0

    @world.app.task("bad", max_retries=0, timeout=limit)
    async def bad() -> None:
        nonlocal attempts
        attempts += 1
        current = asyncio.current_task()
        assert current is not None
        if attempts == 1:
            current.cancel()

    task = (await run(world))["bad"]
    assert (task.status, attempts) == (TaskStatus.FAILED, 1)
    assert task.error is not None
    assert task.error.type == "CancelledError"


async def test_a_handler_on_the_loop_that_waits_for_the_loop_has_failed(world: World) -> None:
    @world.app.task("bad", max_retries=0)
    async def bad(context: rota.Context) -> int:
        counted: int = context.call(context.queue.count())
        return counted

    task = (await run(world))["bad"]
    assert task.error is not None
    assert task.error.message.startswith("context.call is for sync handlers")


class Trap(dict[str, Any]):
    def __iter__(self) -> Any:
        sys.exit(11)

    keys = values = items = __iter__


class Shy:
    def __repr__(self) -> str:
        sys.exit(12)


def outputs() -> Iterator[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    endless: list[Any] = []
    endless.append(endless)
    yield from (deep, endless, "\ud800", {"\udfff": 1}, {1: 2}, float("nan"), 2**70, b"bytes", object())
    yield from (Trap(a=1), Shy(), {"a": Shy()}, {Shy(): 1}, Shy, (n for n in range(3)), "x" * 10_000_000)


@on_any_store
@pytest.mark.parametrize("limit", [None, MINUTE], ids=["no timeout", "timeout"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_no_result_of_a_handler_gets_past_the_executor(
    world: World, is_async: bool, limit: Any
) -> None:
    for number, output in enumerate(outputs()):
        handler = returning(output, is_async=is_async)
        world.app.task(str(number), max_retries=0, timeout=limit)(handler)
    for kind, task in (await run(world)).items():
        assert (task.status, task.attempt) == (TaskStatus.FAILED, 1), (kind, task.output)


async def test_what_a_handler_starts_on_the_loop_does_not_get_past_the_executor_either(world: World) -> None:
    async def leave() -> None:
        sys.exit(4)

    async def interrupt() -> None:
        raise KeyboardInterrupt

    @world.app.task("gathers", max_retries=0)
    async def gathers() -> None:
        await asyncio.gather(leave())

    @world.app.task("groups", max_retries=0, timeout=60)
    async def groups() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(interrupt())

    @world.app.task("calls", max_retries=0, timeout=60)
    def calls(context: rota.Context) -> None:
        context.call(leave())

    async def gather() -> None:
        await asyncio.gather(leave())

    @world.app.task("calls-in-threads", max_retries=0)
    def calls_in_threads(context: rota.Context) -> None:
        with ThreadPoolExecutor(2) as threads:
            for calling in [threads.submit(context.call, start()) for start in (leave, gather)]:
                with pytest.raises(RuntimeError, match="raised SystemExit"):
                    calling.result()
        raise ValueError("both have failed")

    @world.app.task("throws", max_retries=0)
    async def throws() -> None:
        await asyncio.to_thread(raising(GeneratorExit(), is_async=False))

    @world.app.task("hands-out", max_retries=0)
    def hands_out() -> Any:
        return gathers()

    done = await run(world)
    assert {kind: str(task.status) for kind, task in done.items()} == dict.fromkeys(done, "failed")
    assert "raised SystemExit" in str(done["gathers"].error)
    assert "raised SystemExit" in str(done["calls"].error)
    assert "both have failed" in str(done["calls-in-threads"].error)
    assert "raised SystemExit" in str(done["hands-out"].error)


class Untouchable(Exception):
    """No attribute of it can be read."""

    def __getattribute__(self, name: str) -> Any:
        raise Untouchable(name)


class UntouchableExit(SystemExit):
    def __getattribute__(self, name: str) -> Any:
        raise UntouchableExit(name)


class ExitsWhenTouched(Exception):
    def __getattribute__(self, name: str) -> Any:
        sys.exit(13)


class UntouchableRetry(rota.RetryableError):
    def __getattribute__(self, name: str) -> Any:
        raise UntouchableExit(name)


class UntouchableReschedule(rota.RescheduleError):
    def __getattribute__(self, name: str) -> Any:
        raise UntouchableExit(name)


def with_property(name: str, answer: Any) -> BaseException:
    """An exception with a property that answers so, or raises the answer if it is an exception."""

    def read(self: object) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    made: BaseException = type(f"With{name}", (Exception,), {name: property(read)})("bad")
    return made


class UntouchableType(type):
    def __getattribute__(cls, name: str) -> Any:
        sys.exit(14)


def hostile() -> Iterator[BaseException]:
    """To look at any of them runs its code."""

    class OfUntouchableType(Exception, metaclass=UntouchableType):
        pass

    yield from (Untouchable(), UntouchableExit(), ExitsWhenTouched(), UntouchableRetry())
    yield from (UntouchableReschedule(delay_seconds=1), OfNoClass(), OfUntouchableType(), NoTraceback())
    for name in (
        "__class__",
        "__cause__",
        "__context__",
        "__traceback__",
        "__suppress_context__",
        "__notes__",
    ):
        yield from (with_property(name, ValueError("no")), with_property(name, SystemExit(15)))
        yield with_property(name, Untouchable())
    for lie in (asyncio.CancelledError, SystemExit, rota.RescheduleError, rota.RetryableError, int, None):
        yield with_property("__class__", lie)
    yield ExceptionGroup("several", [Untouchable(), UntouchableRetry()])


def direct(problem: BaseException) -> Any:
    return raising(problem, is_async=True)


def in_thread(problem: BaseException) -> Any:
    return raising(problem, is_async=False)


def in_group(problem: BaseException) -> Any:
    async def handler() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(direct(problem)())
            group.create_task(asyncio.sleep(1))

    return handler


def gathered(problem: BaseException) -> Any:
    async def handler() -> None:
        await asyncio.gather(direct(problem)(), asyncio.sleep(1))

    return handler


def in_own_task(problem: BaseException) -> Any:
    async def handler() -> None:
        await asyncio.create_task(direct(problem)())

    return handler


def in_other_thread(problem: BaseException) -> Any:
    async def handler() -> None:
        await asyncio.to_thread(in_thread(problem))

    return handler


def called_from_thread(problem: BaseException) -> Any:
    def handler(context: rota.Context) -> None:
        context.call(direct(problem)())

    return handler


PLACES = [direct, in_thread, in_group, gathered, in_own_task, in_other_thread, called_from_thread]


@on_any_store
@pytest.mark.parametrize("limit", [None, MINUTE], ids=["no timeout", "timeout"])
@pytest.mark.parametrize("place", PLACES)
async def test_an_exception_that_cannot_be_looked_at_fails_its_task(
    world: World, place: Callable[[BaseException], Any], limit: Any
) -> None:
    for number, problem in enumerate(hostile()):
        kind = f"{number}-{name_of(problem)}"
        world.app.task(kind, max_retries=0, timeout=limit)(place(problem))
    for kind, task in (await run(world)).items():
        assert (task.status, task.attempt) == (TaskStatus.FAILED, 1), kind
        assert task.error is not None, kind
        assert task.error.type, kind
        assert task.error.traceback, kind


class Provided:
    """What a factory makes."""


def workflow_raises(app: rota.App, kind: str, problem: BaseException) -> None:
    @app.workflow(kind, max_retries=0)
    async def flow(ctx: rota.Workflow) -> None:
        raise problem


def branch_raises(app: rota.App, kind: str, problem: BaseException) -> None:
    @app.workflow(kind, max_retries=0)
    async def flow(ctx: rota.Workflow) -> None:
        await asyncio.gather(direct(problem)(), ctx.sleep(1))


def step_raises(app: rota.App, kind: str, problem: BaseException) -> None:
    @app.workflow(kind, max_retries=0)
    async def flow(ctx: rota.Workflow) -> None:
        await ctx.step(direct(problem), retries=0)


def step_in_thread_raises(app: rota.App, kind: str, problem: BaseException) -> None:
    @app.workflow(kind, max_retries=0)
    async def flow(ctx: rota.Workflow) -> None:
        await ctx.step(in_thread(problem), retries=0)


def input_raises(app: rota.App, kind: str, problem: BaseException) -> None:
    class Input(msgspec.Struct):
        number: int = 0

        def __post_init__(self) -> None:
            raise problem

    async def flow(ctx: rota.Workflow, input: Input) -> None: ...

    flow.__annotations__["input"] = Input
    app.workflow(kind, max_retries=0)(flow)


def factory_raises(app: rota.App, kind: str, problem: BaseException) -> None:
    provide(app, kind, in_thread(problem))


def factory_of_worker_raises(app: rota.App, kind: str, problem: BaseException) -> None:
    provide(app, kind, in_thread(problem), per="worker")


def factory_starts_what_raises(app: rota.App, kind: str, problem: BaseException) -> None:
    provide(app, kind, gathered(problem))


def end_raises(app: rota.App, kind: str, problem: BaseException) -> None:
    @asynccontextmanager
    async def factory() -> AsyncIterator[Provided]:
        yield Provided()
        raise problem

    provide(app, kind, factory)


def provide(
    app: rota.App, kind: str, factory: Callable[[], Any], *, per: Literal["worker", "task"] = "task"
) -> None:
    """The workflow takes what this factory makes."""
    made = type("Made", (Provided,), {})

    async def flow(ctx: rota.Workflow, provided: Provided) -> None: ...

    flow.__annotations__["provided"] = made
    app.provide(made, factory, per=per)
    app.workflow(kind, max_retries=0)(flow)


IN_WORKFLOWS = [
    workflow_raises,
    branch_raises,
    step_raises,
    step_in_thread_raises,
    input_raises,
    factory_raises,
    factory_of_worker_raises,
    factory_starts_what_raises,
    end_raises,
]


@on_any_store
@pytest.mark.parametrize("place", IN_WORKFLOWS)
async def test_no_exception_of_a_workflow_gets_past_the_runner(
    world: World, place: Callable[[rota.App, str, BaseException], None]
) -> None:
    for number, problem in enumerate((*problems(), *hostile())):
        place(world.app, f"{number}-{name_of(problem)}", problem)
    for kind, task in (await run(world)).items():
        assert (task.status, task.attempt) == (TaskStatus.FAILED, 1), kind
        assert task.error is not None, kind
        assert task.error.type, kind


@on_any_store
async def test_no_result_of_a_workflow_gets_past_the_runner(world: World) -> None:
    for number, output in enumerate(outputs()):
        world.app.workflow(f"flow-{number}", max_retries=0)(returned_by_workflow(output))
        world.app.workflow(f"step-{number}", max_retries=0)(returned_by_step(output))
    for kind, task in (await run(world)).items():
        assert (task.status, task.attempt) == (TaskStatus.FAILED, 1), (kind, task.output)


async def test_a_workflow_that_has_changed_may_end_in_anything(world: World) -> None:
    """What it raises is told with the change."""
    ends = iter(hostile())
    has_slept: list[bool] = []

    @world.app.workflow("flow")
    async def flow(ctx: rota.Workflow) -> None:
        if not has_slept:
            has_slept.append(True)
            await ctx.sleep(60)
        raise next(ends, ValueError("the last"))

    task = await world.queue.submit("flow")
    async with world.running():
        await asyncio.sleep(60 * (len(list(hostile())) + 2))
    assert (await world.queue.get(task.id)).status is TaskStatus.PENDING
    assert next(ends, None) is None, "each was met"


@pytest.mark.parametrize("number", range(len(list(hostile()))))
async def test_what_is_provided_may_be_closed_with_any_exception(world: World, number: int) -> None:
    problem = list(hostile())[number]

    @asynccontextmanager
    async def factory() -> AsyncIterator[Provided]:
        yield Provided()
        raise problem

    async def handler(provided: Provided) -> str:
        return "fine"

    world.app.provide(Provided, factory)
    world.app.task("good")(handler)
    done = await run(world)
    assert done["good"].output == "fine"
    assert [signal.hook for signal in world.signals if isinstance(signal, HookFailed)] == ["provide"]


def left_behind(problem: BaseException) -> Any:
    async def handler() -> None:
        asyncio.get_running_loop().call_soon(in_thread(problem))
        task = asyncio.create_task(direct(problem)())
        await asyncio.sleep(1)
        del task

    return handler


async def test_what_cannot_be_looked_at_may_come_from_callbacks_and_from_tasks_that_nobody_awaits(
    world: World,
) -> None:
    for number, problem in enumerate(hostile()):
        if not issubclass(type(problem), SystemExit):
            world.app.task(str(number))(left_behind(problem))
    done = await run(world)
    assert {str(task.status) for task in done.values()} == {"completed"}


async def test_one_pass_contains_what_a_handler_starts_too(world: World) -> None:
    async def leave() -> None:
        sys.exit(4)

    @world.app.task("bad", max_retries=0)
    async def bad() -> None:
        await asyncio.gather(leave())

    task = await world.queue.submit("bad")
    worker = world.worker()
    await worker.run_once()
    assert (await world.queue.get(task.id)).status is TaskStatus.FAILED
    worker.tasks.close()


@on_any_store
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_no_exception_of_a_hook_ends_the_worker(world: World, is_async: bool) -> None:
    hooks = [raising(problem, is_async=is_async) for problem in (*problems(), *hostile())]
    for hook in hooks:
        world.app.on_error(hook)
        world.app.on_success(hook)
        world.app.on_shutdown(hook)
    world.app.task("good")(lambda: "fine")
    world.app.task("bad", max_retries=0)(raising(ValueError("no"), is_async=True))
    await run(world)
    failed = [signal.hook for signal in world.signals if isinstance(signal, HookFailed)]
    assert {name: failed.count(name) for name in set(failed)} == {
        "on_success": 3 * len(hooks),
        "on_error": len(hooks),
        "on_shutdown": len(hooks),
    }


async def test_what_a_hook_starts_on_the_loop_does_not_end_the_worker(world: World) -> None:
    async def leave() -> None:
        sys.exit(4)

    @world.app.on_success
    async def hook() -> None:
        await asyncio.gather(leave())

    world.app.task("good")(lambda: "fine")
    await run(world)
    assert [signal.hook for signal in world.signals if isinstance(signal, HookFailed)] == ["on_success"] * 3


async def test_an_observer_that_exits_harms_nobody(world: World) -> None:
    def leave(signal: object) -> None:
        sys.exit(6)

    world.app.task("good")(lambda: "fine")
    task = await world.queue.submit("good")
    worker = rota.Worker(world.queue, world.app, observers=[leave])
    await worker.run_once()
    assert (await world.queue.get(task.id)).output == "fine"
    worker.tasks.close()


def returned_by_workflow(output: Any) -> Any:
    async def flow(ctx: rota.Workflow) -> Any:
        return output

    return flow


def returned_by_step(output: Any) -> Any:
    async def flow(ctx: rota.Workflow) -> Any:
        await ctx.step(returning(output, is_async=True), retries=0)

    return flow


def returning(output: Any, *, is_async: bool) -> Any:
    async def returned_async() -> Any:
        return output

    def returned() -> Any:
        return output

    return returned_async if is_async else returned
