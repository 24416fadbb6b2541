"""Settings: flags > environment > rota.toml > defaults. Every value knows where it came from.

`rota.toml` stands in the current folder (or where ROTA_CONFIG says). Keys at its top hold for everyone; those
of `[profile.NAME]`, chosen with --profile or ROTA_PROFILE, come before them:

    store = "sqlite:///rota.db"

    [profile.production]
    store = "sqlite:////var/lib/shop/rota.db"
    concurrency = 200

    [profile.office]
    server = "https://rota.example.com"
    key = "rota_…"

    [alarms]
    notify = ["mailto://user:password@example.com"]

    [redact]
    fields = ["password", "token"]
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from ..domain.checks import check_duration
from ..domain.errors import Invalid
from . import durations

FILE = "rota.toml"
DEFAULT = "default"
_SIZE = re.compile(r"([0-9]{1,12}) ?(|B|KB|KIB|MB|MIB)")


class SettingField(NamedTuple):
    """One thing that can be set. `read` takes what was given and returns it in its stored form."""

    name: str
    default: Any
    read: Callable[[str, Any], Any]
    about: str
    is_secret: bool = False

    @property
    def variable(self) -> str:
        return f"ROTA_{self.name.upper()}"


class Setting(NamedTuple):
    """A value, and where it came from: a flag, a variable, a place in a file, or `default`."""

    value: Any
    source: str


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Invalid(field, f"{value!r:.60} is not accepted", "give a text")
    return value.strip()


def _number(field: str, value: Any) -> int:
    try:
        number = value if isinstance(value, int) and not isinstance(value, bool) else int(str(value))
    except ValueError:
        number = 0
    if not 1 <= number <= 100_000:
        raise Invalid(field, f"{value!r:.60} is not accepted", "give a whole number from 1 to 100000")
    return number


def _port(field: str, value: Any) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or int(text[:9]) > 65_535:
        raise Invalid(field, f"{value!r:.60} is not a port", "give a number from 1 to 65535, or 0 for any")
    return int(text)


def parsed_size(text: str) -> int | None:
    """`200000`, `512KB`, `2MB`: bytes, in powers of 1024. None: it is not a size."""
    found = _SIZE.fullmatch(text.strip().upper())
    return None if found is None else int(found[1]) * {"K": 1024, "M": 1024 * 1024}.get(found[2][:1], 1)


def _size(field: str, value: Any) -> int:
    number = parsed_size(str(value))
    if number is None or not 1024 <= number <= 1024**3:
        raise Invalid(field, f"{value!r:.60} is not accepted", "give a size from 1KB to 1024MB, such as 2MB")
    return number


def _yes_or_no(field: str, value: Any) -> bool:
    given = str(value).strip().lower()
    if given not in ("yes", "true", "on", "1", "no", "false", "off", "0"):
        raise Invalid(field, f"{value!r:.60} is not accepted", "give yes or no")
    return given in ("yes", "true", "on", "1")


def _names(field: str, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise Invalid(field, f"{value!r:.60} is not accepted", "give names, separated by commas")
    names = tuple(part.strip() for part in parts if part.strip())
    if not names:
        raise Invalid(field, "no name was given", "give names, separated by commas")
    return names


def _addresses(field: str, value: Any) -> tuple[str, ...]:
    parts = value.split() if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise Invalid(field, "it is not a list of addresses", "give addresses such as mailto://…, in a list")
    return tuple(part.strip() for part in parts if part.strip())


def _duration(field: str, value: Any) -> timedelta:
    return durations.parsed(field, value) if isinstance(value, str) else check_duration(field, value)


def _duration_or_forever(field: str, value: Any) -> timedelta | None:
    return None if value == "forever" else _duration(field, value)


FIELDS: tuple[SettingField, ...] = (
    SettingField("store", "sqlite:///rota.db", _text, "where everything is kept"),
    SettingField("server", None, _text, "a server to ask instead of the store (not set: the store)"),
    SettingField("key", None, _text, "the API key for it", is_secret=True),
    SettingField("tenant", DEFAULT, _text, "whose tasks and schedules"),
    SettingField("app", None, _text, "the module:app that `up`, `worker` and `tick` run"),
    SettingField("queues", None, _names, "the queues that workers take tasks from (not set: all)"),
    SettingField("concurrency", 50, _number, "how many tasks a worker runs at once"),
    SettingField("lease", timedelta(seconds=30), _duration, "how long a worker that died keeps its tasks"),
    SettingField(
        "shutdown_timeout",
        timedelta(seconds=30),
        _duration,
        "how long a stopping worker waits for its handlers",
    ),
    SettingField("keep_tasks", timedelta(days=7), _duration_or_forever, "how long ended tasks are kept"),
    SettingField(
        "keep_runs", timedelta(days=90), _duration_or_forever, "how long ended runs of schedules are kept"
    ),
    SettingField(
        "keep_schedules", timedelta(days=30), _duration_or_forever, "how long completed schedules are kept"
    ),
    SettingField(
        "keep_events", timedelta(days=365), _duration_or_forever, "how long the audit trail is kept"
    ),
    SettingField("allow_shell", False, _yes_or_no, "whether shell commands of templates may run here"),
    SettingField(
        "allow_private_addresses",
        False,
        _yes_or_no,
        "whether requests of templates may go to addresses that are not of the public internet",
    ),
    SettingField(
        "alarms_notify",
        (),
        _addresses,
        "who is told of alarms: addresses as apprise knows them",
        is_secret=True,
    ),
    SettingField("alarms_per_hour", 12, _number, "how many notices of alarms are sent an hour at most"),
    SettingField(
        "heartbeat_url",
        None,
        _text,
        "a monitor outside that is told every minute that the fleet is well",
        is_secret=True,
    ),
    SettingField("redact_fields", (), _names, "fields of inputs and outputs that are shown to nobody"),
    SettingField("http", True, _yes_or_no, "whether `up` serves the HTTP API"),
    SettingField("host", "127.0.0.1", _text, "the address of this machine that the HTTP API is served on"),
    SettingField("port", 8000, _port, "the port that it is served on (0: any)"),
    SettingField("rate_limit", 500, _number, "how many requests a second a key may make"),
    SettingField("max_body", 2 * 1024 * 1024, _size, "how large the body of a request may be"),
)
_TABLES = ("alarms", "redact")
_BY_NAME = {field.name: field for field in FIELDS}


class Settings:
    """The answer: `settings["store"]` is a value, `settings.found["store"]` also says where it came from."""

    def __init__(self, found: Mapping[str, Setting], file: Path | None, profile: Setting) -> None:
        self.found = dict(found)
        self.file = file
        self.profile = profile

    def __getitem__(self, name: str) -> Any:
        return self.found[name].value

    def is_default(self, name: str) -> bool:
        return self.found[name].source == DEFAULT


def load(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """All settings. `flags` are those that were given on the command line (None: not given)."""
    flags = {name: value for name, value in (flags or {}).items() if value is not None}
    environ = os.environ if environ is None else environ
    file, content = _read_file(environ, folder or Path())
    profile = _profile(flags, environ, content)
    layers = _layers(flags, environ, content, file, profile)
    found = {field.name: _first(field, layers) for field in FIELDS}
    if not _asks_server(layers):
        found["server"] = Setting(None, DEFAULT)
    return Settings(found, file, profile)


def _asks_server(layers: list[Mapping[str, tuple[Any, str]]]) -> bool:
    """Whether a server is named nearer than a store is."""
    for layer in layers:
        if "server" in layer and "store" in layer:
            source = layer["server"][1]
            raise Invalid(
                f"server ({source})", f"a store is named there, too: {layer['store'][1]}", "name one of them"
            )
        if "server" in layer or "store" in layer:
            return "server" in layer
    return False


def _first(field: SettingField, layers: list[Mapping[str, tuple[Any, str]]]) -> Setting:
    for layer in layers:
        if field.name in layer:
            value, source = layer[field.name]
            named = field.name if source.startswith("--") else f"{field.name} ({source})"
            return Setting(field.read(named, value), source)
    return Setting(field.default, DEFAULT)


def _layers(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    content: Mapping[str, Any],
    file: Path | None,
    profile: Setting,
) -> list[Mapping[str, tuple[Any, str]]]:
    layers: list[Mapping[str, tuple[Any, str]]] = [
        {
            name: (value, "argument" if name == "app" else f"--{name.replace('_', '-')}")
            for name, value in flags.items()
            if name in _BY_NAME
        },
        {
            field.name: (environ[field.variable], field.variable)
            for field in FIELDS
            if environ.get(field.variable)
        },
    ]
    if profile.value is not None:
        section = content["profile"][profile.value]
        layers.append(_section(section, f"{file} [profile.{profile.value}]"))
    top = {name: value for name, value in content.items() if name != "profile"}
    layers.append(_section(top, str(file)))
    return layers


def _flat(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """`[alarms] notify = …` is the setting `alarms_notify`."""
    flat: dict[str, Any] = {}
    for name, value in section.items():
        if name in _TABLES and isinstance(value, dict):
            flat |= {f"{name}_{each}": inner for each, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _section(section: Any, place: str) -> Mapping[str, tuple[Any, str]]:
    if not isinstance(section, dict):
        raise Invalid(place, "it is not a table", "write keys under it")
    section = _flat(section)
    for name in section:
        if name not in _BY_NAME:
            accepted = ", ".join(_BY_NAME)
            raise Invalid(place, f"there is no setting {name!r}", f"accepted are {accepted}")
    return {name: (value, place) for name, value in section.items()}


def _profile(flags: Mapping[str, Any], environ: Mapping[str, str], content: Mapping[str, Any]) -> Setting:
    if flags.get("profile"):
        chosen = Setting(flags["profile"], "--profile")
    elif environ.get("ROTA_PROFILE"):
        chosen = Setting(environ["ROTA_PROFILE"], "ROTA_PROFILE")
    else:
        return Setting(None, DEFAULT)
    profiles = content.get("profile", {})
    if not isinstance(profiles, dict) or chosen.value not in profiles:
        known = ", ".join(profiles) if isinstance(profiles, dict) and profiles else "none"
        raise Invalid("profile", f"there is no [profile.{chosen.value}] in {FILE}", f"there are: {known}")
    return chosen


def _read_file(environ: Mapping[str, str], folder: Path) -> tuple[Path | None, Mapping[str, Any]]:
    given = environ.get("ROTA_CONFIG")
    path = Path(given) if given else folder / FILE
    if not given and not path.is_file():
        return None, {}
    import tomllib

    try:
        return path, tomllib.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise Invalid(
            "ROTA_CONFIG", f"{path} cannot be read: {problem.strerror}", "name a readable file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise Invalid(str(path), f"it is not valid TOML: {problem}", "mend it") from None
