"""How often someone may ask, and what an Idempotency-Key stands for: without a server."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.errors import Refused
from rota.engine.clock import SystemClock
from rota.engine.commands import once
from rota.stores.base import Tx, Work
from rota.stores.memory.store import MemoryStore
from rota.surfaces.http.access import Limiter
from rota.surfaces.http.service import receipt_of

RATE, BURST = 2.0, 4.0


def spent(at: float = 0.0) -> Limiter:
    """A limiter whose burst is used up."""
    limiter = Limiter(RATE, BURST)
    assert [limiter.take("a", at) for _ in range(5)] == [None, None, None, None, 1]
    return limiter


@pytest.mark.parametrize(
    ("seconds", "granted"), [(0.0, 0), (0.4, 0), (0.5, 1), (1.0, 2), (2.0, 4), (60.0, 4)]
)
def test_a_limiter_refills_at_its_rate_up_to_its_burst(seconds: float, granted: int) -> None:
    limiter = spent()
    answers = [limiter.take("a", seconds) for _ in range(6)]
    assert [answer is None for answer in answers] == [True] * granted + [False] * (6 - granted)


def test_what_refills_bit_by_bit_adds_up() -> None:
    limiter = spent()
    assert [limiter.take("a", tenth / 8) is None for tenth in range(1, 9)] == [False, False, False, True] * 2


def test_who_is_refused_learns_in_how_many_whole_seconds_to_ask_again() -> None:
    slow = Limiter(0.25, 1)
    assert [slow.take("a", at) for at in (0.0, 0.0, 1.0, 3.5, 4.0)] == [None, 4, 3, 1, None]


def test_names_do_not_share_and_the_least_recent_is_forgotten() -> None:
    limiter = Limiter(RATE, 1, remembered=2)
    assert [limiter.take(name, 0) for name in "aabbccbca"] == [None, 1, None, 1, None, 1, 1, 1, None]


ASKED: dict[str, Any] = {"tenant": "acme", "key": "k", "method": "POST", "path": "/schedules", "body": b"{}"}


@pytest.mark.parametrize("other", [{"body": b"{ }"}, {"method": "PUT"}])
def test_a_receipt_of_the_same_key_and_path_tells_another_request_by_its_fingerprint(other: Any) -> None:
    first, second = receipt_of(**ASKED), receipt_of(**ASKED | other)
    assert first[0] == second[0]
    assert first[1] != second[1]


@pytest.mark.parametrize("other", [{"tenant": "globex"}, {"key": "l"}, {"path": "/keys"}])
def test_another_tenant_key_or_path_has_another_receipt(other: Any) -> None:
    assert receipt_of(**ASKED)[0] != receipt_of(**ASKED | other)[0]


@pytest.mark.parametrize(("tenant", "fingerprint"), [("acme", "other"), ("globex", "request")])
async def test_a_receipt_is_no_answer_to_another_request(tenant: str, fingerprint: str) -> None:
    done: list[str] = []

    def request(tenant: str, fingerprint: str, answer: str) -> Work[tuple[int, Any]]:
        async def work(tx: Tx) -> str:
            done.append(answer)
            return answer

        return once("receipt", tenant, fingerprint, work, lambda made: (201, made))

    store = MemoryStore(SystemClock())
    await store.open()
    assert await store.transact(request("acme", "request", "first")) == (201, "first")
    assert await store.transact(request("acme", "request", "again")) == (201, "first")
    with pytest.raises(Refused) as refused:
        await store.transact(request(tenant, fingerprint, "third"))
    assert (refused.value.code, done) == ("idempotency_reused", ["first"])
    await store.close()
