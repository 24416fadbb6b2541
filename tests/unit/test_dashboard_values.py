"""Values as the dashboard shows them, and as people type them into its forms."""

from __future__ import annotations

import pytest

from rota import Invalid
from rota.surfaces.dashboard.forms import json_of
from rota.surfaces.dashboard.texts import brief


@pytest.mark.parametrize(
    "text",
    [
        *("2026-02-30T00:00:00Z", "2026-01-01T25:00:00Z", "0000-01-01T00:00:00Z"),
        *("PT...S", "P999999999999999999D", "PT1.2.3S"),
    ],
)
def test_a_text_that_only_looks_like_a_time_or_a_duration_stays_a_text(text: str) -> None:
    assert brief(text) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "it is not JSON"), ("[" * 100_000, "it is nested too deeply")],
    ids=["cut", "deep"],
)
def test_what_cannot_be_read_as_json_is_refused(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=f"^payload: {said}"):
        json_of(text, "payload")
