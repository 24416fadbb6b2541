"""The builder of cron lines: fields make a line, and the line fills the fields again."""

from __future__ import annotations

import pytest

from rota.domain import recurrence
from rota.surfaces.dashboard.schedules.builder import Built, line_of, read

LINES = {
    "* * * * *": Built("minute"),
    "*/15 * * * *": Built("minute", step="15"),
    "30 * * * *": Built("hour", minute="30"),
    "5 */4 * * *": Built("hour", step="4", minute="5"),
    "0 9 * * *": Built("day"),
    "30 17 * * 1-5": Built("week", at="17:30", days=("1", "2", "3", "4", "5")),
    "0 9 * * 1,3,0": Built("week", days=("1", "3", "0")),
    "0 6 15 * *": Built("month", at="06:00", day="15"),
    "0 18 L * *": Built("month", at="18:00", day="L"),
}


@pytest.mark.parametrize("line", LINES)
def test_fields_make_a_line_that_fills_them_again(line: str) -> None:
    fields = LINES[line]
    assert read(line) == fields
    assert read(f" {line.replace(' ', '  ')}") == fields
    form = {f"build_{name}": value for name, value in fields._asdict().items() if isinstance(value, str)}
    assert line_of(form, fields.days) == line
    assert recurrence.describe(recurrence.Cron(line, "UTC"))


@pytest.mark.parametrize(
    "line", ["0 9 1 1 *", "0 9 * * 1#2", "0 0 9 * * *", "0 9-17 * * *", "@daily", "", "what"]
)
def test_a_line_that_says_more_fills_nothing(line: str) -> None:
    assert read(line) is None


def test_what_is_not_filled_in_is_as_usual() -> None:
    assert line_of({}, ()) == "0 9 * * *"
    assert line_of({"build_pace": "week"}, ()) == "0 9 * * 1"
    assert line_of({"build_pace": "minute", "build_step": "many"}, ()) == "*/many * * * *"
