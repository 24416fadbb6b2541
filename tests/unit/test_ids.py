"""Derived ids are UUIDs of version 5: the same everywhere, for ever."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid5

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.ids import derived_id

ROTA = UUID("6f9f0a86-32a7-5a0e-9d3b-6d1a3f0c9e11")


@given(st.lists(st.text(), min_size=1))
def test_a_derived_id_is_a_uuid5_of_its_parts(parts: list[str]) -> None:
    assert derived_id(*parts) == str(uuid5(ROTA, "\x1f".join(parts)))


def test_an_id_that_was_stored_once_is_derived_again() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert derived_id("schedule", at) == str(uuid5(ROTA, "schedule\x1f2026-01-01T00:00:00+00:00"))
