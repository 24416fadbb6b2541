"""The address of a PostgreSQL store: `postgresql://user:password@host:5432/database?pool=8&…`.

Options of ours are taken out; the rest is left to asyncpg. `shown` is the address without secrets, for people and
logs.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from ...domain.errors import Invalid
from ..secrets import without_secrets

PLANNING = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_memoize": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
"""Every statement has one index that it means to use. Told so, the planner plans once, and never walks a table
because its statistics are old. It does not know how few rows are asked for: of 10,000,000 tasks it had the newest 50
read by several processes, which took 9.1 ms instead of 1.4."""

_WATCHFUL = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""How the server notices that a node is gone: what it held is free again within half a minute."""
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_RESERVED = {
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization", "binary",
    "both", "case", "cast", "check", "collate", "collation", "column", "concurrently", "constraint", "create",
    "cross", "current_catalog", "current_date", "current_role", "current_schema", "current_time",
    "current_timestamp", "current_user", "default", "deferrable", "desc", "distinct", "do", "else", "end",
    "except", "false", "fetch", "for", "foreign", "freeze", "from", "full", "grant", "group", "having", "ilike",
    "in", "initially", "inner", "intersect", "into", "is", "isnull", "join", "lateral", "leading", "left",
    "like", "limit", "localtime", "localtimestamp", "natural", "not", "notnull", "null", "offset", "on", "only",
    "or", "order", "outer", "overlaps", "placing", "primary", "references", "returning", "right", "select",
    "session_user", "similar", "some", "symmetric", "system_user", "table", "tablesample", "then", "to",
    "trailing", "true", "union", "unique", "user", "using", "variadic", "verbose", "when", "where", "window",
    "with", "information_schema",
}  # fmt: skip
_HOST = r"(?:\[[^\]]*\]|[^\[\]:,]*)(?::\d{1,5})?"
_HOSTS = re.compile(f"{_HOST}(?:,{_HOST})*")
_DRIVER = {
    "host", "port", "user", "password", "dbname", "database", "passfile", "service", "servicefile",
    "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation",
    "ssl_min_protocol_version", "ssl_max_protocol_version", "target_session_attrs", "krbsrvname", "gsslib",
}  # fmt: skip


class Address(NamedTuple):
    """Where the store is and how it is to be used from here."""

    dsn: str
    shown: str
    place: str
    schema: str = "rota"
    pool: int = 8
    statement_timeout: timedelta = timedelta(seconds=30)
    lock_timeout: timedelta = timedelta(seconds=1)
    connect_timeout: timedelta = timedelta(seconds=10)
    poll: timedelta | None = None
    pgbouncer: bool = False
    role: str | None = None
    application_name: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        _check_quoting(url)
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "postgres") or not url.partition(":")[2].startswith("//"):
            raise Invalid(
                "store", f"{without_secrets(url)!r} is not one", "write postgresql://user@host:5432/database"
            )
        ours: dict[str, Any] = {}
        driver: list[tuple[str, str]] = []
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name in _OURS:
                ours[name] = _read(name, value)
            elif name in _DRIVER:
                driver.append((name, value))
            else:
                known = ", ".join(_OURS)
                raise Invalid("store", f"the address has an unknown option {name!r}", f"there are {known}")
        named = [("schema", ours["schema"])] if "schema" in ours else []
        dsn = _joined(parts.netloc, parts.path, driver)
        shown = without_secrets(_joined(parts.netloc, parts.path, driver + named))
        return cls(dsn=dsn, shown=shown, place=_place(parts.netloc, parts.path, driver), **ours)

    @property
    def channel(self) -> str:
        return f"rota:{self.schema}"

    @property
    def poll_interval(self) -> timedelta:
        """How late a change is seen of which no notification came."""
        return self.poll or timedelta(seconds=1 if self.pgbouncer else 5)

    @property
    def name_of_this_node(self) -> str:
        """The name in pg_stat_activity: which node, in which role."""
        return (
            self.application_name or f"rota {self.role or 'client'} {socket.gethostname()}:{os.getpid()}"
        )[:63]

    def in_role(self, role: str) -> Address:
        """The address with this role, unless it has one."""
        return self if self.role is not None else self._replace(role=role)

    def connect_options(self) -> dict[str, Any]:
        """For `asyncpg.connect` and `create_pool`. A pooler knows no session, so there it is left as it is."""
        settings = {"application_name": self.name_of_this_node}
        options: dict[str, Any] = {
            "dsn": self.dsn,
            "timeout": self.connect_timeout.total_seconds(),
            "command_timeout": self.statement_timeout.total_seconds() + 5,
            "server_settings": settings,
        }
        if self.pgbouncer:
            options["statement_cache_size"] = 0
        else:
            settings |= PLANNING | self._timeouts | _WATCHFUL
            settings["idle_in_transaction_session_timeout"] = _milliseconds(self.statement_timeout)
            options["max_cached_statement_lifetime"] = 0
        return options

    @property
    def _timeouts(self) -> dict[str, str]:
        """How long a statement may take, and how much of that it may wait for a lock, unless its work runs alone."""
        lock_timeout = min(self.lock_timeout, self.statement_timeout / 2)
        return {
            "statement_timeout": _milliseconds(self.statement_timeout),
            "lock_timeout": _milliseconds(lock_timeout),
        }

    @property
    def begin_suffix(self) -> str:
        """The settings of a session for one transaction, since behind a pooler no session keeps them."""
        if not self.pgbouncer:
            return ""
        settings = PLANNING | self._timeouts
        return "".join(f"; set local {name} = {value}" for name, value in settings.items())


def _milliseconds(length: timedelta) -> str:
    return str(max(1, round(length.total_seconds() * 1000)))


def _seconds(value: str) -> timedelta:
    seconds = float(value)
    if not 0.001 <= seconds <= 1_000_000:  # to the server 0 means that there is no limit
        raise ValueError
    return timedelta(seconds=seconds)


def _flag(value: str) -> bool:
    return {"1": True, "true": True, "0": False, "false": False}[value.lower()]


def _pool(value: str) -> int:
    if not 1 <= int(value) <= 1000:
        raise ValueError
    return int(value)


def _schema(value: str) -> str:
    if not _SCHEMA.fullmatch(value) or value in _RESERVED or value.startswith("pg_"):
        raise ValueError
    return value


def _printable(value: str) -> str:
    if not value.isprintable() or not 1 <= len(value) <= 63:
        raise ValueError
    return value


_SECONDS = "it is a number of seconds from 0.001 to 1,000,000"
_OURS: dict[str, tuple[Callable[[str], Any], str]] = {
    "schema": (
        _schema,
        "it is a name of small letters, digits and _, of up to 40 characters, and no word of SQL",
    ),
    "pool": (_pool, "it is a number of connections from 1 to 1000"),
    "statement_timeout": (_seconds, _SECONDS),
    "lock_timeout": (_seconds, _SECONDS),
    "connect_timeout": (_seconds, _SECONDS),
    "poll": (_seconds, _SECONDS),
    "pgbouncer": (_flag, "it is 1 or 0"),
    "role": (_printable, "it is a word for people who look at pg_stat_activity"),
    "application_name": (_printable, "it is a text of up to 63 characters"),
}


def _read(name: str, value: str) -> Any:
    read, accepted = _OURS[name]
    try:
        return read(value)
    except (ValueError, KeyError):
        raise Invalid("store", f"{name} is {value!r:.60}", accepted) from None


def _check_quoting(url: str) -> None:
    """A # / ? in a password ends it, and what follows would be shown as a path or an option. Nothing is shown here."""
    rest = url.partition("://")[2]
    before, at, _ = rest.partition("?")[0].rpartition("@")
    hosts = re.split("[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    if "#" in rest or (at and "/" in before) or not _HOSTS.fullmatch(hosts):
        rule = "a port is a number; in a password write # / ? @ as %23 %2F %3F %40"
        raise Invalid("store", "the address cannot be taken apart into user, password, host and port", rule)


def _joined(netloc: str, path: str, options: list[tuple[str, str]]) -> str:
    """`urlunsplit` would leave out the slashes where no host is named."""
    return f"postgresql://{netloc}{path}{'?' if options else ''}{urlencode(options, safe='/')}"


def _place(netloc: str, path: str, options: list[tuple[str, str]]) -> str:
    """Host and database in words, for messages."""
    given = dict(options)
    host = netloc.rpartition("@")[2] or given.get("host", "localhost")
    database = unquote(path).removeprefix("/") or given.get("dbname") or given.get("database", "")
    return f"{without_secrets(database)} on {host}" if database else host
