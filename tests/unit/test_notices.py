"""When a notice is due, who is told again, and what it says."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from records import alarm
from rota.domain import alarm as notices
from stores import START

HOUR = timedelta(hours=1)


def test_who_was_not_told_is_told_again_ever_more_seldom() -> None:
    first = notices.claimed(alarm(tell_at=START), START)
    assert first.tell_at == START + notices.CLAIMED_FOR
    done = notices.recorded(first, ["a", "b"], ["a", "b"], START)
    assert (done.tell_at, done.told, done.told_at, done.tries) == (None, ("a", "b"), START, 0)
    half = notices.recorded(first, ["a"], ["a", "b"], START)
    assert (half.tell_at, half.told) == (START + timedelta(minutes=1), ("a",))
    late = notices.recorded(replace(half, tries=10), [], ["a", "b"], START)
    assert late.tell_at == START + HOUR
    assert notices.recorded(replace(half, tries=notices.TRIES), [], ["a", "b"], START).tell_at is None


def test_what_is_long_over_is_told_to_nobody() -> None:
    assert not notices.is_stale(alarm(), START + 9 * HOUR)
    assert notices.is_stale(alarm(over_at=START), START + 2 * HOUR)
    assert not notices.is_stale(alarm(over_at=START), START + HOUR)


def test_messages() -> None:
    title, body = notices.message([alarm(subject="report")])
    assert title == "Rota: report: alarm (late)"
    assert body.endswith("report: alarm (late): it started 5 minutes late")
    title, body = notices.message([alarm(over_at=START), alarm(tenant="acme")])
    assert title == "Rota: alarms: 1 began, 1 over"
    assert "report of acme: alarm (late)" in body.splitlines()[0]
    assert "alarm over (late)" in body.splitlines()[1]
