"""Settings: flags > environment > rota.toml > defaults; every value knows where it came from."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.errors import Invalid
from rota.surfaces.settings import FIELDS, Setting, load

TOML = """
store = "sqlite:///file.db"
tenant = "filed"
queues = ["a", "b"]
keep_runs = "forever"

[profile.big]
tenant = "profiled"
concurrency = 500
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rota.toml").write_text(TOML)
    return tmp_path


def test_defaults(tmp_path: Path) -> None:
    settings = load({}, {}, tmp_path)
    assert settings["store"] == "sqlite:///rota.db"
    assert settings["concurrency"] == 50
    assert settings["lease"] == timedelta(seconds=30)
    assert settings.file is None
    assert all(settings.is_default(field.name) for field in FIELDS)


def test_the_file_comes_before_the_defaults(folder: Path) -> None:
    settings = load({}, {}, folder)
    assert settings.found["store"] == Setting("sqlite:///file.db", str(folder / "rota.toml"))
    assert settings["queues"] == ("a", "b")
    assert settings["keep_runs"] is None
    assert settings["concurrency"] == 50


def test_a_profile_comes_before_the_top_of_the_file(folder: Path) -> None:
    settings = load({"profile": "big"}, {}, folder)
    assert settings.found["tenant"] == Setting("profiled", f"{folder / 'rota.toml'} [profile.big]")
    assert settings["concurrency"] == 500
    assert settings["store"] == "sqlite:///file.db"
    assert load({}, {"ROTA_PROFILE": "big"}, folder).profile == Setting("big", "ROTA_PROFILE")


def test_the_environment_comes_before_the_file(folder: Path) -> None:
    settings = load({"profile": "big"}, {"ROTA_TENANT": "env", "ROTA_QUEUES": "x, y"}, folder)
    assert settings.found["tenant"] == Setting("env", "ROTA_TENANT")
    assert settings["queues"] == ("x", "y")


def test_flags_come_first(folder: Path) -> None:
    settings = load({"tenant": "flag", "store": None}, {"ROTA_TENANT": "env"}, folder)
    assert settings.found["tenant"] == Setting("flag", "--tenant")
    assert settings["store"] == "sqlite:///file.db"


def test_what_is_served_and_where(tmp_path: Path) -> None:
    served = load({}, {}, tmp_path)
    assert [served[name] for name in ("http", "host", "port", "rate_limit", "max_body")] == [
        True,
        "127.0.0.1",
        8000,
        500,
        2 * 1024 * 1024,
    ]
    (tmp_path / "rota.toml").write_text('http = false\nport = 0\nmax_body = "512KB"\nhost = "::1"')
    filed = load({"port": 81}, {"ROTA_RATE_LIMIT": "7", "ROTA_HTTP": "on"}, tmp_path)
    assert filed.found["port"] == Setting(81, "--port")
    assert filed.found["http"] == Setting(True, "ROTA_HTTP")
    assert (filed["rate_limit"], filed["max_body"], filed["host"]) == (7, 512 * 1024, "::1")
    assert load({}, {}, tmp_path)["http"] is False
    assert load({}, {"ROTA_PORT": "0"}, tmp_path)["port"] == 0


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    assert load({}, {"ROTA_STORE": ""}, tmp_path).is_default("store")


def test_another_file(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('lease = "1m30s"')
    assert load({}, {"ROTA_CONFIG": str(other)}, folder)["lease"] == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("stor = 'x'", "there is no setting 'stor'; accepted are store, server"),
        ("store = 5", "store ("),
        ("concurrency = 'many'", "'many' is not accepted; give a whole number"),
        ("concurrency = 0", "give a whole number from 1 to 100000"),
        ("lease = 'soon'", "'soon' is not a duration"),
        ("queues = [1]", "give names"),
        ("queues = ''", "no name was given"),
        ("store =", "is not valid TOML"),
        ("port = 'http'", "'http' is not a port; give a number from 1 to 65535, or 0 for any"),
        ("port = 65536", "65536 is not a port"),
        ("http = 'maybe'", "'maybe' is not accepted; give yes or no"),
        ("max_body = '2GB'", "'2GB' is not accepted; give a size from 1KB to 1024MB"),
        ("max_body = 12", "give a size from 1KB"),
        ("rate_limit = 0", "give a whole number from 1"),
        ("[profile]\nbig = 1", "is not a table"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "rota.toml").write_text(content)
    flags = {"profile": "big"} if "profile" in content else {}
    with pytest.raises(Invalid, match=r"rota\.toml") as caught:
        load(flags, {}, tmp_path)
    assert said in str(caught.value)


def test_an_unknown_profile_is_refused_with_the_known_ones(folder: Path) -> None:
    with pytest.raises(Invalid, match=r"there is no \[profile.small\] in rota.toml; there are: big"):
        load({"profile": "small"}, {}, folder)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        load({}, {"ROTA_CONFIG": str(tmp_path / "gone.toml")}, tmp_path)


def test_who_is_told_of_alarms(tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text('[alarms]\nnotify = ["json://here", "mailto://me"]\nper_hour = 3\n')
    settings = load({}, {}, tmp_path)
    assert settings["alarms_notify"] == ("json://here", "mailto://me")
    assert settings["alarms_per_hour"] == 3
    assert load({}, {"ROTA_ALARMS_NOTIFY": "json://a json://b"}, tmp_path)["alarms_notify"] == (
        "json://a",
        "json://b",
    )
    (tmp_path / "rota.toml").write_text("[alarms]\nnotfy = []\n")
    with pytest.raises(Invalid, match="there is no setting 'alarms_notfy'"):
        load({}, {}, tmp_path)


def test_a_server_is_asked_if_it_is_named_nearer_than_a_store(folder: Path) -> None:
    assert load({}, {}, folder)["server"] is None
    assert load({}, {"ROTA_SERVER": "https://a.example"}, folder)["server"] == "https://a.example"
    assert load({"store": "memory:"}, {"ROTA_SERVER": "https://a.example"}, folder)["server"] is None
    with pytest.raises(Invalid, match=r"server \(--server\): a store is named there, too"):
        load({"store": "memory:", "server": "https://a.example"}, {}, folder)
