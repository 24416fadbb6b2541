"""What became of an expected time, and why, in plain English: from the schedule, its ledger and its history.

    check_near(schedule, at, now)
    explain(schedule, at, row, now, pauses)

`row` is the row of the ledger that covers `at`, if there is one. `pauses` are the stretches in which the
schedule was not active: (from, until or None, by whom, note). The answer is a text that carries a `status`:

    completed failed running cancelled skipped buffered  there is a row, and this is what it says
    upcoming overdue                                expected: not yet due, or due and not handled yet
    paused deleted ended before_creation            not expected, because the schedule was not active then
    excluded                                        a calendar takes it away
    not_expected                                    not expected, because it is no time of this schedule
    unknown                                         expected, and the ledger does not say
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from .. import recurrence
from ..errors import Invalid
from ..model import (
    MissedRunPolicy,
    OverlapPolicy,
    Run,
    RunReason,
    RunStatus,
    RunTrigger,
    Schedule,
    ScheduleStatus,
)
from ..recurrence import MICROSECOND
from .decision import LONGEST_GRACE, MOST_BUFFERED, due_time, grace_at

Pause = tuple[datetime, datetime | None, str, str | None]

_SECOND = timedelta(seconds=1)
_PROMPT = timedelta(seconds=5)
_FARTHEST = timedelta(days=20 * 365)
_FARTHEST_COUNTED = timedelta(days=5 * 365)
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_FIRST, _LAST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)
_TWICE = "Clocks go back that night, so this local time comes twice"
_DST = {
    "moved": "The local time asked for does not exist that day, because clocks go forward: it is moved to"
    " the first instant after the gap.",
    "moved before": "The local time asked for does not exist that day, because clocks go forward: it is moved to"
    " the last second before the gap.",
    "first of two": f"{_TWICE}: this is the first of the two.",
    "second of two": f"{_TWICE}: this is the second of the two.",
}


class Mention(msgspec.Struct, frozen=True):
    """A setting, or the actor of an event, that an explanation names. `words` are the words that it uses for it."""

    name: str
    value: str
    words: str


class Why(str):
    """The explanation: `about` is the schedule and the time, `reason` the sentences after it. `status` is for programs;
    `run` is the row of the ledger that it rests on, if any. `mentions` let a page name settings and people its own
    way."""

    about: str
    reason: str
    status: str
    run: Run | None
    mentions: Sequence[Mention]

    def __new__(
        cls, about: str, reason: str, status: str, run: Run | None = None, mentions: Sequence[Mention] = ()
    ) -> Why:
        why = super().__new__(cls, f"{about}: {reason}")
        why.about = about
        why.reason = reason
        why.status = status
        why.run = run
        why.mentions = mentions
        return why


class Linked(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the schedule `key`, whose end made the run `of` happen; without `of`, one that followed from it."""

    of: str
    key: str
    run: Run


def explain(
    schedule: Schedule,
    at: datetime,
    row: Run | None,
    now: datetime,
    pauses: Sequence[Pause],
    *,
    suspended: bool = False,
    waiting: str | None = None,
    linked: Sequence[Linked] = (),
) -> Why:
    """The explanation of `at`, as far as it can be known at `now`. `suspended`: the tenant is, at `now`. `waiting`: why
    the task of the row waits; without a row, why a task would wait. `linked`: causes, nearest first, and effects."""
    if row is not None and row.until is None:
        story = _Story(schedule, row.scheduled_at, now, waiting=waiting, linked=linked)
        return story.told_by(row)
    story = _Story(schedule, meant(schedule, at), now, suspended, waiting)
    is_time = story.occurs or (row is not None and row.reason is RunReason.EXCLUDED and story.is_excluded)
    if row is not None and (is_time or story.at in (row.scheduled_at, row.until)):
        return story.told_by(row)
    return story.told_without_a_row(pauses)


def check_near(schedule: Schedule, at: datetime, now: datetime) -> None:
    """To count the times of a rule until the year 9999 would take seconds, and nobody plans that far. Those that
    calendars leave are counted week by week."""
    since = max(now, schedule.next_run_at or now)
    farthest = _FARTHEST_COUNTED if schedule.calendars and schedule.max_runs is not None else _FARTHEST
    if at - since > farthest:
        problem = f"{at.isoformat()} is more than {farthest.days // 365} years ahead"
        raise Invalid("at", problem, f"give a time before {(since + farthest).isoformat(timespec='seconds')}")


def meant(schedule: Schedule, at: datetime) -> datetime:
    """The time of the schedule that a person means by `at`: people leave out fractions of a second."""
    at = max(_FIRST, min(at, _LAST)).astimezone(UTC)
    if at.microsecond:
        return at
    return recurrence.latest(schedule.timing, at - MICROSECOND, at + _SECOND - MICROSECOND) or at


def length(duration: timedelta) -> str:
    """`2 hours 5 minutes`: its two largest units."""
    rest, words = round(abs(duration).total_seconds()), []
    for size, unit in _UNITS:
        number, rest = divmod(rest, size)
        if number:
            words.append(f"{number:,} {unit}{'s' * (number != 1)}")
    return " ".join(words[:2]) or "less than a second"


class _Story:
    """One expected time, and the sentences about it."""

    def __init__(
        self,
        schedule: Schedule,
        at: datetime,
        now: datetime,
        suspended: bool = False,
        waiting: str | None = None,
        linked: Sequence[Linked] = (),
    ) -> None:
        self.linked = linked
        self.waiting = f": {waiting}" if waiting else ""
        self.schedule = schedule
        self.at = at
        self.now = now
        self.suspended = suspended
        self.mentions: list[Mention] = []

    @property
    def occurs(self) -> bool:
        return self.schedule.next_occurrence(self.at - MICROSECOND) == self.at

    @property
    def is_excluded(self) -> bool:
        """Whether it would be a time of the schedule, if no calendar took it away."""
        return bool(self.schedule.calendars) and not self.occurs and self._occurs_without_calendars()

    def _occurs_without_calendars(self) -> bool:
        return self.schedule.openings.nominal.next_after(self.at - MICROSECOND) == self.at

    # With a row

    def told_by(self, row: Run) -> Why:
        if row.status is RunStatus.BUFFERED:
            text = self._buffered(row)
        elif row.status is RunStatus.SKIPPED:
            text = self._expired(row) if row.reason is RunReason.EXPIRED else self._skipped(row)
        elif row.reason is RunReason.BAD_TARGET:
            text = f"It could not start, because its target cannot work: {row.error}."
        else:
            text = self._started(row) + self._ended(row)
        return self._why(str(row.status), text + self._links(row), row)

    def _links(self, row: Run) -> str:
        """The run that it came after, the one before that, and so on; and those that came after it."""
        words, names = [], {row.id: "It"}
        for each in self.linked:
            run = f"{each.key}, {self._when(each.run.scheduled_at)} ({each.run.status})"
            if each.of:
                words.append(f" {names[each.of]} came after {run}.")
                names[each.run.id] = f"{each.key}, {self._when(each.run.scheduled_at)},"
            else:
                words.append(f" It was followed by {run}.")
        return "".join(words)

    def _started(self, row: Run) -> str:
        """How punctual it was. Offset and jitter are part of the plan, and do not count as late."""
        started = row.started_at or row.created_at
        if row.trigger is RunTrigger.MANUAL:
            return f"It was triggered by hand{self._by(row.actor)}, beside the schedule's own times"
        due = due_time(self.schedule, row.scheduled_at)
        late = started - due
        if row.trigger is RunTrigger.BACKFILL:
            asked = f"by a backfill{self._by(row.actor)}"
            return f"It was started {length(late)} after its time, at {self._when(started)}, {asked}"
        if row.trigger is RunTrigger.CATCH_UP:
            return f"It started {length(late)} late, at {self._when(started)}, to make up for a missed time"
        if started > row.created_at:
            return f"It waited {length(started - row.created_at)} for an earlier run to end, and then started"
        instead = self._instead_of(row.scheduled_at)
        put_off = f" (put off, due at {self._when(due)})" if due > row.scheduled_at else ""
        punctual = "on time" if late < _SECOND else f"{length(late)} after its time"
        return f"It started {punctual}{put_off}{instead}"

    def _instead_of(self, at: datetime) -> str:
        schedule = self.schedule
        if not schedule.calendars or self._occurs_without_calendars():
            return ""
        origin = schedule.openings.rolled_from(at)
        return "" if origin is None else f", instead of {self._when(origin)}, which a calendar excludes"

    def _buffered(self, row: Run) -> str:
        """Where it stands in the line."""
        line = self.schedule.buffered
        ahead = line.index(row.scheduled_at) if row.scheduled_at in line else 0
        others = f", behind {ahead} other{'s' * (ahead != 1)} that wait{'s' * (ahead == 1)}" if ahead else ""
        waits = f"It waits{others}: an earlier run was still going on {self._set('overlap_policy', self._overlap())}"
        if self.schedule.status in (ScheduleStatus.PAUSED, ScheduleStatus.DRAFT):
            return (
                f"{waits}; the schedule is {self.schedule.status}, and what waits goes on when it is resumed."
            )
        return f"{waits}; it starts when that has ended."

    def _overlap(self) -> OverlapPolicy:
        """The policy by which it was skipped or waits: another one may hold by now."""
        policy = self.schedule.overlap_policy
        return (
            policy if policy in (OverlapPolicy.BUFFER_ONE, OverlapPolicy.BUFFER_ALL) else OverlapPolicy.SKIP
        )

    def _ended(self, row: Run) -> str:
        started = row.started_at or row.created_at
        if row.status is RunStatus.RUNNING:
            so_far = f"({length(self.now - started)} so far{self.waiting})"
            return f", and its task {row.target_id} has not ended yet {so_far}."
        took = length((row.completed_at or started) - started)
        if row.status is RunStatus.COMPLETED:
            return f", and completed after {took}."
        if row.status is RunStatus.CANCELLED:
            return f", and was cancelled after {took}."
        expired = " and expired before it could be repeated" if row.reason is RunReason.EXPIRED else ""
        return f", and failed after {took}{expired}: {row.error or 'no error was recorded'}."

    def _expired(self, row: Run) -> str:
        """Its task had its chance and no attempt failed: nobody took it in time, or it asked for more time."""
        waited = length((row.completed_at or self.now) - (row.started_at or row.created_at))
        return f"It was skipped, because its task expired after {waited}, before a worker took it."

    def _skipped(self, row: Run) -> str:
        if row.reason is RunReason.OVERLAP:
            return self._overlapped()
        if row.reason is RunReason.CHANGED:
            noticed = self._when(row.created_at)
            return f"It was due, but the schedule was changed, paused or deleted at {noticed}, before it was fired."
        if row.reason is RunReason.LIMIT:
            return f"It was skipped, because tenant {row.tenant} had as many pending tasks as it may have."
        if row.reason is RunReason.EXCLUDED:
            return f"{self._together(row)}, because of calendar {row.calendar}{self._rolled()}."
        if row.reason is RunReason.DISABLED:
            return "It was skipped, because its template was disabled then."
        if row.reason is RunReason.SUSPENDED:
            return f"{self._together(row)}, because tenant {row.tenant} was suspended."
        if row.reason is not RunReason.MISSED:
            return f"It was skipped ({row.reason})."
        policy = f"{self._missed_policy()}."
        noticed = self._when(row.created_at)
        if row.until is None:
            late, grace = (
                row.created_at - due_time(self.schedule, row.scheduled_at),
                self.schedule.misfire_grace,
            )
            if grace is not None and late <= grace:
                return f"It was missed: at {noticed} a later time was due as well, and only the latest was fired."
            return f"It was missed: no scheduler was there to fire it, until {noticed}; {policy}"
        first, last = self._when(row.scheduled_at), self._when(row.until)
        stretch = f"one of {row.count:,} times from {first} to {last} that were missed together"
        return f"It was {stretch}: no scheduler was there to fire them, until {noticed}; {policy}"

    def _rolled(self) -> str:
        openings = self.schedule.openings
        there = openings.rolled(self.at) if self.schedule.calendars and openings.rolls else None
        policy = self.schedule.excluded_policy
        return (
            ""
            if there is None
            else f"; it moves to {self._when(there)} {self._set('excluded_policy', policy)}"
        )

    def _overlapped(self) -> str:
        policy, full = self._overlap(), ""
        if policy is OverlapPolicy.BUFFER_ONE:
            full = ", and another time waited for its end already"
        elif policy is OverlapPolicy.BUFFER_ALL:
            full = f", and {MOST_BUFFERED} times waited for its end already, the most that may"
        return f"It was skipped, because an earlier run was still going on{full} {self._set('overlap_policy', policy)}."

    def _together(self, row: Run) -> str:
        if row.until is None:
            return "It was skipped"
        first, last = self._when(row.scheduled_at), self._when(row.until)
        return f"It was one of {row.count:,} times from {first} to {last} that were skipped"

    def _missed_policy(self) -> str:
        given = self.schedule.missed_run_policy
        policy = self._mention("missed_run_policy", given, f"the missed_run_policy is {given}, which")
        match given:
            case MissedRunPolicy.SKIP:
                grace = self._grace()
                return f"{policy} gives up what is late by more than {grace}"
            case MissedRunPolicy.EXECUTE_ONCE:
                return f"{policy} runs only the latest of the missed times"
            case MissedRunPolicy.CATCH_UP:
                window = length(self.schedule.catch_up_window)
                return f"{policy} goes back {window} and no further"

    def _grace(self) -> str:
        grace, is_given = grace_at(self.schedule, self.at), self.schedule.misfire_grace is not None
        is_shorter = not is_given and grace < LONGEST_GRACE
        return f"{length(grace)}{', the distance to the next time' if is_shorter else ''}"

    # Without a row

    def told_without_a_row(self, pauses: Sequence[Pause]) -> Why:
        schedule = self.schedule
        if self.at <= schedule.created_at and self.at != schedule.next_run_at:
            created = f"created{self._by(schedule.created_by)} at {self._when(schedule.created_at)}"
            return self._why("before_creation", f"The schedule did not exist yet: it was {created}.")
        if schedule.deleted_at is not None and self.at >= schedule.deleted_at:
            deleted = f"deleted{self._by(schedule.updated_by)} at {self._when(schedule.deleted_at)}"
            return self._why("deleted", f"The schedule was {deleted}.")
        if schedule.end_at is not None and self.at > schedule.end_at:
            return self._why("ended", f"The schedule ended at {self._when(schedule.end_at)} (end_at).")
        if self.is_excluded and self.at != schedule.next_run_at:
            return self._at_rest(pauses) or self._why("excluded", self._excluded())
        if not self.occurs and self.at != schedule.next_run_at:
            return self._why("not_expected", self._not_a_time())
        return self._at_rest(pauses) or (self._to_come() if self.at > self.now else self._due())

    def _excluded(self) -> str:
        schedule = self.schedule
        name = schedule.openings.closed_by(self.at)
        how = (
            "excludes it" if name in schedule.exclude else "does not have it, and the schedule runs only then"
        )
        moved = schedule.openings.rolled(self.at) if schedule.openings.rolls else None
        following = moved or schedule.next_occurrence(self.at)
        verb = "it moves to" if moved else "its next time is"
        next_one = "" if following is None else f"; {verb} {self._when(following)}"
        return (
            f"It {'is' if self.at > self.now else 'was'} left out, because calendar {name} {how}{next_one}."
        )

    def _not_a_time(self) -> str:
        schedule = self.schedule
        if schedule.start_at is not None and self.at < schedule.start_at:
            return f"The schedule begins at {self._when(schedule.start_at)} (start_at)."
        if (reading := recurrence.left_out(schedule.timing, self.at)) is not None:
            return (
                f"The local time {reading:%Y-%m-%d} {_clock(reading)} does not exist, because clocks go forward over"
                " it, and the schedule does not run for such a time (dst_gap is skip)."
            )
        here = recurrence.local(schedule.timing, self.at)
        twin = here.replace(fold=1 - here.fold).astimezone(UTC)
        if twin != self.at and schedule.next_occurrence(twin - MICROSECOND) == twin:
            which = "first" if twin < self.at else "second"
            return f"{_TWICE}, and the schedule runs only the {which} time, at {self._when(twin)}."
        before = schedule.latest_occurrence(schedule.created_at, self.at)
        after = schedule.next_occurrence(self.at)
        near = [
            f"the one {side} it is {self._when(near)}{self._moved(near)}"
            for side, near in (("before", before), ("after", after))
            if near is not None
        ]
        meaning = recurrence.describe(schedule.timing)
        if isinstance(schedule.timing, recurrence.After):
            return f"The schedule has no times of its own ({meaning}), and did not run then."
        others = " and ".join(near) or "it has no other time"
        return f"This is not a time of the schedule ({meaning}); {others}."

    def _at_rest(self, pauses: Sequence[Pause]) -> Why | None:
        """Why the schedule was not active then, if it was not."""
        schedule = self.schedule
        pause = next((p for p in pauses if p[0] <= self.at and (p[1] is None or self.at < p[1])), None)
        if schedule.status is ScheduleStatus.COMPLETED and (pause is None or pause[1] is None):
            since = schedule.updated_at if pause is None else pause[0]
            reason = schedule.completed_reason or "no reason was recorded"
            ended = self._why("ended", f"The schedule had completed at {self._when(since)}: {reason}.")
            return ended if self.at >= since else None
        ends = schedule.pause_until
        if ends is not None and schedule.deleted_at is None and self.at > max(ends, self.now):
            return None
        if pause is not None:
            return self._why("paused", self._paused(*pause))
        if schedule.status in (ScheduleStatus.PAUSED, ScheduleStatus.DRAFT) and self.at > self.now:
            note = f" ({schedule.pause_note})" if schedule.pause_note else ""
            note += f" until {self._when(ends)}" if ends is not None else ""
            return self._why("paused", f"The schedule is {schedule.status}{note}: resume it and it will run.")
        return None

    def _paused(self, since: datetime, until: datetime | None, by: str, note: str | None) -> str:
        reason = f" ({note})" if note else ""
        if since <= self.schedule.created_at:
            began = f"it was created at rest{self._by(by)}, at {self._when(since)}{reason}"
        else:
            began = f"{self._actor(by)} paused it at {self._when(since)}{reason}"
        if until is not None:
            return f"The schedule was not active: {began}, and it was active again from {self._when(until)}."
        hint = "resume it and it will run" if self.at > self.now else "nothing runs until it is resumed"
        if (ends := self.schedule.pause_until) is not None:
            hint = f"it is active again from {self._when(ends)}"
        return f"The schedule is not active: {began}; {hint}."

    def _to_come(self) -> Why:
        schedule = self.schedule
        if schedule.max_runs is not None:
            first = schedule.next_run_at or self.now
            left = schedule.max_runs - schedule.run_count
            if schedule.openings.number(first - MICROSECOND, self.at - MICROSECOND, at_most=left) >= left:
                text = f"By then the schedule will have run {schedule.max_runs} times, its max_runs."
                return self._why("not_expected", text)
        due = due_time(schedule, self.at)
        put_off = f", put off to {self._when(due)}" if due > self.at else ""
        away = (
            f" Tenant {schedule.tenant} is suspended: unless it is resumed before, this time will be skipped."
        )
        ends = schedule.pause_until
        resumes = (
            f", when the schedule is active again: it is paused until {self._when(ends)}" if ends else ""
        )
        to_be = f"It is expected in {length(due - self.now)}{put_off}{resumes}{self.waiting}"
        stop = "" if to_be.endswith("?") else "."
        text = f"{to_be}{stop}{away if self.suspended else ''}"
        return self._why("upcoming", text)

    def _due(self) -> Why:
        schedule = self.schedule
        if schedule.next_run_at is None or self.at < schedule.next_run_at:
            text = (
                "It was expected, but the ledger has no row for it: the schedule was changed before it was"
                f" handled (last at {self._when(schedule.updated_at)}), or the row was too old to be kept."
            )
            return self._why("unknown", text)
        due = due_time(schedule, self.at)
        if due > self.now:
            return self._to_come()
        if self.now - due <= _PROMPT:
            return self._why("overdue", "It is due right now, and a scheduler should fire it any moment.")
        if schedule.enabled and schedule.due_at is not None and schedule.due_at > self.now:
            line = f"It has come, and {len(schedule.buffered)} times before it wait in line"
            return self._why("overdue", f"{line}. When fewer do, it waits, too.")
        text = (
            f"It has been due for {length(self.now - due)} and was not handled yet: no scheduler seems to be"
            " running. Start one (`rota up` or `rota scheduler run`), or call `run_due()`."
        )
        return self._why("overdue", text)

    # Words

    def _why(self, status: str, text: str, run: Run | None = None) -> Why:
        note = recurrence.dst_note(self.schedule.timing, self.at) if self.occurs else None
        aside = f" {_DST[note]}" if note else ""
        about = f"{self.schedule.key}, {self._when(self.at)}"
        return Why(about, f"{text}{aside}", status, run, tuple(self.mentions))

    def _mention(self, name: str, value: str, words: str) -> str:
        self.mentions.append(Mention(name, str(value), words))
        return words

    def _set(self, name: str, value: str) -> str:
        return self._mention(name, value, f"({name} is {value})")

    def _actor(self, actor: str) -> str:
        return self._mention("actor", actor, actor)

    def _by(self, actor: str | None) -> str:
        return f" by {self._actor(actor)}" if actor else ""

    def _moved(self, at: datetime) -> str:
        moved = recurrence.dst_note(self.schedule.timing, at) in ("moved", "moved before")
        return " (moved there because clocks go forward)" if moved else ""

    def _when(self, at: datetime) -> str:
        """Local time with its zone, and UTC where that is another."""
        local = recurrence.local(self.schedule.timing, at)
        there, utc = f"{local:%Y-%m-%d} {_clock(local)} {local.tzname()}", at.astimezone(UTC)
        if self.schedule.timezone == "UTC":
            return there
        day = f"{utc:%Y-%m-%d} " if utc.date() != local.date() else ""
        return f"{there} ({day}{_clock(utc)} UTC)"


def _clock(at: datetime) -> str:
    if at.microsecond:
        return f"{at:%H:%M:%S.%f}".rstrip("0")
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
