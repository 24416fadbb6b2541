"""Draw what the figures found: `python bench/plots.py LINES FOLDER` makes an SVG of each line of JSON with a `curve`
({"x": …, "y": …, "points": {name: [[size, cost], …]}}). Sizes are drawn by powers of ten, costs from zero.

    python bench/postgres_growth.py | tee -a build/bench.jsonl; python bench/plots.py build/bench.jsonl docs/plots
"""

from __future__ import annotations

import json
import math
import sys
from html import escape
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 130, 40, 48
COLOURS = ("#2563eb", "#d97706", "#059669", "#b91c1c", "#6d28d9")
STYLE = "font: 12px sans-serif; background: white"


def drawn(figure: str, curve: dict[str, Any]) -> str:
    points: dict[str, list[tuple[float, float]]] = curve["points"]
    sizes = [math.log10(size) for line in points.values() for size, _ in line]
    first, last = min(sizes), max(max(sizes), min(sizes) + 1)
    top = _round_above(max(cost for line in points.values() for _, cost in line))

    def place(size: float, cost: float) -> tuple[float, float]:
        across = (math.log10(size) - first) / (last - first)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - cost / top * (HEIGHT - TOP - BOTTOM)

    title = f"{figure}: {curve['y']} by {curve['x']}"
    shapes = [_text(LEFT, TOP - 18, title, weight="bold")]
    for cost in (0, top / 2, top):
        height = place(10**first, cost)[1]
        shapes.append(f'<path d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        shapes.append(_text(LEFT - 8, height + 4, f"{cost:g}", "end"))
    for size in sorted({size for line in points.values() for size, _ in line}):
        shapes.append(_text(place(size, 0)[0], HEIGHT - BOTTOM + 18, f"{size:,}", "middle"))
    for colour, (name, line) in zip(COLOURS, points.items(), strict=False):
        shapes += _line(name, colour, [place(size, cost) for size, cost in line])
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" style="{STYLE}" role="img">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *shapes, "</svg>\n"])


def _line(name: str, colour: str, places: list[tuple[float, float]]) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    x, y = places[-1]
    label = _text(x + 10, y + 4, name, colour=colour)
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots, label]


def _text(
    x: float, y: float, words: str, anchor: str = "start", *, weight: str = "normal", colour: str = "#333"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}">'
        f"{escape(words)}</text>"
    )


def _round_above(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, …"""
    step = 10 ** math.floor(math.log10(value)) if value > 0 else 1
    return next(step * times for times in (1, 2, 5, 10) if step * times >= value)


def main() -> None:
    lines, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for line in lines.read_text().splitlines():
        found = json.loads(line)
        if "curve" in found:
            path = folder / f"{found['figure'].split(',')[0].replace(' ', '-')}.svg"
            path.write_text(drawn(found["figure"], found["curve"]))
            print(path)


if __name__ == "__main__":
    main()
