"""Every figure can be made: each script runs at a tiny size and prints one line of JSON with what it promises.
What the figures are is for `make bench` and docs/performance.md; nothing is timed here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forked import run

BENCH = Path(__file__).parents[2] / "bench"
FACTS = {"machine", "processor", "cores", "load", "python", "sqlite", "python_sqlite", "rota", "fsync_ms"}

FIGURES = {
    "submit": (["--single=3", "--concurrent=16", "--bulk=5", "--rounds=1"], {"tasks_per_second", "ratios"}),
    "drain": (
        ["--tasks=20", "--huey-tasks=3", "--rounds=1"],
        {"tasks_per_second", "rota_to_huey", "rota_to_raw", "sync_to_huey"},
    ),
    "burst": (["--schedules=5", "--lead=2"], {"seconds"}),
    "lateness": (["--seconds=1"], {"milliseconds"}),
    "idle": (["--few=1", "--many=3", "--seconds=1"], {"few", "many", "memory_more_mb"}),
    "next_times": (["--times=4", "--rounds=1"], {"per_second", "least_ratio"}),
    "typed": (["--calls=3", "--rounds=1"], {"microseconds_per_call", "typed_more", "records_more"}),
    "process_handlers": (["--tasks=3", "--processes=1", "--rounds=1"], {"tasks_per_second"}),
    "watched": (
        ["--tasks=5", "--rounds=1"],
        {"microseconds_per_task", "metrics_to_bare", "traces_to_bare"},
    ),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_is_one_line_of_json(figure: str, tmp_path: Path) -> None:
    sizes, promised = FIGURES[figure]
    ran = run(BENCH / f"{figure}.py", *sizes, "--folder", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stdout.splitlines()
    said = json.loads(line)
    assert said["figure"] == figure
    assert promised <= said.keys()
    assert said["environment"].keys() >= FACTS
    assert all(isinstance(reached, bool) for reached in said["aims"].values())
    assert list(tmp_path.iterdir()) == []
