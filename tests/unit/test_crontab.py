"""Crontabs as files of schedules: what is taken, what it becomes, and what is said about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from rota.surfaces.crontab import imported
from rota.surfaces.files import read_text, write

USERS = """\
# Jobs of the shop
SHELL=/bin/bash
PATH="/usr/local/bin:/usr/bin"
MAILTO=ops@example.com

# Dump the database,
# every night.
30 2 * * *\t/srv/backup.sh --all >/dev/null 2>&1
CRON_TZ=Europe/London
@daily cd /srv && ./report.py
*/15 9-17 * * mon-fri mail -s "100\\% done" ada%Dear Ada,%all is well.
0 0 1 1 * /srv/backup.sh --all >/dev/null 2>&1
@reboot /srv/start.sh
0~30 4 * * * spread.sh
61 * * * * never.sh
* * * *
"""


def shell(line: str) -> dict[str, Any]:
    run = ["/bin/bash", "-c", f"export PATH=/usr/local/bin:/usr/bin\n{line}"]
    return {"shell": run, "max_retries": 0}


def test_a_users_crontab() -> None:
    found = imported(USERS, timezone="Asia/Tokyo")
    mail = "{ mail -s \"100% done\" ada\n} <<'END_OF_INPUT'\nDear Ada,\nall is well.\nEND_OF_INPUT"
    assert found.document["templates"] == {
        "backup.sh": shell("/srv/backup.sh --all >/dev/null 2>&1"),
        "report.py": shell("cd /srv && ./report.py"),
        "mail": shell(mail),
    }
    schedules = found.document["schedules"]
    assert schedules["backup.sh"] == {
        "template": "backup.sh",
        "cron": "30 2 * * *",
        "timezone": "Asia/Tokyo",
        "overlap_policy": "allow",
        "description": "Dump the database,\nevery night.",
    }
    assert {name: (each["cron"], each["timezone"]) for name, each in schedules.items()} == {
        "backup.sh": ("30 2 * * *", "Asia/Tokyo"),
        "report.py": ("@daily", "Europe/London"),
        "mail": ("*/15 9-17 * * mon-fri", "Europe/London"),
        "backup.sh-2": ("0 0 1 1 *", "Europe/London"),
    }
    assert schedules["backup.sh-2"]["template"] == "backup.sh"
    mailed, reboot, random, never, short = found.remarks
    assert mailed == "line 4: output is kept with each run and mailed to nobody (MAILTO=ops@example.com)"
    assert reboot.startswith("line 13 was not taken: @reboot is no time: let the system start it")
    assert random.startswith("line 14 was not taken: cron picks a random time for ~")
    assert never.startswith("line 15 was not taken: cron: ")
    assert short == "line 16 was not taken: it has too few fields"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("flock -n /tmp/poll.lock /srv/bin/poll", "poll"),
        ("/usr/bin/flock -w 10 /tmp/lock timeout 1h nice -n 10 /srv/backup.sh --all", "backup.sh"),
        ("sudo -u shop -H LANG=C /srv/report", "report"),
        ("flock", "command"),
    ],
)
def test_a_schedule_is_called_as_the_program_that_does_the_work(command: str, name: str) -> None:
    assert list(imported(f"0 9 * * * {command}\n", timezone="UTC").document["schedules"]) == [name]


def test_a_systems_crontab_names_users() -> None:
    text = (
        "HOME=/var/empty\nTZ=Nowhere/Else\n17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly\n"
    )
    found = imported(f"{text}0 5 * * * root\n", timezone="UTC", system=True)
    assert found.document["templates"] == {
        "run-parts": {
            "shell": {"run": "cd / && run-parts --report /etc/cron.hourly", "directory": "/var/empty"},
            "max_retries": 0,
            "tags": ["root"],
        }
    }
    assert found.taken == 1
    zone, nobody, user = found.remarks
    assert zone.startswith("line 2: TZ is ignored: ")
    assert user == "cron runs lines as root; here all run as the user of the worker"
    assert nobody == "line 4 was not taken: a line of a system's crontab names a user, and then a command"


def test_a_copy_of_a_systems_crontab_is_known_by_its_users() -> None:
    found = imported("CRON_TZ=Asia/Tokyo\n* * * * * root run\n@daily www-data tidy\n", timezone="UTC")
    assert found.zones == ["Asia/Tokyo"]
    assert found.remarks == (
        "lines seem to name a user (root, www-data): if they do, import them with --system",
    )


@pytest.mark.parametrize("format", ["yaml", "toml", "json"])
def test_what_is_written_can_be_read(format: str) -> None:
    document = imported(USERS, timezone="UTC").document
    assert read_text(write(document, format), format) == document
