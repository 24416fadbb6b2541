"""The command line on a bucket: document 000 as it is written, and the doctor."""

from __future__ import annotations

import asyncio
import gzip
from datetime import timedelta
from pathlib import Path

import pytest

import s3_server
from command_line import bare_folder, document, rota
from rota import Queue
from rota.domain.errors import Unavailable
from rota.engine.clock import SystemClock
from rota.stores.bucket.service.address import BucketAddress
from rota.stores.bucket.service.bucket import Bucket
from rota.stores.bucket.store import BucketStore
from rota.stores.bucket.tuning import Tuning


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    address = s3_server.url()
    bare_folder(monkeypatch, tmp_path)
    monkeypatch.setenv("ROTA_STORE", address)
    return address


def test_the_commands_of_document_000(address: str) -> None:
    rota("""submit -t send_reminder -i '{"user_id":"123"}' --at "2026-01-28T09:00:00Z" """)
    rota("""submit -t send_reminder -i '{"user_id":"123"}' --in 1h""")
    rota(
        """schedule create daily-report --task-type generate_report --input '{"report_type":"daily"}'"""
        """ --cron "0 9 * * *" """
    )
    assert "daily-report" in rota("schedule list").stdout
    assert "At 09:00" in rota("schedule show daily-report").stdout
    rota("schedule pause daily-report")
    rota("schedule resume daily-report")
    rota("schedule trigger daily-report")
    assert (
        BucketAddress.parse(address).requests().get("schedules/daily-report.json").body.startswith(b"{\n  ")
    )
    rota("schedule delete daily-report --yes")


def test_the_doctor_proves_the_bucket(address: str) -> None:
    rota("migrate")
    findings = {finding["check"]: finding for finding in document("doctor")}
    for behaviour in (
        "create race",
        "compare-and-set race",
        "read after write",
        "list order",
        "upkeep",
        "log length",
        "clock",
        "writable",
    ):
        assert findings[behaviour]["ok"], findings[behaviour]


def test_the_doctor_says_what_can_be_done_about_an_entry_that_cannot_be_read(address: str) -> None:
    rota("submit -t work")
    BucketAddress.parse(address).requests().put("log/000000000002.json", b"{ not an entry")
    [_, found] = document("doctor", code=1)
    assert found["found"].startswith(f"{address.partition('?')[0]}/log/000000000002.json cannot be read")
    assert "--repair" in found["advice"]
    [_, found] = document("doctor --repair", code=1)
    assert "restore" in found["advice"]
    assert "log/000000000002.json" in found["advice"]


def test_a_bucket_that_is_not_there_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    endpoint = s3_server.endpoint()
    bare_folder(monkeypatch, tmp_path)
    result = rota(
        ["submit", "-t", "work", "--store", f"s3://no-such-bucket-here/x?endpoint={endpoint}"], code=1
    )
    assert "s3://no-such-bucket-here/x" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


async def test_the_doctor_says_what_can_be_done_about_a_segment_that_cannot_be_read(address: str) -> None:
    """And it works: what was in the segment is lost, and everything else goes on."""
    tuning = Tuning(
        archive_after=timedelta(0),
        archive_at_least=4,
        snapshot_every=4,
        views="off",
        views_every=timedelta(0),
    )
    store = BucketStore(BucketAddress.parse(address).requests(), SystemClock(), tuning)
    await store.open()
    queue = Queue(store)
    ended = [await queue.cancel(task.id) for task in await queue.submit_many([("old", None)] * 4)]
    await queue.submit("new")  # stays, even if the others are in the archive by now
    async with asyncio.timeout(60):
        while not store.bucket.list("archive/"):
            await queue.submit("new")
    await store.close()
    [segment, *_] = Bucket(BucketAddress.parse(address).requests()).list("archive/")
    BucketAddress.parse(address).requests().put(segment, b"this is no segment")
    found = await asyncio.to_thread(document, "doctor --deep --repair", code=1)
    assert f"{segment} cannot be read" in found[-1]["found"]
    assert "`echo '{}' | gzip`" in found[-1]["advice"]
    assert "counts of tasks go on including it" in found[-1]["advice"]
    BucketAddress.parse(address).requests().put(segment, gzip.compress(b"{}\n"))
    assert all(finding["ok"] for finding in await asyncio.to_thread(document, "doctor --deep"))
    listed = await asyncio.to_thread(document, "list --limit 1000")
    left = {task["id"] for task in listed["tasks"]}
    assert left
    assert not left & {task.id for task in ended}
    cancelled = await asyncio.to_thread(document, "list --status cancelled --limit 1000")
    assert cancelled["tasks"] == []


def test_the_doctor_ends_with_what_it_found_when_the_service_fails_meanwhile(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: BucketStore, work: object) -> None:
        raise Unavailable("cannot read s3://somewhere: 503")

    rota("migrate")
    monkeypatch.setattr(BucketStore, "read", fails)
    *others, last = document("doctor", code=1)
    assert all(finding["ok"] for finding in others)
    assert (last["check"], last["found"]) == ("records", "cannot read s3://somewhere: 503")
