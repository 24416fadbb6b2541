"""What is shown to nobody, by the names of fields."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from records import artifact
from rota.domain.errors import Invalid
from rota.surfaces import redaction
from rota.surfaces.redaction import HIDDEN, redacted, restored

NAMES = frozenset({"password", "apikey"})


@pytest.fixture
def hiding() -> Iterator[None]:
    redaction.hide(["password", "api_key"])
    yield
    redaction.hide(())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": "s"}, {"password": HIDDEN}),
        ({"Password": {"old": "s"}, "user": "ada"}, {"Password": HIDDEN, "user": "ada"}),
        ({"apiKey": 1, "api-key": 2, "API_KEY": 3}, {"apiKey": HIDDEN, "api-key": HIDDEN, "API_KEY": HIDDEN}),
        ({"of": [{"password": "s"}, "password"]}, {"of": [{"password": HIDDEN}, "password"]}),
        ({"password": None, "my_password": "s"}, {"password": None, "my_password": "s"}),
        ("password", "password"),
    ],
)
def test_fields_are_hidden_by_name_at_any_depth(value: Any, shown: Any) -> None:
    assert redacted(value, NAMES) == shown


@pytest.mark.usefixtures("hiding")
def test_only_what_was_given_is_redacted_in_an_answer() -> None:
    given = ["input", "output", "result", "progress", "metadata", "targetMetadata", "parameters", "command"]
    given += ["before", "after"]
    body = {"id": "1", "password": "a name of Rota's", **{name: {"password": "s"} for name in given}}
    assert redaction.document({"items": [body]}) == {
        "items": [
            {"id": "1", "password": "a name of Rota's", **{name: {"password": HIDDEN} for name in given}}
        ]
    }


@pytest.mark.usefixtures("hiding")
def test_what_comes_back_hidden_is_what_is_stored() -> None:
    stored = {"to": [{"password": each} for each in ("one", "old", "two")], "password": "three", "n": 1}
    given = {"to": [{"password": each} for each in (HIDDEN, "new", HIDDEN)], "password": HIDDEN, "n": HIDDEN}
    assert restored("input", given, stored) == {
        "to": [{"password": each} for each in ("one", "new", "two")], "password": "three", "n": HIDDEN,
    }  # fmt: skip
    with pytest.raises(
        Invalid, match=r"input\.to\.0\.password: \[hidden\] stands for nothing that is stored"
    ):
        restored("input", given, {"password": "three"})


@pytest.mark.usefixtures("hiding")
def test_a_result_that_is_read_as_a_file_is_one_file_with_its_own_size_and_digest() -> None:
    stored = artifact(name="result", inline=b'{"password":"s3cret"}', size=21)
    shown = redaction.artifact(stored)
    body = b'{"password":"[hidden]"}'
    assert (shown.inline, shown.size, shown.digest) == (body, len(body), sha256(body).hexdigest())
    other = artifact(name="of the handler's own", inline=b'{"password":"s3cret"}')
    assert redaction.artifact(other) is other


def test_nothing_is_hidden_unless_asked_for() -> None:
    given = {"input": {"password": HIDDEN}}
    assert redaction.document(given) is given
    assert restored("input", given) is given
