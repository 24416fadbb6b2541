"""When: one timing out of seven ways to say it, or several.

A timing can be written as one text, as the command line and `timings` take it: a cron line, a rule (`FREQ=…`), a
duration (`5m`) or a time, after its zone if it has one (`TZ=Europe/Paris 0 9 * * 1-5`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import MAXYEAR, datetime, timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from ...domain import recurrence
from ...domain.checks import check_duration, check_text, shown
from ...domain.errors import Invalid, naming_one
from ...domain.model import Schedule
from ...domain.options import TimingOptions, check_names, options_of
from ...domain.plan import BEGINS, says_begin, written_time
from ...domain.recurrence import After, Cron, Interval, Once, RecurrenceRule, RRule, Several, Simple, Timing
from ...engine.clock import aware

TIMINGS = ("cron", "interval", "run_at", "rrule", "rule", "timings", "after")
_OF_AFTER = ("after_on", "after_delay")
_CHOICES = ("day_match", "dst_gap", "dst_fold")
_ONE_OF = "give exactly one of cron, interval, run_at, rrule, rule, timings and after"
_OF_PART = ("cron", "interval", "run_at", "rrule", "rule", "timezone", *_CHOICES)
_RULE = re.compile(r"(?i)(RRULE:|FREQ=|DTSTART|RDATE|EXDATE)")
_SPAN = re.compile(r"([0-9]+(ms|[smhdw])\s*)+")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SHORTEST = timedelta(seconds=1)
_T = TypeVar("_T", bound=Timing)


def new_timing(chosen: Mapping[str, Any], now: datetime) -> tuple[Timing, dict[str, Any]]:
    """The timing that was given, and the bounds that a RecurrenceRule may bring along. Its times are aware already."""
    given = [name for name in TIMINGS if chosen.get(name) is not None]
    if len(given) != 1:
        problem = f"it was given together with {given[0]}" if given else "no timing was given"
        raise Invalid(given[1] if given else "cron", problem, _ONE_OF)
    [name] = given
    begin = _begin(chosen.get("start_at"), now)
    if name == "after":
        return _with_choices(_after(chosen), chosen), {}
    for other in _OF_AFTER:
        if chosen.get(other) is not None:
            raise Invalid(other, f"it was given with {name}", "it goes with after")
    if name == "timings":
        return _several(chosen, begin), {}
    if name == "rule":
        timing, bounds = _from_rule(chosen["rule"], begin, chosen.get("timezone") or "UTC", chosen)
    else:
        timing, bounds = _simple(name, chosen[name], chosen.get("timezone"), begin), {}
    return _with_choices(timing, chosen), bounds


def changed_timing(old: Schedule, chosen: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The changes of timing and bounds that `Queue.update_schedule` asks for. What was chosen before stays."""
    named = {name: chosen[name] for name in _CHOICES if name in chosen}
    chosen = _with_after_as_before(old.timing, chosen)
    if any(chosen.get(name) is not None for name in TIMINGS):
        kept: dict[str, Any] = {} if chosen.get("timings") is not None else _chosen_before(old.timing, chosen)
        begin = old.timing.dtstart if isinstance(old.timing, RRule) else old.start_at
        start = begin if chosen.get("start_at") is None else chosen["start_at"]
        timing, bounds = new_timing({**kept, **chosen, "start_at": start}, now)
        return {"timing": timing, **bounds}
    zone = chosen.get("timezone")
    if zone is None and not named:
        return {}
    if not isinstance(old.timing, (Cron, RRule)):
        field = "timezone" if zone is not None else next(iter(named))
        raise Invalid(field, "this schedule's timing has no zone", "give a cron or an rrule with it")
    timing = old.timing if zone is None else replace(old.timing, timezone=zone)
    return {"timing": _with_choices(timing, named)}


def _with_after_as_before(timing: Timing, chosen: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where something is said about the schedules that it comes after: with what is not said, as it was."""
    said = [name for name in ("after", *_OF_AFTER) if chosen.get(name) is not None]
    if not said or any(chosen.get(name) is not None for name in TIMINGS if name != "after"):
        return chosen
    if isinstance(timing, After):
        before = {"after": timing.schedules, "after_on": timing.on, "after_delay": timing.delay}
        return {**chosen, **before, **{name: chosen[name] for name in said}}
    if "after" not in said:
        raise Invalid(said[0], "this schedule does not run after others", "give after with it")
    return chosen


def timing_of_text(text: str, zone: str | None, begin: datetime) -> Simple:
    """A timing that is written as one text. `begin` is where a rule or an interval begins."""
    written, rest = recurrence.split_zone(text)
    rest = rest.strip()
    if written is not None and zone is not None and zone != written:
        problem = f"{zone!r} is not the zone that {shown(text)} begins with"
        raise Invalid("timezone", problem, "give one of them")
    zone = zone if written is None else checked_zone(written)
    if _RULE.match(rest):
        return RRule(rest, begin, zone or "UTC")
    if _SPAN.fullmatch(rest):
        return Interval(check_duration("interval", rest, least=_SHORTEST))
    if _TIME.match(rest):
        try:
            at = datetime.fromisoformat(rest)
        except ValueError:
            raise Invalid("run_at", f"{shown(rest)} is not a time", "give one in ISO 8601") from None
        return Once(given_time("run_at", at, zone))
    return Cron(rest, zone or "UTC")


def given_time(field: str, value: object, zone: str | None = None) -> datetime:
    """A naive one is on the clock of the zone, or else the local time of the process."""
    if not isinstance(value, datetime):
        raise Invalid(field, f"{shown(value)} is not a time", "give a datetime")
    try:
        if value.tzinfo is None and zone is not None:
            return recurrence.on_clock(value, zone)
        return aware(value)
    except (OverflowError, OSError, ValueError):
        raise Invalid(field, f"{value} is out of range", "give a time between the years 1 and 9999") from None


def checked_zone(value: object) -> str:
    name = check_text("timezone", getattr(value, "key", value))  # a ZoneInfo is as good as its name
    recurrence.check(Cron("@daily", name))
    return name


def begun(timing: Timing, said: Mapping[str, Any]) -> Timing:
    """The timing with where it counts from, if the options of a file say that."""
    if not isinstance(timing, Several):
        return _begun(timing, said)
    for name in BEGINS:
        if said.get(name) is not None:
            raise Invalid(name, "it is for one of the timings", f"give it beside its {BEGINS[name]}")
    common = {"timezone": said.get("timezone")}
    said_of = [common | each if isinstance(each, dict) else common for each in said["timings"]]
    counting = [
        each for part, each in zip(timing.timings, said_of, strict=True) if isinstance(part, Interval | RRule)
    ]
    if len({says_begin(each) for each in counting}) > 1:
        problem = "some say where they count from, and others do not"
        raise Invalid("timings", problem, "give an anchor with each interval and a dtstart with each rrule")
    return Several(tuple(_begun(part, each) for part, each in zip(timing.timings, said_of, strict=True)))


def _begun(timing: _T, said: Mapping[str, Any]) -> _T:
    given = {name: said[name] for name in BEGINS if said.get(name) is not None}
    for name in given:
        if name not in timing.__struct_fields__:
            raise Invalid(name, "this timing has no use for it", f"give it beside an {BEGINS[name]}")
    zone = getattr(timing, "timezone", said.get("timezone")) or "UTC"
    times = {name: given_time(name, written_time(name, at), checked_zone(zone)) for name, at in given.items()}
    return replace(timing, **times)


def _simple(name: str, value: Any, zone: str | None, begin: datetime) -> Simple:
    match name:
        case "cron":
            return _cron(check_text(name, value), zone)
        case "interval":
            return Interval(check_duration(name, value, least=_SHORTEST))
        case "run_at":
            return Once(value)
        case _:
            return RRule(check_text(name, value, most=100_000), begin, zone or "UTC")


def _after(chosen: Mapping[str, Any]) -> After:
    options = options_of(TimingOptions)
    names = {"after": "schedules", "after_on": "on", "after_delay": "delay"}
    given = {field: (name, chosen[name]) for name, field in names.items() if chosen.get(name) is not None}
    return After(**{field: options[name].check(name, value) for field, (name, value) in given.items()})


def _cron(line: str, zone: str | None) -> Cron:
    """UTC that was said is not the UTC that nobody said: beside another zone in the line it is refused."""
    written, rest = recurrence.split_zone(line)
    if written is None:
        return Cron(line, zone or "UTC")
    if zone is not None and zone != written:
        problem = f"{zone!r} is not the zone that the cron line begins with, {written!r}"
        raise Invalid("timezone", problem, "give one of them")
    return Cron(rest, checked_zone(written))


def _several(chosen: Mapping[str, Any], begin: datetime) -> Several:
    """Several timings. A field that was given for all of them holds for each that does not give it itself."""
    parts = options_of(TimingOptions)["timings"].check("timings", chosen["timings"])
    zone = chosen.get("timezone")
    common = {name: chosen[name] for name in _CHOICES if chosen.get(name) is not None}
    found = []
    for number, part in enumerate(parts):
        with naming_one("timings", number):
            found.append(_part(part, zone, begin, common))
    return Several(tuple(found))


def _part(part: object, zone: str | None, begin: datetime, common: Mapping[str, Any]) -> Simple:
    match part:
        case str():
            return _fitted(timing_of_text(part, _unless_written(part, zone), begin), common)
        case Once() | Interval() | Cron() | RRule():
            return part
        case Mapping():
            return _part_of_options(part, zone, begin, common)
    accepted = "give a text such as 'TZ=Europe/Paris 0 9 * * 1-5', or a dict of options"
    raise Invalid("timings", f"{shown(part)} is not a timing", accepted)


def _part_of_options(
    part: Mapping[str, Any], zone: str | None, begin: datetime, common: Mapping[str, Any]
) -> Simple:
    check_names(TimingOptions, part)
    chosen = {name: value for name, value in part.items() if value is not None}
    outside = chosen.keys() - set(_OF_PART)
    if outside:
        raise Invalid(
            min(outside), "it is for the schedule, not for one of its timings", "give it beside them"
        )
    if "timezone" in chosen:
        zone = chosen["timezone"] = checked_zone(chosen["timezone"])
    elif zone is not None and "cron" not in chosen:
        chosen["timezone"] = zone
    elif zone is not None:
        chosen["timezone"] = _unless_written(str(chosen["cron"]), zone)
    if "run_at" in chosen:
        chosen["run_at"] = given_time("run_at", chosen["run_at"], zone)
    timing, bounds = new_timing({**chosen, "start_at": begin}, begin)
    if bounds or isinstance(timing, Several | After):
        raise Invalid("timings", "a rule with its own start or end is not one of several", "give them alone")
    return _fitted(timing, {name: value for name, value in common.items() if name not in chosen})


def _unless_written(text: str, zone: str | None) -> str | None:
    """The zone for all, unless the text begins with its own."""
    return None if re.match(r"(?i)\s*(?:CRON_)?TZ=", text) else zone


def _with_choices(timing: Timing, chosen: Mapping[str, Any]) -> Timing:
    """The timing with what was chosen for its days and for daylight saving; refused where it would be ignored."""
    for name in _CHOICES:
        if name not in chosen or (name == "day_match" and chosen[name] is None):
            continue
        option = options_of(TimingOptions)[name]
        value = None if chosen[name] is None else option.check(name, chosen[name])
        if name in timing.__struct_fields__:
            timing = replace(timing, **{name: value})
        elif value is not None:
            what = "a cron line" if name == "day_match" else "a cron line or a rule"
            raise Invalid(name, "this timing has no use for it", f"give it with {what}")
    return timing


def _fitted(timing: Simple, common: Mapping[str, Any]) -> Simple:
    """The timing with the common choices that apply to it."""
    fitting = {name: value for name, value in common.items() if name in timing.__struct_fields__}
    chosen = _with_choices(timing, fitting)
    assert not isinstance(chosen, Several | After)
    return chosen


def _chosen_before(timing: Timing, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Zone and choices as they were, where the new timing can have them."""
    kept: dict[str, Any] = {"timezone": timing.timezone if isinstance(timing, (Cron, RRule)) else "UTC"}
    if isinstance(timing, (Cron, RRule)) and (chosen.get("cron") or chosen.get("rrule")) is not None:
        kept |= {"dst_gap": timing.dst_gap, "dst_fold": timing.dst_fold}
    if isinstance(timing, Cron) and chosen.get("cron") is not None:
        kept["day_match"] = timing.day_match
    if chosen.get("cron") is not None and _unless_written(str(chosen["cron"]), "UTC") is None:
        kept.pop("timezone")
    return kept


def _begin(start: datetime | None, now: datetime) -> datetime:
    """DTSTART, in whole seconds: not before `start`, or else now."""
    if start is None:
        return now.replace(microsecond=0)
    whole = start.replace(microsecond=0)
    return whole if whole == start or whole.year == MAXYEAR else whole + timedelta(seconds=1)


def _from_rule(
    value: object, begin: datetime, zone: str, chosen: Mapping[str, Any]
) -> tuple[Timing, dict[str, Any]]:
    if not isinstance(value, RecurrenceRule):
        raise Invalid("rule", f"{shown(value)} is not a rule", "give a rota.RecurrenceRule")
    if value.ends_at is not None and "end_at" in chosen:
        raise Invalid("end_at", "it was given together with the rule's ends_at", "give one of them")
    try:
        timing, start_at, end_at = value.timing(begin, zone)
    except Invalid as problem:
        raise Invalid("rule", problem.problem) from None
    bounds = {"start_at": start_at, "end_at": end_at}
    return timing, {name: at for name, at in bounds.items() if at is not None}
