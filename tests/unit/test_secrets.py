"""No secret of an address is shown, wherever an address is."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from command_line import bare_folder
from rota.domain.errors import Invalid
from rota.stores.postgres.address import Address
from rota.stores.secrets import without_secrets
from rota.surfaces.cli.process.monitoring import without_secrets as blotted
from rota.surfaces.cli.root import cli

ADDRESSES = [
    "postgresql://me:hush@127.0.0.1:1/db",
    "postgresql://me:x@hush@127.0.0.1:1/db",
    "postgresql://me:hush@x@127.0.0.1:1/db",
    "postgresql://me:x%40hush@127.0.0.1:1/db",
    "postgresql://me:x:hush@127.0.0.1:1/db",
    "postgresql://me:x/hush@127.0.0.1:1/db",
    "postgresql://me:x?hush@127.0.0.1:1/db",
    "postgresql://me:x#hush@127.0.0.1:1/db",
    "postgresql://:hush@127.0.0.1:1/db",
    "postgresql://me:hush@127.0.0.1:1,127.0.0.1:2/db",
    "postgresql://me@127.0.0.1:1/db?password=hush",
    "postgresql://me@127.0.0.1:1/db?password=x@hush",
    "postgresql://me@127.0.0.1:1/db?pass%77ord=hush",
    "postgresql://me@127.0.0.1:1/db?sslpassword=hush",
    "postgresql://me@127.0.0.1:1/db?sslpassword=x@hush&schema=s",
    "postgresql://me:hush@127.0.0.1:1/db?sslpassword=hush@x",
    "postgresql://me@127.0.0.1:1/db?SSLPassword=hush",
    "postgresql:///db?host=127.0.0.1&port=1&user=me&password=hush",
    "postgres://me:hush@127.0.0.1:1/db",
    "mysql://me:hush@127.0.0.1:1/db?sslpassword=hush",
    "sqlite://me:hush@host/file?sslpassword=hush",
    "postgresql:me:hush@127.0.0.1:1/db",
    "postgresql:me:x@hush@127.0.0.1:1/db",
    "postgresql:/me:hush@127.0.0.1:1/db",
    "postgresql:///me:hush@127.0.0.1:1/db",
    "postgresql//me:hush@127.0.0.1:1/db",
    "postgresql://me@127.0.0.1:1/db?dbname=postgresql://me:hush@h/db",
    "postgresql:hush@127.0.0.1:1/db",
    "me:hush@127.0.0.1:1/db",
    "://me:hush@127.0.0.1:1/db",
    "s3:me:hush@bucket",
    "s3//me:hush@bucket",
    "http:me:hush@127.0.0.1:1",
]
SERVERS = [
    "http://me:hush@127.0.0.1:1",
    "http://me:x@hush@127.0.0.1:1",
    "http://me:x%40hush@127.0.0.1:1",
    "http://me:x/hush@127.0.0.1:1",
    "http://me:1/hush@127.0.0.1:1",
    "http://me:x?hush@127.0.0.1:1",
    "http://me:hush@127.0.0.1:x",
    "http:me:hush@127.0.0.1:1",
    "http//me:hush@127.0.0.1:1",
    "me:hush@127.0.0.1:1",
    "ftp://me:hush@127.0.0.1:1",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_shown_without_its_secrets(address: str) -> None:
    said = without_secrets(address)
    assert "hush" not in said
    scheme = re.match("[a-z0-9]*(?=:/|//)", address)
    assert said.startswith("" if scheme is None else scheme[0])
    if address.startswith("postgres"):
        try:
            parsed = Address.parse(address)
            said = f"{parsed.shown} {parsed.place}"
        except Invalid as refusal:
            said = str(refusal)
    assert "hush" not in said


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://me:hush@h:1/db?schema=s&pool=3", "postgresql://me:***@h:1/db?schema=s"),
        ("postgresql:///db?host=h&password=hush", "postgresql:///db?host=h&password=***"),
        ("postgres://h/db?sslrootcert=/a/b", "postgresql://h/db?sslrootcert=/a/b"),
    ],
)
def test_the_rest_of_an_address_stays_readable(address: str, expected: str) -> None:
    assert Address.parse(address).shown == expected


@pytest.mark.parametrize("command", ["status", "doctor", "config", "list", "migrate", "tick", "up --no-http"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_no_command_says_a_secret(
    address: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also not in a traceback. The server of the address is not there."""
    bare_folder(monkeypatch, tmp_path)
    monkeypatch.setenv("ROTA_STORE", address)
    monkeypatch.setenv("ROTA_DEBUG", "1")
    with caplog.at_level(logging.DEBUG):
        result = CliRunner().invoke(cli, command.split(), prog_name="rota")
    said = result.output + result.stderr + caplog.text + repr(result.exception)
    assert "hush" not in said
    assert command == "config" or result.exit_code


@pytest.mark.parametrize("command", ["list", "doctor", "config", "tail", "submit -t x"])
@pytest.mark.parametrize("server", SERVERS)
def test_no_command_says_a_secret_of_a_server(
    server: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bare_folder(monkeypatch, tmp_path)
    monkeypatch.setenv("ROTA_SERVER", server)
    with caplog.at_level(logging.DEBUG):
        result = CliRunner().invoke(cli, command.split(), prog_name="rota")
    said = result.output + result.stderr + caplog.text + repr(result.exception)
    assert "hush" not in said
    assert "unexpected" not in said
    assert command == "config" or result.exit_code


@pytest.mark.parametrize("address", [*ADDRESSES[:3], "postgresql:me:hush@h/db", *SERVERS[:3]])
def test_a_log_says_no_password_of_an_address(address: str) -> None:
    assert "hush" not in blotted(f"cannot connect to {address}, which is away")
    assert "hush" not in blotted(f"cannot connect to '{address}'")


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_log_says_no_password_with_a_quotation_mark(quote: str) -> None:
    assert "hush" not in blotted(f"cannot connect to postgresql://me:x{quote}hush@h/db, which is away")
    assert "hush" not in blotted(f"cannot connect to postgresql://me:hush{quote}x@h/db")
    assert "hush" not in blotted(f"cannot connect to postgresql://me:x@y{quote}hush@h/db")


def test_a_log_keeps_what_is_quoted_apart() -> None:
    said = '{"url":"https://h:80/x","at":"12:00:01","mail":"me@y"}'
    assert blotted(said) == said
    assert blotted('{"dsn":"postgresql://me:hush@h/db","mail":"me@y"}') == (
        '{"dsn":"postgresql://me:…@h/db","mail":"me@y"}'
    )


def test_a_log_says_no_password_however_long() -> None:
    """Those of a cloud's identity service have a thousand characters and more."""
    assert blotted(f"postgresql://me:{'hush:' * 400}@h/db is away") == "postgresql://me:…@h/db is away"


def test_a_log_takes_a_word_of_a_megabyte() -> None:
    """By the square of its length it would take hours."""
    for word in ("a:" * 500_000, "a:b:" * 250_000, "a" + ":/" * 500_000, "a@" * 500_000):
        assert blotted(word) == word
