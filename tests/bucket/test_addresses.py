"""Addresses: what is wrong with one is said in one sentence before any request; what is odd and legal works."""

from __future__ import annotations

import http.client
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest

import rota as product
import s3_server
from command_line import bare_folder, rota
from records import task
from rota.domain.errors import Invalid, Unavailable
from rota.domain.model import Task
from rota.engine.clock import SystemClock
from rota.stores.bucket.service.address import BucketAddress
from rota.stores.bucket.service.bucket import ServiceRequests
from rota.stores.bucket.store import BucketStore
from rota.stores.secrets import without_secrets
from rota.surfaces.stores import make_store
from stores import get, put

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
SECRET = "wJal/rXUt+nFEMI"


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)


WRONG = [
    ("s3://bucket/pre#fix", "the address has a '#'; write %23"),
    ("file:///folder#x", "the address has a '#'; write %23"),
    ("s3://bucket//x", "the prefix '/x' has a part that is empty, '.' or '..'; leave it out"),
    ("s3://bucket/x//", "the prefix 'x/' has a part that is empty"),
    ("s3://bucket/a//b", "the prefix 'a//b' has a part that is empty"),
    ("s3://bucket/../x", "the prefix '../x' has a part that is empty, '.' or '..'"),
    ("gs://bucket/a/./b", "the prefix 'a/./b' has a part"),
    ("az://container/a%2F..%2Fb", "the prefix 'a/../b' has a part"),
    ("s3://bucket/a\\b", "the prefix 'a\\\\b' has a backslash; write s3://bucket/a/b"),
    ("s3://bucket/a%0Ab", "the address has a control character; leave it out"),
    ("s3://bucket/a\nb", "the address has a control character"),
    ("file:///a%00b", "the address has a control character"),
    ("s3://bucket/100%", "the address has a '%' that two hexadecimal digits do not follow; write it as %25"),
    ("s3://bucket/%FF", "what is written with % in the address is no UTF-8"),
    ("s3://bucket/" + "x" * 513, "the prefix has 513 bytes; accepted are 512"),
    ("s3://", "the address names no bucket; write s3://bucket/prefix"),
    ("s3:///prefix", "the address names no bucket"),
    ("s3:bucket", "the address names no bucket"),
    ("s3://[bucket", "the address cannot be read"),
    ("az://", "the address names no container; write az://container/prefix"),
    *(
        (f"s3://{name}/prefix", f"{name!r} is no name of a bucket; accepted are 3 to 255 letters, digits, dots")
        for name in ("ab", "..", "192.168.1.1", "bücket", "a b", "a%20b", "a$b")
    ),
    ("s3://" + "x" * 256, f"{'x' * 256!r:.80} is no name of a bucket; accepted are 3 to 255 letters"),
    *(
        (
            f"s3://{name}?endpoint=http://h",
            f"{name!r:.80} is no name of a bucket; accepted are 1 to 255 letters, digits, dots, hyphens",
        )
        for name in (".", "..", "bücket", "a b", "%2e%2e", "a%20b", "a|b", "x" * 256)
    ),
    ("gs://My-Queue", "'My-Queue' is no name of a bucket; accepted are 3 to 222"),
    *(
        (f"az://{name}", f"{name!r} is no name of a container; accepted are 3 to 63 small letters")
        for name in ("a--b", "My-Queue", "my_queue", "$other", "$web2")
    ),
    ("az://..?endpoint=http://h", "'..' is no name of a container; accepted are 1 to 255"),
    *(
        (f"s3://bucket?timeout={text}", f"timeout is {text!r}; accepted is a number of seconds from 0.1 to 3600")
        for text in ("0", "-1", "nan", "inf", "1e999", "1e300", "1e-9", "", "soon")
    ),
    ("s3://bucket?timeout=5&timeout=6", "the address has the option 'timeout' twice; give it once"),
    ("s3://bucket?views=bogus", "views is 'bogus'; accepted is on, off or tasks"),
    ("file:///folder?views=ON", "views is 'ON'; accepted is on, off or tasks"),
    ("memory-bucket:?views=", "views is ''; accepted is on, off or tasks"),
    ("s3://bucket?region=", "region is ''; accepted is a name such as us-east-1"),
    ("s3://bucket?region=a%20b", "region is 'a b'"),
    ("az://container?account=My.Account", "account is 'My.Account'; accepted is 3 to 24"),
    ("s3://bucket?bogus=1", "the address has an unknown option 'bogus'; accepted are endpoint, region, timeout"),
    ("gs://bucket?endpoint=http://x", "the address has an unknown option 'endpoint'; accepted are timeout, views"),
    ("file:///folder?timeout=1", "the address has an unknown option 'timeout'; accepted are views"),
    *(
        (f"s3://bucket?endpoint={quote(text)}", "endpoint is no address of a service; write https://host")
        for text in ("", "ftp://x", "127.0.0.1:80", "http://", "http://x y", "http://h:99999", "http://h:0", "http://[")
    ),
    ("s3://bucket?endpoint=https://h/?a=1", "endpoint has more than the address of a service"),
    ("file://", "the address names no folder; write file:///absolute/folder"),
    ("file:///", "the address names no folder"),
    ("file:folder", "the address names no folder"),
    ("file://host/folder", "the address names no folder"),
    ("memory-bucket://name", "a bucket in memory has no //; write memory-bucket:name"),
]  # fmt: skip


@pytest.mark.parametrize(("address", "sentence"), WRONG, ids=[address[:40] for address, _ in WRONG])
def test_what_is_wrong_with_an_address_is_said_in_a_sentence(address: str, sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        make_store(address, SystemClock())
    assert str(refused.value).startswith(f"store: {sentence}")


REAL = [
    *(f"s3://{name}" for name in ("my-queue", "my_bucket", "My_Bucket", "a..b", "-abc", "_abc-", "x" * 255)),
    *(f"s3://{name}?endpoint=http://h" for name in ("a", "My_Bucket", "192.168.1.1", "...", "x" * 255)),
    *(f"az://{name}" for name in ("$web", "$root", "$logs", "my-queue")),
    *(f"az://{name}?endpoint=http://h" for name in ("$web", "My_Container")),
    "gs://my_queue.example",
]


@pytest.mark.parametrize("address", REAL, ids=[address[:40] for address in REAL])
def test_names_that_buckets_have_are_accepted(address: str) -> None:
    """By Amazon's rule of today and that of old; whatever the client library gets right, of a service with another."""
    parsed = BucketAddress.parse(address)
    assert parsed.name == address.partition("?")[0]


@pytest.mark.parametrize("variable", ENDPOINTS)
def test_a_service_named_by_the_environment_has_names_of_its_own(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Invalid, match="3 to 255"):
        BucketAddress.parse("s3://ab")
    monkeypatch.setenv(variable, "http://h")
    assert BucketAddress.parse("s3://ab").bucket == "ab"


@contextmanager
def listener() -> Iterator[tuple[str, list[str]]]:
    """A service that has nothing; its address, and what it was asked for."""
    asked: list[str] = []

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *about: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize("name", ["a", "My_Bucket", "-a..b-", "192.168.1.1", "...", "$web"])
@pytest.mark.parametrize("scheme", ["s3", "az"])
def test_the_client_library_asks_for_the_bucket_of_that_name(
    scheme: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "YWJj")
    with listener() as (endpoint, paths):
        account = "account=acc&" if scheme == "az" else ""
        requests = BucketAddress.parse(f"{scheme}://{name}/p?{account}endpoint={endpoint}").requests()
        with pytest.raises(FileNotFoundError):
            requests.get("k")
    assert set(paths) == {f"/{name}/p/k"}


@pytest.mark.parametrize(
    "address",
    [
        f"s3://AKIA:{SECRET}@bucket/prefix",
        f"s3://bucket?endpoint=https://user:{SECRET}@host",
        f"s3://bucket?endpoint={quote(f'https://user:{SECRET}@host', safe='')}",
        f"s3://bucket?secret_access_key={SECRET}",
        f"S3://AKIA:{SECRET}@bucket",
        f"mysql://user:{SECRET}@host/database",
        f"mysql://user:what?{SECRET}@host/database",
        f"mysql://user:what?key=a@{SECRET}@host/database",
        f"mysql://host:3306/database?password=a@{SECRET}",
        f"mysql://host?password={SECRET}",
        f"az://account:{SECRET}@container",
    ],
)
def test_a_secret_in_an_address_is_refused_and_never_repeated(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare_folder(monkeypatch, tmp_path)
    for words in (["doctor"], ["submit", "-t", "work"]):
        result = rota([*words, "--store", address], code=2)
        assert "FEMI" not in result.output + result.stderr
        assert len(result.stderr.strip().splitlines()) <= 2
    assert "FEMI" not in rota(["config", "--store", address]).output


def test_what_may_be_a_secret_is_left_out_of_what_is_shown() -> None:
    assert without_secrets(f"s3://AKIA:{SECRET}@bucket/x") == "s3://AKIA:***@bucket/x"
    assert without_secrets("s3://bucket/a@b?region=x") == "s3://bucket/a@b?region=x"
    assert without_secrets("postgresql://u:p?ss@host/db") == "postgresql://u:***@host/db"
    assert (
        without_secrets("postgresql://u:p?s/s@h/d?token=a&pool=8")
        == "postgresql://u:***@h/d?token=***&pool=8"
    )
    assert without_secrets("postgresql://h:5432/d?password=a@b&pool=8") == "postgresql://h:***&pool=8"
    assert without_secrets("s3://b/x?endpoint=https://u:p@h&views=off") == "s3://b/x?endpoint=***@h&views=off"
    assert (
        without_secrets(f"postgresql://u@h/d?password={SECRET}&pool=8")
        == "postgresql://u@h/d?password=***&pool=8"
    )


@pytest.mark.parametrize("variable", ENDPOINTS)
def test_the_variable_of_an_endpoint_is_checked_like_the_option(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "localhost:9000")
    with pytest.raises(Invalid, match=f"{variable} is no address of a service; write https://host"):
        BucketAddress.parse("s3://bucket").requests()
    monkeypatch.setenv(variable, f"https://user:{SECRET}@host")
    with pytest.raises(Invalid, match=f"{variable} holds a user's name or a password") as refused:
        BucketAddress.parse("s3://bucket").requests()
    assert "FEMI" not in str(refused.value)


@pytest.mark.parametrize("variable", ENDPOINTS)
async def test_a_plain_endpoint_of_the_environment_is_used(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, s3_server.endpoint() + "/")
    store = BucketStore.from_url(f"s3://{s3_server.BUCKET}/{uuid.uuid4().hex}", SystemClock())
    await store.open()
    await put(store, task("t"))
    await store.close()


@pytest.mark.parametrize("variable", ENDPOINTS)
def test_the_endpoint_of_the_address_wins_over_that_of_the_environment(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = s3_server.url(timeout="30")
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert list(BucketAddress.parse(address).requests().list("log/", None)) == []


ODD = {
    "with%20space": "with%20space",
    "with space": "with%20space",
    "100%25": "100%25",
    "a%23b": "a%23b",
    "a%3Fb": "a%3Fb",
    "ünïcode/日本": "ünïcode/日本",
    "%C3%BC": "ü",
    "a%2Fb": "a/b",
    "trailing/": "trailing",
    "plus+and=&": "plus+and=&",
    "a..b/...": "a..b/...",
    "~!*'()[]{}^|<>\"`;:@,$": "~!*'()[]{}^|<>\"`;:@,$",
    "x" * 480: "x" * 480,
}


@pytest.mark.parametrize(("prefix", "name"), ODD.items(), ids=[prefix[:20] for prefix in ODD])
async def test_what_is_odd_and_legal_works_on_the_real_server(prefix: str, name: str) -> None:
    """Written, listed, and found again by another node; the place has one name however it was written."""
    base = uuid.uuid4().hex
    server = s3_server.url("x", views="off").replace("/x?", f"/{base[:12]}/{prefix}?", 1)
    first = BucketStore.from_url(server, SystemClock())
    assert first.url.endswith(f"/{base[:12]}/{name}")
    await _survives(first, BucketStore.from_url(server, SystemClock()))
    assert list(BucketAddress.parse(server).requests().list("log/", None)) == ["log/000000000001.json"]


@pytest.mark.parametrize(
    "path", [*(prefix for prefix in ODD if len(prefix) < 255), "a/../b", "a//b", "back\\slash", "./x"]
)
async def test_what_is_odd_and_legal_works_in_a_folder(path: str, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/{path}?views=off"
    await _survives(*(BucketStore.from_url(address, SystemClock()) for _ in range(2)))
    [entry] = tmp_path.rglob("log/*.json")
    assert BucketStore.from_url(address, SystemClock()).url == entry.parent.parent.as_uri()


async def _survives(first: BucketStore, second: BucketStore) -> None:
    await first.open()
    await put(first, task("t"))
    await first.close()
    await second.open()
    assert await get(second, Task, "t") is not None
    await second.close()


def test_a_folder_has_one_name_whatever_way_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    ways = ("real", "link", "link/../real", "./real/", "/real")
    names = {BucketAddress.parse(f"file://{tmp_path}/{way}").requests().name for way in ways}
    assert names == {(tmp_path / "real").as_uri()}
    with pytest.raises(Invalid, match="loop cannot be used"):
        BucketAddress.parse(f"file://{tmp_path}/loop").requests()


def test_what_is_no_folder_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file", "file/below"):
        with pytest.raises(
            Invalid, match=f"the folder {tmp_path}/{path} cannot be used: .*name one that can be"
        ):
            BucketAddress.parse(f"file://{tmp_path}/{path}").requests()


@pytest.mark.parametrize(
    ("variables", "address", "sentence"),
    [
        (
            {"AWS_SECRET_ACCESS_KEY": SECRET},
            "s3://bucket/x",
            "s3://bucket/x cannot be used: .*Missing AccessKeyId",
        ),
        ({}, "az://container/x", "az://container/x cannot be used: .*Account must be specified"),
        ({"GOOGLE_SERVICE_ACCOUNT": "/none"}, "gs://bucket", "gs://bucket cannot be used: .*service account"),
        (
            {"GOOGLE_SERVICE_ACCOUNT_KEY": SECRET},
            "gs://bucket",
            "gs://bucket cannot be used: .*service account",
        ),
    ],
)
def test_what_the_client_library_lacks_is_said_in_a_sentence_too(
    variables: dict[str, str], address: str, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Invalid, match=sentence) as refused:
        BucketAddress.parse(address).requests()
    assert "FEMI" not in str(refused.value)


async def test_a_bucket_is_a_name_or_an_address() -> None:
    wrong: list[Any] = [5, b"my-queue", ["my-queue"]]
    for bucket in wrong:
        with pytest.raises(Invalid, match=r"bucket: .* is not a name; write my-queue"):
            await product.connect(bucket=bucket)
    with pytest.raises(Invalid, match="bucket: it is the address of something else; write my-queue"):
        await product.connect(bucket="sqlite:///rota.db")
    with pytest.raises(Invalid, match="the address names no bucket"):
        await product.connect(bucket="")
    name = uuid.uuid4().hex
    async with product.connect(bucket=f"{s3_server.BUCKET}/{name}?endpoint={s3_server.endpoint()}") as queue:
        assert queue.store.url == f"s3://{s3_server.BUCKET}/{name}"


async def test_a_bucket_that_is_not_there_is_called_so() -> None:
    endpoint = quote(s3_server.endpoint(), safe="")
    with pytest.raises(Unavailable, match="cannot list s3://not-there/x/snapshot/: there is no such bucket"):
        await BucketStore.from_url(f"s3://not-there/x?endpoint={endpoint}", SystemClock()).open()


@pytest.mark.parametrize("error", [http.client.BadStatusLine("?"), http.client.LineTooLong("header line")])
async def test_a_service_that_says_the_time_in_no_words_of_http_does_not_stop_a_node(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*about: Any, **more: Any) -> Iterator[None]:
        raise error

    address = s3_server.url(views="off")
    monkeypatch.setattr("urllib.request.urlopen", answer)
    requests = BucketAddress.parse(address).requests()
    assert isinstance(requests, ServiceRequests)
    assert requests.date() is None
    store = BucketStore.from_url(address, SystemClock())
    await store.open()
    await put(store, task("t"))
    await store.close()
