"""Which columns of a table are shown, how wide; and how short ids are."""

from __future__ import annotations

import pytest

from rota.surfaces.cli.render import broken, fitted, shortened

HEADINGS = ("ID", "TYPE", "STATUS", "QUEUE", "DETAIL")
YIELDS = ("QUEUE", "DETAIL")


@pytest.mark.parametrize(
    ("widths", "room", "shown"),
    [
        ((8, 10, 11, 7, 20), 80, {"ID": 8, "TYPE": 10, "STATUS": 11, "QUEUE": 7, "DETAIL": 20}),
        ((8, 10, 11, 7, 60), 80, {"ID": 8, "TYPE": 10, "STATUS": 11, "QUEUE": 7, "DETAIL": 36}),
        ((8, 30, 11, 20, 60), 80, {"ID": 8, "TYPE": 30, "STATUS": 11, "DETAIL": 25}),
        ((18, 40, 11, 20, 60), 80, {"ID": 18, "TYPE": 40, "STATUS": 11}),
        ((36, 90, 11, 20, 60), 80, {"ID": 32, "TYPE": 33, "STATUS": 11}),
    ],
    ids=["all", "cut", "one less", "two less", "even those are cut"],
)
def test_columns_give_way_in_order(widths: tuple[int, ...], room: int, shown: dict[str, int]) -> None:
    assert fitted(HEADINGS, widths, room, YIELDS) == shown
    assert sum(shown.values()) + 2 * (len(shown) - 1) <= room


def test_prose_is_broken_between_words_and_commands_stay_whole() -> None:
    text = "there is no store at sqlite:///rota.db: make one with `rota migrate --plan`, or name another"
    assert broken(text, 60).split("\n") == [
        "there is no store at sqlite:///rota.db: make one with",
        "`rota migrate --plan`, or name another",
    ]


def test_broken_lines_keep_their_place_and_their_colours() -> None:
    assert broken("  alpha    beta\n\nc", 10) == "  alpha\nbeta\n\nc"
    assert broken("\x1b[31mred\x1b[0m is seen", 11) == "\x1b[31mred\x1b[0m is seen"
    assert (
        broken("✗ clock      it is off by much", 22, hang=13)
        == "✗ clock      it is off\n             by much"
    )


BY_TIME = ["01a1e816-b98c-721a-82a4-a04cc88f764a", "01a1e816-b98c-721a-b4f7-3522e1ba3f50"]
DERIVED = ["f72cc47d-4468-5bc2-ba11-4c1c76c6d4ea", "f72cc47d-593c-5541-8d48-c9da847558c6"]


@pytest.mark.parametrize(
    ("ids", "short"),
    [
        (BY_TIME[:1], ["01a1e816-b98c-721a"]),
        (BY_TIME, ["01a1e816-b98c-721a-82a4", "01a1e816-b98c-721a-b4f7"]),
        (DERIVED[:1], ["f72cc47d"]),
        (DERIVED, ["f72cc47d-4468", "f72cc47d-593c"]),
        (DERIVED[:1] * 2, ["f72cc47d", "f72cc47d"]),
        (["t1", "t2"], ["t1", "t2"]),
    ],
)
def test_ids_are_as_short_as_tells_them_apart(ids: list[str], short: list[str]) -> None:
    found = shortened(ids)
    assert [found[id] for id in ids] == short
