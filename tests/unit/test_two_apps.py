"""Two programs that have the same kind with different parameters, such as before and after a release."""

from __future__ import annotations

import pytest

import rota
from rota.domain.errors import Invalid

old, new = rota.App(), rota.App()


@old.task("greet")
async def greet_by_number(number: int) -> str:
    return f"hello {number}"


@new.task("greet", max_retries=5)
async def greet_by_name(name: str, times: int = 1) -> str:
    return f"hello {name}" * times


async def test_each_checks_what_it_submits_and_what_it_is_given() -> None:
    async with old.connect("memory:") as queue:
        with pytest.raises(Invalid, match="the input of greet has no 'number'"):
            await queue.submit("greet", {"name": "Ada"})
        for_old = await greet_by_number.submit(5)
        await rota.Worker(queue, new).run_once()
        failed = await queue.get(for_old.id)
        assert (failed.status, failed.attempt) == (rota.TaskStatus.FAILED, 1), "trying again cannot help"
        assert failed.error is not None
        assert "the input of greet has no 'name'" in failed.error.message
        by_new = await rota.Queue(queue.store, app=new).bind(greet_by_name).submit("Ada", times=2)
        await rota.Worker(queue, new).run_once()
        assert await by_new.result(timeout=60) == "hello Adahello Ada"
        again = await greet_by_number.submit(6)
        await rota.Worker(queue, old).run_once()
        assert await again.result(timeout=60) == "hello 6"
