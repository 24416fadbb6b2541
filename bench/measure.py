"""What the figures share: the machine in facts, a folder to work in, side-by-side rounds, one line of JSON."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw


def arguments(about: str | None, **sizes: int | str) -> argparse.Namespace:
    """The options of a figure: a folder, and its sizes by name, with their defaults."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--folder", type=Path, help="a folder on the disk to measure (default: a temporary one)"
    )
    for name, value in sizes.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default: {value}"
        )
    return parser.parse_args()


@contextmanager
def folder(parent: Path | None) -> Iterator[Path]:
    """An empty folder, removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="rota-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def side_by_side(
    rounds: int, contestants: Mapping[str, Callable[[Path], float]], parent: Path | None
) -> dict[str, list[float]]:
    """Each contestant's figure, round after round: what the machine does meanwhile hits all of them alike."""
    seen: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            with folder(parent) as place:
                seen[name].append(run(place))
    return seen


def medians(seen: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: round(statistics.median(values), 1) for name, values in seen.items()}


def ratio(of: float, to: float) -> float:
    return round(of / to, 2)


def percentile(values: list[float], share: float) -> float:
    """The least value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def report(figure: str, results: Mapping[str, Any], aims: Mapping[str, bool], parent: Path | None) -> None:
    """The one line. `aims` says of each whether it was reached in this run."""
    print(json.dumps({"figure": figure, **results, "aims": dict(aims), "environment": environment(parent)}))


def environment(parent: Path | None) -> dict[str, Any]:
    return {
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "python_sqlite": sqlite3.sqlite_version,
        "rota": importlib.metadata.version("rota"),
        "fsync_ms": fsync_latency(parent),
    }


def fsync_latency(parent: Path | None, tries: int = 50) -> float:
    """The median time, in milliseconds, to make 4 KiB that were appended to a file durable."""
    block = os.urandom(4096)
    took = []
    with folder(parent) as place, (place / "fsync").open("wb", buffering=0) as file:
        for _ in range(tries):
            began = time.perf_counter()
            file.write(block)
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return round(statistics.median(took) * 1000, 3)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
