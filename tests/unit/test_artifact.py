"""Which names, types and sizes are accepted, what keys of contents say, and what takes the place of what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from records import task
from rota.domain import artifact as rules
from rota.domain.errors import Invalid, Refused
from rota.domain.model import TaskStatus

AT = datetime(2026, 1, 28, 17, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize("name", ["report.pdf", "Größe 2.txt", ".hidden", "a..b", "😀", "x" * 255, "a:b*?"])
def test_names(name: str) -> None:
    assert rules.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "/", "a/b", "../../etc/passwd", "/etc/passwd", "a\\b", "..\\b", " a", "a ", "\t"),
        *("a\x00b", "a\nb", "a\r\nX-Header: y", "\u202egnp.exe", "\ud800", "x" * 256, 5, None, b"bytes"),
    ],
)
def test_hostile_names(name: Any) -> None:
    sentence = r"^name: .* accepted are 1 to 255 printable characters .* without blanks at the ends"
    with pytest.raises(Invalid, match=sentence):
        rules.check_name(name)


@pytest.mark.parametrize(
    ("name", "is_text", "type"),
    [
        ("report.pdf", False, "application/pdf"),
        ("notes.txt", True, "text/plain; charset=utf-8"),
        ("notes.txt", False, "text/plain"),
        ("data.json", True, "application/json"),
        ("logs.tar.gz", False, "application/octet-stream"),
        ("stdout", True, "text/plain; charset=utf-8"),
        ("stdout", False, "application/octet-stream"),
        ("data:text/html,x", False, "application/octet-stream"),
    ],
)
def test_the_type_follows_from_the_name(name: str, is_text: bool, type: str) -> None:
    assert rules.media_type_of(name, is_text=is_text) == type
    assert rules.check_media_type(type) == type


@pytest.mark.parametrize(
    "type", ["", "text", "text/", "/x", "text/plain\r\nX: y", "a b/c", "text/plain; x=y", 5, None]
)
def test_types_that_are_none(type: Any) -> None:
    with pytest.raises(Invalid, match="is not a media type; write it as text/plain"):
        rules.check_media_type(type)


def test_a_key_says_when_its_writing_began() -> None:
    id = "01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e"
    key = rules.content_key("a" * 64, AT.astimezone(timezone(timedelta(hours=2))), id)
    assert key == f"{'a' * 64}.20260128T170005Z.{id}"
    assert rules.written_at(key) == AT
    for foreign in ("", "notes.txt", key[1:], f"{key}x", f"../{key}"):
        assert rules.written_at(foreign) is None


def test_the_most_that_one_may_be() -> None:
    assert rules.check_size("x", rules.MOST_BYTES) == rules.MOST_BYTES
    with pytest.raises(Invalid, match="size: 'x' has 5,368,709,121 bytes; the most is 5,368,709,120"):
        rules.check_size("x", rules.MOST_BYTES + 1)


FACTS: dict[str, Any] = {"media_type": "text/plain", "size": 2, "digest": "f" * 64, "inline": b"hi"}
HELD = task("t", status=TaskStatus.RUNNING, worker_id="w", lease_id="l", attempt=2)


def test_the_same_again_is_what_is_there() -> None:
    there = replace(rules.leave(HELD, "l", None, "n", AT, **FACTS), version=3, attempt=1)
    assert rules.leave(HELD, "l", there, "n", AT + timedelta(hours=1), **FACTS) is there


@pytest.mark.parametrize(
    "other", [{"media_type": "text/html"}, {"digest": "e" * 64, "inline": b"ho"}], ids=str
)
def test_another_under_its_name_takes_its_place(other: dict[str, Any]) -> None:
    there = replace(rules.leave(HELD, "l", None, "n", AT, **FACTS), version=3, attempt=1)
    left = rules.leave(HELD, "l", there, "n", AT + timedelta(hours=1), **FACTS | other)
    assert {name: getattr(left, name) for name in other} == other
    assert (left.id, left.version, left.attempt) == (there.id, 3, 2)
    assert left.created_at == AT + timedelta(hours=1)


def test_only_the_holder_of_the_lease_leaves_any_and_none_in_the_place_of_the_result() -> None:
    with pytest.raises(Refused, match="lease"):
        rules.leave(HELD, "another", None, "n", AT, **FACTS)
    with pytest.raises(Invalid, match="'result' is what the handler returns"):
        rules.leave(HELD, "l", None, rules.RESULT, AT, **FACTS)
