"""Functions that are registered: called as before, submitted with their arguments, run with what they ask for."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest

import rota
from rota import testing
from rota.testing import LoopClock

DAY = date(2026, 1, 31)


@dataclass
class Report:
    day: date
    to: list[str]


shop = rota.App()


@shop.task
def picklable(n: int) -> int:
    return n


def play(app: rota.App, scenario: Callable[[rota.Queue], Awaitable[None]], *, work: bool = True) -> None:
    """The scenario in virtual time, with the app connected and, unless told otherwise, a worker beside it."""

    async def main(clock: LoopClock) -> None:
        async with app.connect("memory:", clock=clock, actor="tester") as queue, asyncio.TaskGroup() as group:
            worker = rota.Worker(queue, app)
            if work:
                group.create_task(worker.run(handle_signals=False))
            await scenario(queue)
            worker.stop()

    testing.run(main)


# What a decorator gives back


def test_a_function_can_be_decorated_with_and_without_parentheses() -> None:
    app = rota.App()

    @app.task
    def one(n: int) -> int:
        """Doubles."""
        return 2 * n

    @app.task()
    async def two(n: int) -> int:
        return 2 * n

    @app.task("three", max_retries=0)
    def other(n: int) -> int:
        return 2 * n

    assert sorted(app.handlers) == ["one", "three", "two"]
    assert (one(5), asyncio.run(two(5)), other(n=5)) == (10, 10, 10)
    assert (one.kind, one.__name__, one.__doc__, repr(other)) == (
        "one",
        "one",
        "Doubles.",
        "<rota.TaskFunction three>",
    )
    assert list(inspect.signature(one).parameters) == ["n"]
    assert app.handlers["three"].defaults.max_retries == 0


def test_a_function_that_is_called_directly_gets_what_is_injected() -> None:
    app = rota.App()

    @app.task
    async def write(n: int, *, ctx: rota.Context, queue: rota.Queue | None = None) -> tuple[int, int, str]:
        ctx.log("said")
        await ctx.progress(0.5)
        ctx.check()
        assert queue is ctx.queue
        return n, ctx.attempt, ctx.task.kind

    @app.task
    async def calls_it() -> tuple[int, int, str]:
        return await write(2)  # type: ignore[call-arg]  # checkers want a default: rota.injected

    async def scenario(queue: rota.Queue) -> None:
        assert await write(1) == (1, 1, "write")  # type: ignore[call-arg]  # as above
        assert list(await (await calls_it.submit()).result()) == [2, 1, "calls_it"]

    play(app, scenario)

    app.provide(Database)

    @app.task
    def submits(ctx: rota.Context = rota.injected, database: Database = rota.injected) -> str:
        assert ctx.call(asyncio.sleep(0, 5)) == 5
        return database.name

    with pytest.raises(AttributeError, match="a worker fills this parameter in"):
        submits()


def test_a_function_may_have_several_kinds() -> None:
    app, other = rota.App(), rota.App()

    @app.task("a")
    @app.task("b")
    @other.task("c")
    def double(n: int) -> int:
        return 2 * n

    assert (sorted(app.handlers), sorted(other.handlers), double(1)) == (["a", "b"], ["c"], 2)
    assert app.handlers["a"].function is app.handlers["b"].function


def test_a_function_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(picklable)) is picklable


@pytest.mark.parametrize(
    ("register", "sentence"),
    [
        (lambda app: app.task(lambda n: n), "kind: this function has no name; give one"),
        (lambda app: app.task("x")(int), "function: no signature found for builtin type"),
        (lambda app: app.task("x")(5), "function: 5 is not a callable object; register a function"),
        (lambda app: app.task("a b"), "kind: 'a b' is not a valid name"),
        (lambda app: (app.task("a")(print_it), app.task("a")), "kind: 'a' already has a handler"),
        (lambda app: app.task("a", max_retries=-1), "max_retries: -1 is not accepted"),
        (lambda app: app.task("a", queue="a b"), "queue: 'a b' is not a valid name"),
        (
            lambda app: app.task("a", jitter=5)(print_it),
            "jitter: it belongs to a schedule, and no timing was given",
        ),
        (lambda app: app.task("a", cron="@daily")(print_it), "input: the input of a has no 'text'"),
        (
            lambda app: app.task("a", cron="@daily", input={"text": 5})(print_it),
            "input.text: expected a text, got 5",
        ),
        (
            lambda app: app.task("a", cron="@daily", timezone=5, input={"text": ""})(print_it),
            "schedule 'a': timezone: 5 is not a text",
        ),
        (
            lambda app: app.task("a", cron="@daily", interval=5, input={"text": ""})(print_it),
            "schedule 'a': interval: it was given together with cron",
        ),
        (
            lambda app: app.task("a", limit=rota.Limit(rate="1/s", key="txt"))(print_it),
            "limit.key: the input of a has no 'txt'; did you mean text?",
        ),
        (
            lambda app: app.task("a", limit=rota.Limit(rate="1/s", key="customer"))(print_it),
            "limit.key: the input of a has no 'customer'; accepted are text",
        ),
        (
            lambda app: app.task("a", limit=rota.Limit(rate="1/s", key="dya"))(print_report),
            "limit.key: the input of a has no 'dya'; accepted are day, to",
        ),
    ],
)
def test_a_registration_that_is_refused_changes_nothing(
    register: Callable[[rota.App], Any], sentence: str
) -> None:
    app = rota.App()
    with pytest.raises(rota.Invalid) as refused:
        register(app)
    assert str(refused.value).startswith(sentence)
    assert not app.schedules
    assert app.handlers.keys() <= ({"a"} if "already" in sentence else set())


def print_it(text: str) -> None: ...
def print_report(input: Report) -> None: ...
def print_fields(input: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        lambda input: None,
        lambda **values: None,
        lambda customer, context: None,
        lambda text, customer=None: None,
        print_fields,
    ],
)
def test_a_limit_may_have_a_key_that_the_input_can_have(handler: Any) -> None:
    app = rota.App()
    app.task("a", limit=rota.Limit(rate="1/s", key="customer"))(handler)
    app.check()


def test_the_key_of_a_limit_is_checked_when_the_annotations_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = rota.App()

    @app.task("a", limit=rota.Limit(rate="1/s", key="dya"))
    def handler(input: Later) -> None: ...  # type: ignore[name-defined]  # noqa: F821  that is the point

    monkeypatch.setitem(globals(), "Later", Report)
    with pytest.raises(rota.Invalid, match=r"^limit.key: the input of a has no 'dya'"):
        app.check()


# Submitting


def test_a_function_is_submitted_with_its_arguments_and_its_result_comes_back() -> None:
    app = rota.App()

    @app.task(queue="mail", tags=["x"])
    async def write(day: date, to: list[str], *, ctx: rota.Context = rota.injected) -> Report:
        assert ctx.attempt == 1
        return Report(day, to)

    async def scenario(queue: rota.Queue) -> None:
        sent = await write.submit(DAY, to=["ada"])
        assert sent.task.input == {"day": "2026-01-31", "to": ["ada"]}
        assert (sent.task.kind, sent.task.queue, sent.task.tags, sent.task.priority) == (
            "write",
            "mail",
            ("x",),
            128,
        )
        assert await sent.result(timeout="1m") == Report(DAY, ["ada"])
        assert (await sent.get()).output == {"day": "2026-01-31", "to": ["ada"]}
        other = await write.options(priority=7, queue="slow", tags=None).submit(DAY, [])
        assert (other.task.priority, other.task.queue, other.task.tags) == (7, "slow", ())
        assert await (await queue.bind(write).submit(DAY, [])).result() == Report(DAY, [])

    play(app, scenario)


def test_many_are_submitted_in_one_commit() -> None:
    app = rota.App()

    @app.task
    def add(a: int, b: int = 10) -> int:
        return a + b

    async def scenario(queue: rota.Queue) -> None:
        sums = await add.map([1, add.args(2, b=3)])  # type: ignore[list-item]  # a list of one sort is what checkers want
        assert [await each.result() for each in sums] == [11, 5]
        assert sums[0].task.created_at == sums[1].task.created_at
        assert await add.map([]) == []
        with pytest.raises(rota.Invalid, match=r"^items\[1\].input.a: expected a whole number, got 'x'"):
            await add.map([1, "x"])  # type: ignore[list-item]  # that is the point
        with pytest.raises(rota.Invalid, match=r"^idempotency_key: one key cannot stand for many"):
            await add.options(idempotency_key="k").map([1])
        assert await queue.count() == 2

    play(app, scenario)


def test_a_task_that_has_no_result_raises_what_happened() -> None:
    app = rota.App()

    @app.task(max_retries=0)
    def fail(n: int) -> int:
        raise ValueError(f"no {n}")

    async def scenario(queue: rota.Queue) -> None:
        failing = await fail.submit(5)
        with pytest.raises(rota.TaskFailed, match=r"^fail failed: ValueError: no 5 \(task ") as failed:
            await failing.result()
        assert (failed.value.status, failed.value.task_id) == ("failed", failing.id)
        assert failed.value.failure is not None
        assert 'raise ValueError(f"no {n}")' in failed.value.__notes__[0]
        await queue.archive(failing.id)
        with pytest.raises(rota.TaskFailed, match=r"^fail failed: ValueError"):
            await failing.result()
        late = await fail.options(ttl=0).submit(5)
        with pytest.raises(rota.TaskFailed, match=r"^fail expired \(task "):
            await late.result()
        cancelled = await fail.options(schedule_at=await queue.now() + timedelta(hours=1)).submit(5)
        await cancelled.cancel("never mind")
        with pytest.raises(rota.TaskFailed, match=r"^fail was cancelled: never mind"):
            await cancelled.result()
        waiting = await fail.options(schedule_at=await queue.now() + timedelta(hours=1)).submit(5)
        with pytest.raises(
            TimeoutError, match=r"^task .* has not ended in time; `rota status .*` says where it is$"
        ):
            await waiting.result(timeout="1s")

    play(app, scenario)


def test_a_handler_submits_to_the_queue_that_it_runs_for() -> None:
    app = rota.App()

    @app.task
    async def outer(queue: rota.Queue = rota.injected) -> str:
        sent = await inner.submit(1)
        assert sent.task.tenant == queue.tenant
        return sent.id

    @app.task
    def in_a_thread(ctx: rota.Context = rota.injected) -> str:
        return ctx.call(inner.submit(2)).task.tenant

    @app.task
    def inner(n: int) -> int:
        return n

    async def main(clock: LoopClock) -> None:
        async with rota.connect("memory:", clock=clock, tenant="acme") as queue, asyncio.TaskGroup() as group:
            worker = rota.Worker(queue, app)  # the app is connected to no queue
            group.create_task(worker.run(handle_signals=False))
            sent = await queue.bind(outer).submit()
            task = await queue.get(await sent.result())
            assert (task.kind, task.tenant) == ("inner", "acme")
            assert await (await queue.bind(in_a_thread).submit()).result() == "acme"
            worker.stop()
        with pytest.raises(
            rota.Refused, match=r"^there is no queue to submit inner to; open one with app.connect"
        ):
            await inner.submit(5)

    testing.run(main)


def test_functions_of_a_worker_are_submitted_to_its_queue() -> None:
    async def main(clock: LoopClock) -> None:
        async with rota.connect("memory:", clock=clock) as queue:
            worker = rota.Worker(queue)

            @worker.task
            def double(n: int, on: rota.Queue = rota.injected) -> int:
                return 2 * n if on is queue else 0

            sent = await double.submit(5)
            await worker.run_once()
            assert await sent.result() == 10

    testing.run(main)


def connected() -> object:
    return shop.queue


def test_an_app_is_connected_while_its_queue_is_open() -> None:
    async def main(clock: LoopClock) -> None:
        async with shop.connect("memory:", clock=clock) as first:
            async with shop.connect("memory:", clock=clock) as second:
                assert (await picklable.submit(1)).id in {task.id for task in await second.list()}
            assert (await picklable.submit(1)).id in {task.id for task in await first.list()}
        assert connected() is None
        queue = await shop.connect("memory:", clock=clock)
        assert connected() is queue
        await queue.close()
        shop.queue = None

    testing.run(main)


def test_a_worker_does_not_start_with_a_handler_that_it_cannot_read() -> None:
    app = rota.App()

    @app.task
    def send(to: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821  that is the point

    async def scenario(queue: rota.Queue) -> None:
        queue.app = None
        task = await queue.submit("send", {"to": 5})
        with pytest.raises(rota.Invalid, match=r"^send\(to\): its annotation 'Missing' cannot be resolved"):
            await rota.Worker(queue, app).run()
        assert (await queue.get(task.id)).status == "pending"

    play(app, scenario, work=False)


# Inputs that do not fit


def test_a_wrong_input_is_refused_where_the_handler_is_known() -> None:
    app = rota.App()

    @app.task
    def send(to: list[str]) -> None: ...

    async def scenario(queue: rota.Queue) -> None:
        wrong = {"to": ["a", "b", 5]}
        await queue.create_schedule("daily", task_type="send", input={"to": []}, cron="@daily")
        await queue.create_template("letter", "send", parameters={"to": []})
        letter, wrong_letter = (
            rota.TemplateTarget(template_id="letter", input=each) for each in (None, wrong)
        )
        await queue.create_schedule("letters", target=letter, cron="@daily")
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: queue.submit("send", wrong),
            lambda: queue.create_schedule("s", task_type="send", input=wrong, interval=60),
            lambda: queue.update_schedule("daily", input=wrong),
            lambda: queue.trigger_schedule("daily", wrong),
            lambda: queue.execute_template("letter", wrong),
            lambda: queue.create_schedule("s", target=wrong_letter, interval=60),
            lambda: queue.update_schedule("letters", target=wrong_letter),
            lambda: queue.plan_create("s", target=wrong_letter, interval=60),
            lambda: queue.for_tenant("acme").submit("send", wrong),
        ]
        for call in calls:
            with pytest.raises(rota.Invalid, match=r"^input.to\[2\]: expected a text, got 5$"):
                await call()
        with pytest.raises(rota.Invalid, match=r"^tasks\[1\].input.to\[2\]: expected a text, got 5$"):
            await queue.submit_many([("send", {"to": []}), ("send", wrong)])
        assert (await queue.count(), await queue.count_schedules()) == (0, 2)
        await queue.submit("unknown", wrong)

    play(app, scenario, work=False)


def test_a_declared_schedule_whose_input_does_not_fit_is_refused() -> None:
    app = rota.App()
    app.schedule("daily", task_type="send", cron="@daily", input={"to": 5})

    @app.task
    def send(to: list[str]) -> None: ...

    async def scenario(queue: rota.Queue) -> None:
        with pytest.raises(rota.Invalid, match=r"schedule 'daily': input.to: expected a list, got 5$"):
            await queue.declare_schedules(app)

    play(app, scenario, work=False)


def test_elsewhere_a_wrong_input_fails_at_once_and_says_where() -> None:
    app = rota.App()
    calls = []

    @app.task
    def send(to: list[str]) -> None:
        calls.append(to)

    async def scenario(queue: rota.Queue) -> None:
        queue.app = None
        task = await queue.wait((await queue.submit("send", {"to": ["a", "b", 5]})).id)
        assert (task.status, task.attempt, calls) == ("failed", 1, [])
        assert str(task.error) == "PermanentError: input.to[2]: expected a text, got 5"

    play(app, scenario)


def test_two_apps_may_have_one_kind_with_different_signatures() -> None:
    """The one that submits checks by its own signature; the one that works decides by its own."""
    old, new = rota.App(), rota.App()

    @old.task("greet")
    def greet_old(name: str) -> str:
        return f"Hello, {name}!"

    @new.task("greet")
    def greet_new(names: list[str], name: str = "nobody") -> list[str]:
        return [*names, name]

    async def main(clock: LoopClock) -> None:
        async with new.connect("memory:", clock=clock) as queue, asyncio.TaskGroup() as group:
            worker = rota.Worker(queue, new)
            group.create_task(worker.run(handle_signals=False))
            queue.app = None
            sent = await queue.bind(greet_old).submit("Ada")
            with pytest.raises(rota.TaskFailed, match=r"the input of greet has no 'names', which its"):
                await sent.result()
            assert await (await queue.bind(greet_new).submit(["Ada"])).result() == ["Ada", "nobody"]
            queue.app = new
            with pytest.raises(rota.Invalid, match=r"^input: the input of greet has no 'names'"):
                await queue.bind(greet_old).submit("Ada")
            worker.stop()

    testing.run(main)


def test_a_result_that_another_app_stored_in_another_form_is_refused_when_it_is_read() -> None:
    mine, theirs = rota.App(), rota.App()

    @mine.task("count")
    def count() -> int:
        return 1

    @theirs.task("count")
    def count_in_words() -> str:
        return "one"

    async def scenario(queue: rota.Queue) -> None:
        sent = await queue.bind(count).submit()
        with pytest.raises(rota.Invalid, match=r"^output: expected a whole number, got 'one'$"):
            await sent.result()

    play(theirs, scenario)


def test_a_result_that_cannot_be_stored_fails_at_once() -> None:
    app = rota.App()

    @app.task
    def untyped():  # type: ignore[no-untyped-def]  # as today: it must return JSON
        return DAY

    async def scenario(queue: rota.Queue) -> None:
        task = await queue.wait((await queue.submit("untyped")).id)
        assert (task.status, task.attempt) == ("failed", 1)
        assert "output: a value of type date is not JSON" in str(task.error)

    play(app, scenario)


def test_a_result_that_is_not_what_its_annotation_says_fails_at_once() -> None:
    app = rota.App()

    @app.task
    def count() -> int:
        return "many"  # type: ignore[return-value]  # the mistake

    @app.task
    async def nothing() -> int:  # type: ignore[empty-body]  # the mistake
        pass

    @app.task
    def several() -> list[Report]:
        return [Report(DAY, []), Report(DAY, [1])]  # type: ignore[list-item]  # the mistake

    async def scenario(queue: rota.Queue) -> None:
        for kind, problem in {
            "count": "output: expected a whole number, got 'many'",
            "nothing": "output: expected a whole number, got None",
            "several": "output[1].to[0]: expected a text, got 1",
        }.items():
            task = await queue.wait((await queue.submit(kind)).id)
            assert (task.status, task.attempt, task.output) == ("failed", 1, None)
            assert problem in str(task.error)

    play(app, scenario)


# A schedule in the decorator


def test_a_schedule_in_the_decorator_may_name_a_class_that_is_defined_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = rota.App()

    @app.task(cron="@daily", input={"to": {"day": 5, "to": []}})
    def remind(to: Later) -> None: ...  # type: ignore[name-defined]  # noqa: F821  that is the point

    async def scenario(queue: rota.Queue) -> None:
        monkeypatch.setitem(globals(), "Later", Report)
        with pytest.raises(
            rota.Invalid, match=r"^schedule 'remind': input.to.day: expected a date .*, got 5$"
        ):
            await queue.declare_schedules(app)

    play(app, scenario, work=False)


def test_a_schedule_in_the_decorator_runs_with_its_input() -> None:
    app = rota.App()
    seen = []

    @app.task(interval="5m", input={"to": ["ada"]}, queue="mail", max_retries=7, overlap_policy="allow")
    def remind(to: list[str]) -> int:
        seen.append(to)
        return len(to)

    async def scenario(queue: rota.Queue) -> None:
        await testing.advance(timedelta(minutes=16))
        assert seen == [["ada"]] * 3
        schedule = await queue.get_schedule("remind")
        assert isinstance(schedule.target, rota.TaskTarget)
        assert (schedule.target.queue, schedule.target.max_retries, schedule.overlap_policy) == (
            "mail",
            None,
            "allow",
        )
        task = (await queue.list())[0]
        assert (task.queue, task.max_retries, task.output) == ("mail", 7, 1)

    play(app, scenario)


# What an app provides


class Database:
    def __init__(self, name: str = "made by its class") -> None:
        self.name = name
        self.is_open = True


class Session:
    def __init__(self, database: Database, task: rota.Task) -> None:
        self.database = database
        self.task = task


@asynccontextmanager
async def in_async_with() -> AsyncIterator[Database]:
    database = Database("async with")
    async with asyncio.timeout(1000):  # which must be left by the asyncio task that entered it
        yield database
    database.is_open = False


@contextmanager
def in_with() -> Iterator[Database]:
    database = Database("with")
    yield database
    database.is_open = False


async def awaited() -> Database:
    return Database("awaited")


@pytest.mark.parametrize("per", ["worker", "task"])
@pytest.mark.parametrize(
    ("factory", "name", "closes"),
    [
        (None, "made by its class", False),
        (lambda: Database("called"), "called", False),
        (awaited, "awaited", False),
        (in_async_with, "async with", True),
        (in_with, "with", True),
    ],
)
def test_what_is_provided_is_made_once_and_closed(factory: Any, name: str, closes: bool, per: Any) -> None:
    app = rota.App()
    app.provide(Database, factory, per=per)
    app.provide(Session, per="task")
    seen: list[Session] = []

    @app.task
    async def use(session: Session, database: Database) -> str:
        assert session.database is database
        assert database.is_open
        seen.append(session)
        return session.database.name

    async def scenario(queue: rota.Queue) -> None:
        tasks = await queue.submit_many([("use", None)] * 3)
        assert [(await queue.wait(task.id)).output for task in tasks] == [name] * 3
        assert [each.task.id for each in seen] == [task.id for task in tasks]
        assert len({id(each.database) for each in seen}) == (1 if per == "worker" else 3)
        assert [each.database.is_open for each in seen] == [per == "worker" or not closes] * 3

    play(app, scenario)
    assert [each.database.is_open for each in seen] == [not closes] * 3


def test_what_cannot_be_made_fails_the_attempt_and_is_tried_again() -> None:
    app = rota.App()
    tries: list[int] = []

    async def connect() -> Database:
        tries.append(len(tries))
        await asyncio.sleep(1)
        if len(tries) < 3:
            raise ConnectionError("the database is away")
        return Database("back")

    app.provide(Database, connect)

    @app.task
    async def use(database: Database) -> str:
        return database.name

    async def scenario(queue: rota.Queue) -> None:
        first, second = await queue.submit_many([("use", None)] * 2)
        assert [(await queue.wait(task.id)).output for task in (first, second)] == ["back", "back"]
        lines = [change.reason for change in await queue.history(first.id) if change.type == "retried"]
        assert lines == ["ConnectionError: the database is away"] * 2
        assert len(tries) == 3

    play(app, scenario)


def test_all_is_closed_if_one_cannot_be_and_another_is_still_being_made() -> None:
    app = rota.App()
    database = Database("kept")

    @asynccontextmanager
    async def kept() -> AsyncIterator[Database]:
        yield database
        database.is_open = False

    @asynccontextmanager
    async def broken() -> AsyncIterator[int]:
        yield 5
        raise OSError("cannot be closed")

    async def hung() -> str:
        await asyncio.Event().wait()
        return "never"

    app.provide(Database, kept)
    app.provide(int, broken)
    app.provide(str, hung)

    @app.task(max_retries=0, timeout=1)
    async def use(database: Database, number: int, text: str) -> None: ...

    async def scenario(queue: rota.Queue) -> None:
        task = await queue.wait((await queue.submit("use")).id)
        assert str(task.error) == "TimeoutError: ran longer than its timeout of 1 s"

    play(app, scenario)
    assert not database.is_open


def test_a_handler_in_a_thread_and_one_pass_have_what_is_provided() -> None:
    app = rota.App()
    made: list[Database] = []

    @contextmanager
    def kept() -> Iterator[Database]:
        made.append(Database("kept"))
        yield made[-1]
        made[-1].is_open = False

    app.provide(Database, kept)

    @app.task
    def use(database: Database = rota.injected, task: rota.Task = rota.injected) -> str:
        return f"{database.name} for {task.kind}"

    async def scenario(queue: rota.Queue) -> None:
        for _ in range(2):
            sent = await use.submit()
            await rota.Worker(queue, app).run_once()
            assert await sent.result() == "kept for use"

    play(app, scenario, work=False)
    assert [database.is_open for database in made] == [False, False]


@pytest.mark.parametrize(
    ("provide", "sentence"),
    [
        (lambda app: app.provide("Database"), "provide: 'Database' is not a class"),
        (lambda app: app.provide(rota.Context), "provide: Context is provided already"),
        (lambda app: (app.provide(Database), app.provide(Database)), "provide: Database is provided already"),
        (lambda app: app.provide(Database, 5), "provide: 5 cannot be called"),
        (lambda app: app.provide(Database, per="day"), "per: 'day' is not known"),
        (
            lambda app: app.provide(Session, per="task"),
            "provide(Session)(database): nobody provides a Database",
        ),
        (
            lambda app: app.provide(Database, lambda url: None),
            "provide: the factory of Database has parameters",
        ),
        (
            lambda app: (app.provide(Database), app.provide(Session)),
            "provide: the factory of Session has parameters that nobody fills",
        ),
    ],
)
def test_what_cannot_be_provided_is_refused(provide: Callable[[Any], Any], sentence: str) -> None:
    with pytest.raises(rota.Invalid) as refused:
        provide(rota.App())
    assert str(refused.value).startswith(sentence)
