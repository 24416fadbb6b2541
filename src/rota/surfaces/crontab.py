"""Crontabs, of a user or of the system, as a file of schedules and shell templates. Pure: a text in, a document and
remarks out.

What cron does is kept: runs may overlap, nothing is tried again, a comment above a line describes it, what follows an
unescaped `%` is the command's stdin, and variables hold for the lines below them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from ..domain import recurrence
from ..domain.errors import Invalid
from ..domain.recurrence import Cron

_SETTING = re.compile(r"""^\s*(?:"([^"]+)"|'([^']+)'|([A-Za-z_]\w*))\s*=\s*(.*?)\s*$""")
_MACROS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_REBOOT = "@reboot is no time: let the system start it (a systemd unit), or the worker (`@app.on_startup`)"
_RANDOM = "cron picks a random time for ~: give a fixed one, and spread it with jitter"
_END = "END_OF_INPUT"
_USERS = frozenset({"root", "www-data", "nobody"})
"""No commands have these names: who writes one in front names a user."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The document, how many lines became schedules and on which clocks, and what is different now or could not be
    taken."""

    document: dict[str, dict[str, dict[str, Any]]]
    taken: int
    remarks: tuple[str, ...]

    @property
    def zones(self) -> list[str]:
        return list(dict.fromkeys(each["timezone"] for each in self.document["schedules"].values()))


def imported(text: str, *, timezone: str, system: bool = False) -> Imported:
    """The schedules of a crontab. Its times are on the clock of `timezone`, unless it names another (CRON_TZ). Lines of
    a system's crontab name a user."""
    reader = _Reader(timezone, system)
    for number, line in enumerate(text.splitlines(), 1):
        reader.take(number, line.strip())
    reader.remark_on_users()
    return Imported(
        document={"templates": reader.templates, "schedules": reader.schedules},
        taken=len(reader.schedules),
        remarks=tuple(dict.fromkeys(reader.remarks)),
    )


class _Reader:
    """Goes through the lines. Settings and comments hold for what follows."""

    def __init__(self, timezone: str, system: bool) -> None:
        self.templates: dict[str, dict[str, Any]] = {}
        self.schedules: dict[str, dict[str, Any]] = {}
        self.remarks: list[str] = []
        self._users: dict[str, None] = {}
        self._timezone = timezone
        self._system = system
        self._settings: dict[str, str] = {}
        self._comment: list[str] = []

    def take(self, number: int, line: str) -> None:
        if not line:
            self._comment = []
        elif line.startswith("#"):
            self._comment.append(line.lstrip("# ").rstrip())
        elif (found := _SETTING.match(line)) is not None:
            self._set(number, found[1] or found[2] or found[3], _unquoted(found[4]))
            self._comment = []
        else:
            problem = self._entry(line)
            if problem is not None:
                self.remarks.append(f"line {number} was not taken: {problem}")
            self._comment = []

    def remark_on_users(self) -> None:
        names = ", ".join(self._users)
        if names and self._system:
            self.remarks.append(f"cron runs lines as {names}; here all run as the user of the worker")
        elif names:
            self.remarks.append(f"lines seem to name a user ({names}): if they do, import them with --system")

    def _set(self, number: int, name: str, value: str) -> None:
        match name:
            case "CRON_TZ" | "TZ":
                self._set_zone(number, name, value)
            case "MAILTO" | "MAILFROM":
                if value:
                    self.remarks.append(
                        f"line {number}: output is kept with each run and mailed to nobody ({name}={value})"
                    )
            case _:
                self._settings[name] = value

    def _set_zone(self, number: int, name: str, value: str) -> None:
        zone = value.lstrip(":") or "UTC"
        try:
            recurrence.check(Cron("@daily", zone))
        except Invalid as problem:
            self.remarks.append(f"line {number}: {name} is ignored: {problem.problem}")
            return
        self._timezone = zone

    def _entry(self, line: str) -> str | None:
        """Take the line; or why that cannot be."""
        parts = line.split(None, 1 if line.startswith("@") else 5)
        when, rest = " ".join(parts[:-1]), parts[-1]
        if len(parts) < (2 if line.startswith("@") else 6):
            return "it has too few fields"
        if (problem := self._wrong_time(when)) is not None:
            return problem
        user = None
        if self._system:
            user, *command = rest.split(None, 1)
            if not command:
                return "a line of a system's crontab names a user, and then a command"
            rest = command[0]
        self._add(when, rest, user)
        return None

    def _wrong_time(self, when: str) -> str | None:
        if when == "@reboot":
            return _REBOOT
        if when.startswith("@") and when.lower() not in _MACROS:
            return f"{when} is not known; accepted are {', '.join(sorted(_MACROS))}"
        if "~" in when:
            return _RANDOM
        try:
            recurrence.check(Cron(when, self._timezone))
        except ValueError as problem:
            return str(problem)
        return None

    def _add(self, when: str, command: str, user: str | None) -> None:
        template: dict[str, Any] = {"shell": self._command(command), "max_retries": 0}
        if user is not None:
            template["tags"] = [user] if re.fullmatch(r"[\w.-]+", user) else []
            self._users[user] = None
        elif (first := command.split(None, 1)[0]) in _USERS:
            self._users[first] = None
        alias = next((name for name, each in self.templates.items() if each == template), None)
        if alias is None:
            alias = _free_name(command, self.templates)
            self.templates[alias] = template
        schedule: dict[str, Any] = {"template": alias, "cron": when, "timezone": self._timezone}
        schedule["overlap_policy"] = "allow"
        if self._comment:
            schedule["description"] = "\n".join(self._comment).strip()
        self.schedules[_free_name(alias, self.schedules)] = schedule

    def _command(self, command: str) -> Any:
        line, *given = _split_input(command)
        if given:
            line = f"{{ {line}\n}} <<'{_END}'\n" + "\n".join(given) + f"\n{_END}"
        shell, settings = self._settings.get("SHELL"), dict(self._settings)
        settings.pop("SHELL", None)
        folder = settings.pop("HOME", None)
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
        run: Any = exports + line
        if shell is not None and shell != "/bin/sh":
            run = [shell, "-c", run]
        return run if folder is None else {"run": run, "directory": folder}


def _split_input(command: str) -> list[str]:
    """The command, and the lines of its stdin."""
    return [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", command)]


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


_RUN_NOTHING = {"cd", "test", "[", "sleep", "set", "export"}
_WRAPPERS = dict.fromkeys(
    ("chronic", "env", "exec", "ionice", "nice", "nohup", "sudo", "time", "timeout"), 0
) | {"flock": 1}
"""Programs that run another, and how many words there are before it, beside options and numbers."""


def _free_name(text: str, taken: dict[str, Any]) -> str:
    """A name from the program that a command runs: `backup.sh` for `cd /srv && /srv/backup.sh --all`."""
    name = next(_programs(text), "command")
    number = 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free


def _programs(command: str) -> Iterator[str]:
    """The programs that it runs: not what is run only to run another."""
    for part in re.split(r"&&|\|\||;|\n", command):
        is_wrapped, left_out = False, 0
        for word in part.split():
            if word in _RUN_NOTHING:
                break
            if (name := word.rsplit("/", 1)[-1]) in _WRAPPERS:
                is_wrapped, left_out = True, _WRAPPERS[name]
            elif "=" in word or (is_wrapped and re.fullmatch(r"-.*|\d+[smhd]?", word)):
                left_out += word in ("-u", "--user")
            elif left_out:
                left_out -= 1
            else:
                if base := re.sub(r"[^\w.-]+", "-", name).strip("-."):
                    yield base[:60]
                break
