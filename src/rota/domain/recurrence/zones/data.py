"""Where zone data comes from: the `tzdata` package, or the system where that lacks a zone.

The package is preferred because system copies are often months old. Its files are read here, directly, so
that `zoneinfo`'s search path, which belongs to the host program, is left alone.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import TZPATH, available_timezones

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["close_zones", "read_zone", "tzdata_version", "zone_names"]

_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,3}")
_LONGEST: Final = 64
_NO_ZONES: Final = re.compile(r"localtime|posixrules|(posix|right)/.*")
"""What a system keeps beside its zones: what this machine is set to, and copies with leap seconds or without."""


def read_zone(name: str) -> bytes | None:
    """The zone's TZif file; None if there is no such zone."""
    if not isinstance(name, str) or len(name) > _LONGEST or not _NAME.fullmatch(name):
        return None
    if _NO_ZONES.fullmatch(name):
        return None
    package = _package()
    places: list[Traversable | Path] = [] if package is None else [package / "zoneinfo" / name]
    places += [Path(folder) / name for folder in TZPATH]
    for place in places:
        try:
            data = place.read_bytes()
        except OSError:
            continue
        if data.startswith(b"TZif"):
            return data
    return None


@cache
def zone_names() -> tuple[str, ...]:
    """Every zone name known, sorted."""
    package = _package()
    if package is None:
        return tuple(sorted(available_timezones()))
    return tuple(sorted(package.joinpath("zones").read_text("ascii").split()))


def close_zones(name: str) -> tuple[str, ...]:
    """Up to three zone names that a person who wrote `name` may have meant."""
    wanted = name[:_LONGEST].strip().replace(" ", "_").casefold()
    names = {known.casefold(): known for known in zone_names()}
    if wanted in names:
        return (names[wanted],)
    cities: dict[str, str] = {}
    for folded, known in names.items():
        cities.setdefault(folded.rpartition("/")[2], known)
    city = cities.get(wanted.rpartition("/")[2])
    if city is not None:
        return (city,)
    from difflib import get_close_matches  # late: costs an import, and hardly anyone needs it

    return tuple(names[near] for near in get_close_matches(wanted, names, n=3, cutoff=0.8))


def tzdata_version() -> str:
    """The release of the zone data in use, such as `2026f`, or `system` when the package is missing."""
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except ImportError:
        return "system"


@cache
def _package() -> Traversable | None:
    from importlib.resources import files  # late: it costs as much as all else here

    try:
        return files("tzdata")
    except ModuleNotFoundError:
        return None
