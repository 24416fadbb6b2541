"""The traps of conditional writes, each on the real S3 server (through a proxy that sets it), or where it lives."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import obstore
import pytest
from msgspec.structs import replace
from obstore import exceptions as obs

import s3_server
from bucket.faulty import Fault, FaultyRequests
from bucket.s3_proxy import Plan, Proxy, proxied
from records import task
from rota.domain.errors import Invalid, Unavailable
from rota.domain.model import Task
from rota.engine.clock import SystemClock
from rota.stores.base import Tx
from rota.stores.bucket.service.address import BucketAddress
from rota.stores.bucket.service.bucket import Bucket, FolderRequests, MemoryRequests, Taken
from rota.stores.bucket.service.proof import check_create, prove
from rota.stores.bucket.store import BucketStore
from stores import get, put

FIRST_ENTRY = "log/000000000001.json"


def through(proxy: Proxy, name: str) -> str:
    return (
        f"s3://{s3_server.BUCKET}/{name}?endpoint={quote(proxy.endpoint, safe='')}&region=us-east-1&views=off"
    )


def unique(name: str) -> str:
    """Other test runs on this machine share the server."""
    return f"{name}-{uuid.uuid4().hex}"


def first_write(action: str) -> Plan:
    """Do this to the first write of an entry."""
    done: list[bool] = []

    def plan(method: str, path: str, before: int) -> str | None:
        if method == "PUT" and FIRST_ENTRY in path and not done:
            done.append(True)
            return action
        return None

    return plan


@pytest.mark.parametrize("action", ["500 after", "cut", "503", "409", "412", "500"])
async def test_what_the_service_says_about_a_write_is_settled_by_reading(action: str) -> None:
    """1 and 2. Done but answered with 500, or cut off; or refused with 409 or 412 although nothing is there. In each
    case the entry is written exactly once, and the work counts exactly once."""
    runs = 0

    async def work(tx: Tx) -> None:
        nonlocal runs
        runs += 1
        found = await tx.get(Task, "counter")
        tx.put(task("counter") if found is None else replace(found, priority=found.priority + 1))

    with proxied(s3_server.endpoint(), first_write(action)) as proxy:
        store = BucketStore.from_url(through(proxy, unique("trap")), SystemClock())
        await store.open()
        await store.transact(work)
        counter = await get(store, Task, "counter")
        await store.close()
    assert counter is not None
    assert (counter.version, runs) == (1, 1), "an own success was taken for another's"
    writes = [path for method, path in proxy.seen if method == "PUT" and FIRST_ENTRY in path]
    assert len(writes) == (1 if action in ("500 after", "cut") else 2), "obstore repeated a conditional write"


async def test_reads_are_repeated_by_themselves() -> None:
    def plan(method: str, path: str, before: int) -> str | None:
        return "503" if method == "GET" and "log/" in path and before % 2 == 0 else None

    with proxied(s3_server.endpoint(), plan) as proxy:
        store = BucketStore.from_url(through(proxy, unique("repeated")), SystemClock())
        await store.open()
        await put(store, task("a"))
        assert await get(store, Task, "a") is not None
        await store.close()


async def test_a_service_that_denies_is_named_with_bucket_and_key() -> None:
    def plan(method: str, path: str, before: int) -> str | None:
        return "403" if method == "PUT" and "log/" in path else None

    with proxied(s3_server.endpoint(), plan) as proxy:
        store = BucketStore.from_url(through(proxy, "denied"), SystemClock())
        await store.open()
        with pytest.raises(
            Unavailable, match=r"cannot write s3://rota-test/denied/log/000000000001.json: access denied"
        ):
            await put(store, task("a"))
        await store.close()


@pytest.mark.parametrize("status", ["409", "412"])
def test_only_a_conditional_write_can_find_something_taken(status: str) -> None:
    """What a service says of a conflict to any other request is a failure like others, and the store says so."""
    with proxied(s3_server.endpoint(), lambda method, path, before: status) as proxy:
        bucket = Bucket(BucketAddress.parse(through(proxy, "conflict")).requests())
        with pytest.raises(Taken, match=f"s3://rota-test/conflict/a is taken: {status} .* to PUT"):
            bucket.create("a", b"")
        for words, request in (
            ("read", lambda: bucket.get("a")),
            ("put", lambda: bucket.put("a", b"")),
            ("list", lambda: bucket.list("a")),
            ("delete", lambda: bucket.delete(["a"])),
        ):
            with pytest.raises(Unavailable, match=f"cannot {words} s3://rota-test/conflict/a: {status} "):
                request()


def test_what_the_service_says_is_told_in_one_short_sentence() -> None:
    """By its own name for it, with what was asked of whom, and how often."""
    with proxied(s3_server.endpoint(), lambda method, path, before: "503") as proxy:
        bucket = Bucket(BucketAddress.parse(through(proxy, "slow")).requests())
        with pytest.raises(Unavailable) as failed:
            bucket.list("log/")
    assert str(failed.value) == (
        "cannot list s3://rota-test/slow/log/: 503 Service Unavailable Injected"
        f" to GET {proxy.endpoint}/rota-test, after 5 retries"
    )


def test_a_replacement_needs_the_etag_and_nothing_else() -> None:
    """4. `version: None` beside the ETag raises in obstore."""
    requests = MemoryRequests()
    requests.put("a", b"one")
    etag = requests.get("a").etag
    assert etag is not None
    requests.replace("a", b"two", etag)
    assert requests.get("a").body == b"two"
    with pytest.raises(Taken):
        Bucket(requests).replace("a", b"three", etag)


def test_a_folder_has_no_replacement_and_needs_none(tmp_path: Path) -> None:
    """4. What the log needs is there."""
    proofs = {proof.behaviour: proof for proof in prove(Bucket(FolderRequests(tmp_path)))}
    assert all(proof.holds for proof in proofs.values())
    assert proofs["compare-and-set race"].found == "not offered here, and not needed"


def test_a_list_that_ignores_where_to_begin_is_filtered_again() -> None:
    """5. As Azurite does."""

    class Forgetful(FaultyRequests):
        def list(self, prefix: str, after: str | None) -> Iterator[str]:
            return super().list(prefix, None)

    requests = Forgetful(MemoryRequests())
    for key in ("log/3", "log/1", "log/2"):
        requests.put(key, b"")
    assert Bucket(requests).list("log/", "log/1") == ["log/2", "log/3"]


@pytest.mark.parametrize("careless", [False, True])
def test_a_service_that_wants_etags_without_quotation_marks_is_proved_too(careless: bool) -> None:
    """5. As Ceph does: it answers 412 to an ETag as it gave it itself."""

    class Ceph(FaultyRequests):
        def replace(self, key: str, body: bytes, etag: str) -> None:
            if etag.startswith('"'):
                raise obs.PreconditionError("412")
            if careless:
                self.put(key, body)
            else:
                super().replace(key, body, f'"{etag}"')

    proofs = {proof.behaviour: proof.holds for proof in prove(Bucket(Ceph(MemoryRequests())))}
    assert proofs["compare-and-set race"] is not careless


def test_google_is_never_asked_without_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """5. Without one, obstore asks an address that exists only inside Google, and waits for it."""
    for name in ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(__import__("sys").modules, "obstore.auth.google", None)
    with pytest.raises(Invalid, match="google-auth"):
        BucketAddress.parse("gs://bucket/prefix").requests()


class Careless(FaultyRequests):
    """A service that ignores conditions, as some gateways do."""

    def create(self, key: str, body: bytes) -> None:
        self.put(key, body)

    def replace(self, key: str, body: bytes, etag: str) -> None:
        self.put(key, body)


def test_the_doctor_proves_the_real_server() -> None:
    assert [
        (proof.behaviour, proof.holds)
        for proof in prove(Bucket(BucketAddress.parse(s3_server.url()).requests()))
    ] == [
        ("create race", True),
        ("compare-and-set race", True),
        ("read after write", True),
        ("list order", True),
    ]


def test_the_doctor_refuses_a_service_that_ignores_conditions_by_name() -> None:
    bucket = Bucket(Careless(MemoryRequests()))
    failed = {proof.behaviour: proof.found for proof in prove(bucket) if not proof.holds}
    assert set(failed) == {"create race", "compare-and-set race"}
    assert failed["create race"] == "of 4 who created one key at once, 4 were told that they had"


async def test_a_bucket_of_such_a_service_is_not_even_opened() -> None:
    bucket = Bucket(Careless(MemoryRequests()))
    with pytest.raises(Invalid, match="ignores If-None-Match"):
        check_create(bucket)
    store = BucketStore(Careless(MemoryRequests()), SystemClock())
    with pytest.raises(Invalid, match="conditional writes"):
        await store.open()


async def test_nor_is_one_that_is_in_use_already() -> None:
    """Somebody else, or another way to the same bucket, has written there."""
    good = BucketStore(MemoryRequests("in use"), SystemClock())
    await good.open()
    await put(good, task("a"))
    with pytest.raises(Invalid, match="ignores If-None-Match"):
        await BucketStore(Careless(MemoryRequests("in use")), SystemClock()).open()
    assert await get(good, Task, "a") is not None
    await good.close()


async def test_the_proof_on_opening_takes_one_request_of_its_own() -> None:
    requests = FaultyRequests(MemoryRequests("proved"))
    for _ in range(3):
        store = BucketStore(requests, SystemClock())
        requests.made.clear()
        await store.open()
        created = [key for kind, key in requests.made if kind == "create"]
        await put(store, task())
        await store.close()
    assert created == ["proof/create"]


def _in_creates(faults: Iterator[Fault], number: int, kind: str) -> Fault | None:
    return next(faults, None) if kind == "create" else None


async def test_who_may_only_read_can_open_and_one_failure_does_not_keep_out() -> None:
    good = BucketStore(MemoryRequests("read only"), SystemClock())
    await good.open()
    await put(good, task("a"))
    await good.close()
    requests = FaultyRequests(MemoryRequests("read only"))
    for fault in (Fault.DENIED, Fault.BEFORE, Fault.AFTER):
        faults = iter([fault])
        requests.plan = partial(_in_creates, faults)
        store = BucketStore(requests, SystemClock())
        await store.open()
        assert await get(store, Task, "a") is not None
        await store.close()


async def test_who_may_not_remove_anything_can_open_and_is_told_what_holds() -> None:
    requests = FaultyRequests(
        MemoryRequests(), lambda number, kind: Fault.DENIED if kind == "delete" else None
    )
    store = BucketStore(requests, SystemClock())
    await store.open()
    await put(store, task("a"))
    assert all(proof.holds for proof in await store.prove())
    await store.close()


def test_proofs_leave_nothing_behind() -> None:
    requests: Any = MemoryRequests()
    prove(Bucket(requests))
    assert list(requests.list("", None)) == []


def test_what_is_not_there_is_as_good_as_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service may say that it was not there, and stop."""
    requests = BucketAddress.parse(s3_server.url()).requests()
    delete = obstore.delete

    def strict(store: Any, keys: list[str]) -> None:
        for key in keys:
            obstore.head(store, key)  # FileNotFoundError
            delete(store, [key])

    monkeypatch.setattr("obstore.delete", strict)
    for key in ("a", "c"):
        requests.put(key, b"")
    Bucket(requests).delete(["a", "b", "c", "d"])
    assert list(requests.list("", None)) == []
