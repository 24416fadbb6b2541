"""The shared vectors: worked examples of "given a schedule, when does it fire next?"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fire_times import fire_times

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "time_sample.json").read_text())


def answer(case: dict[str, Any]) -> list[str] | str:
    try:
        return fire_times(
            case["kind"],
            case["expr"],
            case["tz"],
            case["after"],
            case.get("start"),
            case["n"],
            end_iso=case.get("end"),
            count=case.get("count"),
        )
    except ValueError as refusal:
        return "error" if str(refusal) else "a refusal without a message"


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: f"{case['id']} {case['expr']}")
def test_vector(case: dict[str, Any]) -> None:
    expected = [case["expect"], "error"] if case.get("error_ok") else [case["expect"]]
    assert answer(case) in expected


def test_all_vectors_are_there() -> None:
    assert len(VECTORS) == 84


def test_count_is_from_start_whatever_after_is() -> None:
    hourly = ("interval", "PT1H", "UTC")
    late = fire_times(*hourly, "2026-01-01T02:00:00Z", "2026-01-01T00:00:00Z", 9, count=5)
    assert late == ["2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z"]
    assert fire_times(*hourly, "2026-01-02T02:00:00Z", "2026-01-01T00:00:00Z", 9, count=5) == []
    early = fire_times(*hourly, "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 9, count=2)
    assert early == ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"]


def test_kind_is_checked() -> None:
    with pytest.raises(ValueError, match="kind: 'lunar' is not known"):
        fire_times("lunar", "x", "UTC", "2026-01-01T00:00:00Z", None, 1)


def test_zone_is_checked_for_every_kind() -> None:
    for kind, expression in (("cron", "* * * * *"), ("interval", "PT1H"), ("rrule", "FREQ=DAILY")):
        with pytest.raises(ValueError, match="timezone: 'Mars/Base'"):
            fire_times(kind, expression, "Mars/Base", "2026-01-01T00:00:00Z", None, 1)
