"""Rota in a Django project: submit, submit on commit, submit in the same transaction, and `manage.py rota`.

Django can be set up once in a process, so all of it is one program, which runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from postgres_server import new_database

PROGRAM = """
import os, sys
from urllib.parse import urlsplit, parse_qs
import django
from django.conf import settings
address = sys.argv[1]
parts = urlsplit(address)
query = parse_qs(parts.query)
databases = {
    "default": {"ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username or "postgres",
                "PASSWORD": parts.password or "", "HOST": query.get("host", [parts.hostname])[0] or "",
                "PORT": parts.port or ""},
    "file": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"},
}
settings.configure(DATABASES=databases, INSTALLED_APPS=["rota.contrib.django"], USE_TZ=True,
                   ROTA={"store": address, "tenant": "acme"})
django.setup()
from django.core.management import execute_from_command_line
from django.db import transaction
import rota
from rota.contrib.django import queue, submit, submit_on_commit

try:
    execute_from_command_line(["manage.py", "rota", "migrate"])
except SystemExit as end:
    assert not end.code, end

assert submit("mail", {"to": "ada"}).tenant == "acme"

class Undone(Exception): pass

for using in (None, "default"):
    try:
        with transaction.atomic():
            submit_on_commit("never", {}) if using is None else submit("never", {}, using=using)
            raise Undone
    except Undone:
        pass
    with transaction.atomic():
        submit_on_commit("always", {}) if using is None else submit("always", {}, using=using)
        assert queue().count(kind="always") == (0 if using is None else 1)
assert queue().count(kind="never") == 0
assert queue().count(kind="always") == 2

if (child := os.fork()) == 0:  # as a server does that has loaded the project before
    submit("child")
    queue().close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert queue().count(kind="child") == 1

def refusal(using):
    try:
        submit("mail", {}, using=using)
    except rota.Invalid as problem:
        return str(problem)
print(refusal("file"))
print(refusal("default"))
"""


def test_a_project(tmp_path: Path) -> None:
    program = tmp_path / "project.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), new_database()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "the database 'file' is sqlite, whose transactions cannot be shared" in done.stdout
    assert "no transaction is open on 'default'" in done.stdout
