"""API keys: tokens that can be taken apart again, and secrets that only compare."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain import keys
from rota.domain.errors import Invalid
from rota.domain.model import ApiKey, Role
from rota.domain.tenants import EVERY_TENANT
from rota.engine.commands import new_secret

NOW = datetime(2026, 1, 28, 12, tzinfo=UTC)
ID = "01a1e1f8-cb85-726a-9c17-676e22677d13"
SECRET = "x" * 43


def made(**fields: Any) -> ApiKey:
    given: dict[str, Any] = {"tenant": "acme", "name": "ci", "role": "operator", "actor": "ann"}
    return keys.make(ID, SECRET, now=NOW, **given | fields)


SESSION_ID, OTHER_SESSION = "0199e1f8cb85726a9c17676e22677d13", "0199e1f8cb85726a9c17676e22677d14"
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("later", "is_open"),
    [
        (timedelta(0), True),
        (11 * HOUR, True),
        (12 * HOUR, False),
        (-timedelta(minutes=4), True),
        (-HOUR, False),
    ],
)
def test_a_session_ends_by_itself(later: timedelta, is_open: bool) -> None:
    session = keys.parse_session(keys.session(made(), NOW, SESSION_ID))
    assert session is not None
    assert keys.is_open(session, made(), NOW + later) is is_open


def test_a_session_that_follows_another_ends_with_the_month() -> None:
    first = keys.parse_session(keys.session(made(), NOW, SESSION_ID))
    late = NOW + timedelta(days=29, hours=23)
    last = keys.parse_session(keys.session(made(), late, SESSION_ID, first))
    assert last is not None
    assert keys.is_open(last, made(), late)
    assert not keys.is_open(last, made(), late + HOUR)


def test_who_signs_out_ends_the_session_and_those_that_follow_it_but_no_other() -> None:
    first = signed_in(SESSION_ID)
    follower = keys.parse_session(keys.session(made(), NOW + HOUR, SESSION_ID, first))
    other = signed_in(OTHER_SESSION)
    assert follower is not None
    key = keys.sign_out(made(), follower, NOW + HOUR)
    assert not keys.is_open(first, key, NOW + HOUR)
    assert not keys.is_open(follower, key, NOW + HOUR)
    assert keys.is_open(other, key, NOW + HOUR)
    assert keys.sign_out(key, first, NOW + HOUR) is key
    assert keys.sign_out(made(), first._replace(proof="0" * 64), NOW) == made()
    assert "signed_out" not in keys.as_facts(key)


def test_a_key_forgets_sessions_that_no_copy_can_outlive() -> None:
    key = keys.sign_out(made(), signed_in(SESSION_ID), NOW)
    later = NOW + timedelta(days=1)
    fresh = keys.parse_session(keys.session(made(), later, OTHER_SESSION))
    assert fresh is not None
    assert list(keys.sign_out(key, fresh, later).signed_out) == [fresh.id]


def test_a_key_that_remembers_too_many_ends_all_sessions_before_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_SIGNED_OUT", 1)
    key = keys.sign_out(made(), signed_in(SESSION_ID), NOW)
    key = keys.sign_out(key, signed_in(OTHER_SESSION), NOW)
    assert not key.signed_out
    for id in (SESSION_ID, OTHER_SESSION):
        assert not keys.is_open(signed_in(id), key, NOW)
    later = keys.parse_session(keys.session(key, NOW + HOUR, SESSION_ID))
    assert later is not None
    assert keys.is_open(later, key, NOW + HOUR)


def signed_in(id: str) -> keys.SignIn:
    session = keys.parse_session(keys.session(made(), NOW, id))
    assert session is not None
    return session


def test_a_session_is_of_one_key_and_cannot_be_made_longer() -> None:
    text = keys.session(made(), NOW, SESSION_ID)
    session = keys.parse_session(text)
    assert session is not None
    other = keys.make(ID, "y" * 43, tenant="acme", name="ci", role="operator", now=NOW, actor="ann")
    assert not keys.is_open(session, other, NOW)
    assert not keys.is_open(session, None, NOW)
    assert not keys.is_open(session, keys.revoke(made(), NOW, "ann"), NOW)
    assert not keys.is_open(session._replace(made=session.made + 60), made(), NOW)
    assert keys.parse_session(keys.token(ID, SECRET)) is None
    assert keys.parse(text) is None


def test_a_token_is_a_prefix_the_id_in_hex_and_the_secret() -> None:
    assert keys.token(ID, SECRET) == f"rota_01a1e1f8cb85726a9c17676e22677d13_{SECRET}"


@given(st.uuids(), st.text("abcXYZ019_-", min_size=1, max_size=60))
def test_what_was_put_together_comes_apart(id: UUID, secret: str) -> None:
    assert keys.parse(keys.token(str(id), secret)) == (str(id), secret)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "rota",
        "rota__",
        f"rota_{ID}_{SECRET}",
        f"rota_{ID.replace('-', '')[:-1]}_{SECRET}",
        f"rota_{ID.replace('-', '')}_",
        f"rota_{ID.replace('-', '')}_{SECRET}!",
        f"rota_{ID.replace('-', '')}_{'x' * 256}",
        f" rota_{ID.replace('-', '')}_{SECRET}",
        f"rota_{ID.replace('-', '')}_{SECRET}\n",
        f"sota_{ID.replace('-', '')}_{SECRET}",
        None,
        b"rota",
    ],
)
def test_what_is_no_token_is_none(token: object) -> None:
    assert keys.parse(token) is None


@given(st.text())
def test_no_text_upsets_the_parser_or_the_comparison(text: str) -> None:
    keys.parse(text)
    assert not keys.matches(made(), text)


def test_only_the_secret_matches_and_it_is_not_stored() -> None:
    key = made()
    assert keys.matches(key, SECRET)
    assert not keys.matches(key, SECRET[:-1])
    assert not keys.matches(key, "")
    assert not keys.matches(None, SECRET)
    assert SECRET not in repr(key)
    assert len(key.digest) == 64


def test_a_revoked_key_matches_nothing_and_stays_as_it_was_revoked() -> None:
    key = keys.revoke(made(), NOW, "bob")
    assert (key.revoked_at, key.revoked_by) == (NOW, "bob")
    assert not keys.matches(key, SECRET)
    assert keys.revoke(key, NOW.replace(year=2027), "eve") is key


def test_what_is_shown_of_a_key_has_no_digest() -> None:
    facts = keys.as_facts(made())
    assert facts["role"] == "operator"
    assert "digest" not in facts
    assert made().digest not in str(facts)


def test_a_key_to_every_tenant() -> None:
    assert made(tenant=EVERY_TENANT).tenant == "*"
    assert made().role is Role.OPERATOR


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"role": "boss"}, "role: 'boss' is not known; accepted are viewer, operator, admin"),
        ({"name": ""}, "name: '' is not a valid name"),
        ({"name": "x" * 101}, "name: 101 characters are too many; the most is 100"),
        ({"name": 7}, "name: 7 is not a text"),
        ({"tenant": ""}, "tenant: '' is not a valid name"),
    ],
)
def test_what_a_key_must_have(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(Invalid) as refused:
        made(**fields)
    assert str(refused.value).startswith(sentence)


def test_secrets_are_long_and_never_the_same() -> None:
    some = {new_secret() for _ in range(100)}
    assert len(some) == 100
    assert all(keys.parse(keys.token(ID, secret)) == (ID, secret) for secret in some)
    assert {len(secret) for secret in some} == {43}
