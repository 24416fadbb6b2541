"""Commands: what a shell or http template runs. A python template has none: its kind names the function.

A task keeps the command that its template had when it was started. Its kind is that of its runtime (`rota.shell`,
`rota.http`), so that only workers that may run such commands claim it; a submission cannot bring a command of its own.

A request is filled with an input: `{{input.x}}` stands for a field of it, `{{input}}` for all of it. What is put in is
encoded for its place: in the url percent-encoded, as one part of the path or of the query; in the body as JSON (a text
that is nothing but a placeholder becomes the value, whatever it is) or as a form. In a header it stands as it is, and
must be one line. `secret:NAME` in a header is a secret of the worker: it is no part of any record. What is put in is
not looked at again.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from ..errors import Invalid

Line = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
# here and below: `$` alone would let a line break at the end pass
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}(?!\n)$")]
ExitCode = Annotated[int, msgspec.Meta(ge=0, le=255)]


class ShellCommand(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="runtime", tag="shell"
):
    """A line for a shell, or a program with its arguments, which no shell sees. It runs in `directory`, with the
    variables of the worker that `environment` names, beside the usual ones. Codes that are in neither list are tried
    again if there are no `retry_codes`, and else fail for good."""

    run: Line | Annotated[tuple[Line, ...], msgspec.Meta(min_length=1, max_length=1000)]
    directory: Annotated[str, msgspec.Meta(min_length=1, max_length=4096, pattern="^/")] | None = None
    environment: Annotated[tuple[Name, ...], msgspec.Meta(max_length=100)] = ()
    success_codes: Annotated[tuple[ExitCode, ...], msgspec.Meta(min_length=1, max_length=256)] = (0,)
    retry_codes: Annotated[tuple[ExitCode, ...], msgspec.Meta(max_length=256)] | None = None


class HttpRequest(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="runtime", tag="http"
):
    """A request. `{{input.x}}` in the url, in headers and in the body stands for a field of the input; `secret:NAME` in
    a header, and as `signing_secret`, for a secret of the worker."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=8000)]
    method: Annotated[str, msgspec.Meta(pattern=r"^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)(?!\n)$")] = "GET"
    headers: Annotated[dict[str, str], msgspec.Meta(max_length=100)] = {}
    body: Any = None
    max_redirects: Annotated[int, msgspec.Meta(ge=0, le=20)] = 5
    signing_secret: (
        Annotated[str, msgspec.Meta(pattern=r"^secret:[A-Za-z_][A-Za-z0-9_]{0,200}(?!\n)$")] | None
    ) = None


Command = ShellCommand | HttpRequest
SHELL_KIND = "rota.shell"
COMMAND_KINDS = {SHELL_KIND: "shell", "rota.http": "http"}
"""By the kind of the tasks that commands become: their runtime."""


def kind_of(command: Command) -> str:
    """The kind of the tasks that it becomes."""
    return SHELL_KIND if isinstance(command, ShellCommand) else "rota.http"


def command_text(command: Command | str) -> str:
    """A command in one line, for people."""
    match command:
        case ShellCommand(run=str(line)):
            return line
        case ShellCommand(run=arguments):
            return " ".join(arguments)
        case HttpRequest():
            return f"{command.method} {command.url}"
        case _:
            return command


FORM = "application/x-www-form-urlencoded"
_BRACES = re.compile(r"\{\{(.*?)\}\}")
_PATH = re.compile(r"\s*input((?:\.[A-Za-z0-9_-]{1,200})*)\s*")
_PART = re.compile(r"\{\{(?P<path>.*?)\}\}|secret:(?P<secret>[A-Za-z_][A-Za-z0-9_]*)")
_SECRET = re.compile(r"secret:[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_OURS = frozenset(("host", "content-length", "transfer-encoding", "connection", "idempotency-key"))
_OF_SIGNATURES = frozenset(("webhook-id", "webhook-timestamp", "webhook-signature"))
_ACCEPTED = "accepted are {{input}} and {{input.field}}"
_ONE_LINE = "give one line of printable ASCII characters"


class FilledRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is sent. `secret_headers` are the names of the headers that hold secrets."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes | None
    secret_headers: frozenset[str]


def check_request(request: HttpRequest) -> None:
    """Refused, if it could never be sent."""
    for text in _texts([request.url, *request.headers.values(), request.body]):
        for found in _BRACES.finditer(text):
            if not _PATH.fullmatch(found[1]):
                raise Invalid("command", f"{found[0]!r:.60} is not a placeholder", _ACCEPTED)
    check_url(request.url, "command.url")
    if brace := re.search(r"[{}]", _BRACES.sub("", request.url)):
        raise Invalid("command.url", f"it holds a {brace[0]} that belongs to no placeholder", _ACCEPTED)
    _check_no_secret(request)
    ours = _OURS if request.signing_secret is None else _OURS | _OF_SIGNATURES
    for name, value in request.headers.items():
        place = "command.headers"
        if not _TOKEN.fullmatch(name) or name.lower() in ours:
            raise Invalid(place, f"{name!r:.60} cannot be set", "give names of headers of your own")
        if not _is_line(value):
            raise Invalid(place, f"{name} is not one line of text", _ONE_LINE)
    if _is_plain_text(request) and _BRACES.search(request.body):
        problem = "a body that is plain text has no placeholders: nothing says how to encode them"
        raise Invalid("command.body", problem, "give JSON, or a form")


def _check_no_secret(request: HttpRequest) -> None:
    """Refused, if a secret stands where it would be sent as it is written. A text that only mentions one may stay."""
    in_url = _SECRET.search(unquote(request.url))
    in_body = next((text for text in _texts([request.body]) if _SECRET.fullmatch(text.strip())), None)
    for field, found in (("command.url", in_url and in_url[0]), ("command.body", in_body)):
        if found is not None:
            raise Invalid(field, f"{found!r:.60} would be sent as it is", "secrets stand in headers only")


def secrets_of(request: HttpRequest) -> set[str]:
    """The names of the secrets that it needs."""
    found = {each["secret"] for value in request.headers.values() for each in _PART.finditer(value)}
    if request.signing_secret is not None:
        found.add(request.signing_secret.removeprefix("secret:"))
    return found - {None}


def fill(request: HttpRequest, input: Any, secrets: Mapping[str, str]) -> FilledRequest:
    """The request for this input; `Invalid`, if the input has not what it asks for or cannot stand where it should."""
    headers = {name: _filled_header(name, value, input, secrets) for name, value in request.headers.items()}
    content_type = _content_type(request)
    content = _content(request, content_type, input)
    if content is not None and content_type == "":
        headers["Content-Type"] = "application/json"
    return FilledRequest(
        method=request.method,
        url=_filled_url(request.url, input),
        headers=headers,
        content=content,
        secret_headers=frozenset(name for name, value in request.headers.items() if "secret:" in value),
    )


def check_url(url: str, field: str) -> None:
    try:
        parts = urlsplit(_BRACES.sub("x", url))
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        raise Invalid(field, f"{url!r:.60} is not a URL", "give one such as https://example.com/x") from None
    origin = re.match(r"[^:/?#]*://[^/?#]*", url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_right or origin is None:
        raise Invalid(field, f"{url!r:.60} is not a URL", "give one such as https://example.com/x")
    if "{{" in origin[0]:
        raise Invalid(field, "its host is a placeholder", "write the host out: inputs choose no server")
    if parts.username is not None or parts.password is not None:
        raise Invalid(field, "it holds credentials", "give a header with secret:NAME instead")
    if "#" in url or not all("!" <= char <= "~" for char in _BRACES.sub("", url)):
        raise Invalid(field, "it holds a blank, a # or a character that is not ASCII", "percent-encode it")


def _filled_url(url: str, input: Any) -> str:
    made = _BRACES.sub(lambda found: quote(_text(_value(found[1], input)), safe=""), url)
    if any(unquote(part) in (".", "..") for part in urlsplit(made).path.split("/")):
        raise Invalid("input", "it would lead to another path of the url", "give no . or .. there")
    return made


def _filled_header(name: str, value: str, input: Any, secrets: Mapping[str, str]) -> str:
    def part(found: re.Match[str]) -> str:
        return _text(_value(found["path"], input)) if found["secret"] is None else secrets[found["secret"]]

    for secret in (each["secret"] for each in _PART.finditer(value) if each["secret"] is not None):
        if not _is_line(secrets[secret]):
            raise Invalid(f"secret:{secret}", f"the header {name} cannot hold it", _ONE_LINE)
    made = _PART.sub(part, value).strip()  # no header begins or ends with a blank
    if not _is_line(made):
        raise Invalid("input", f"the header {name} cannot hold it", _ONE_LINE)
    return made


def _content(request: HttpRequest, content_type: str, input: Any) -> bytes | None:
    if request.body is None:
        return None
    if _is_plain_text(request):
        return str(request.body).encode()
    body = _filled(request.body, input)
    if content_type == FORM and isinstance(body, dict):
        return urlencode({name: _text(value) for name, value in body.items()}).encode()
    return msgspec.json.encode(body)


def _filled(value: Any, input: Any) -> Any:
    if isinstance(value, dict):
        return {name: _filled(part, input) for name, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, input) for part in value]
    if not isinstance(value, str):
        return value
    whole = _BRACES.fullmatch(value)
    if whole is not None and _PATH.fullmatch(whole[1]):
        return _value(whole[1], input)
    return _BRACES.sub(lambda found: _text(_value(found[1], input)), value)


def _value(path: str, input: Any) -> Any:
    found, names = input, path.strip().split(".")[1:]
    for name in names:
        if not isinstance(found, dict) or name not in found:
            raise Invalid(path.strip(), "it is not there, and the request asks for it")
        found = found[name]
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _content_type(request: HttpRequest) -> str:
    given = (value for name, value in request.headers.items() if name.lower() == "content-type")
    return next(given, "").partition(";")[0].strip().lower()


def _is_plain_text(request: HttpRequest) -> bool:
    content_type = _content_type(request)
    return isinstance(request.body, str) and content_type != "" and not content_type.endswith("json")


def _is_line(value: str) -> bool:
    return value.isascii() and value.isprintable()


def _texts(values: list[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from _texts([*value, *value.values()])
        elif isinstance(value, list):
            yield from _texts(value)


_FORMS = {
    "shell": "give a command line, a list of texts, or an object with its fields",
    "http": "give a URL, or an object with the fields of the request",
}
_TYPES: dict[str, type[ShellCommand] | type[HttpRequest]] = {"shell": ShellCommand, "http": HttpRequest}


def check_command(runtime: str, value: object) -> Command:
    """A command from its plain form: a text, a list of texts (an argument list), or its fields by name. Refused, if it
    could never run."""
    wanted = _TYPES[runtime]
    given = _fields(runtime, value)
    if given.get("runtime", runtime) != runtime:
        raise Invalid("command.runtime", f"the template's runtime is {runtime}", "leave it out")
    names = {each.name for each in msgspec.structs.fields(wanted)}
    for name in given.keys() - names - {"runtime"}:
        accepted = f"accepted are {', '.join(sorted(names))}"
        raise Invalid(f"command.{name}", f"a {runtime} command has no such field", accepted)
    try:
        made = msgspec.convert({name: given[name] for name in names & given.keys()}, wanted)
    except msgspec.ValidationError as problem:
        what, _, place = str(problem).partition(" - at `$")
        raise Invalid(f"command{place.rstrip('`')}", _in_words(what[:1].lower() + what[1:])) from None
    if isinstance(made, ShellCommand):
        _check_shell(made)
    else:
        check_request(made)
    return made


_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_TYPE = re.compile(rf"`((?:{'|'.join(_WORDS)})(?: \| (?:{'|'.join(_WORDS)}))*)`")
_PATTERNS = {
    "^/": "that begins with /",
    r"^[A-Za-z_][A-Za-z0-9_]{0,254}(?!\n)$": "of letters, digits and _ that does not begin with a digit",
    r"^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)(?!\n)$": "that is GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS",
    r"^secret:[A-Za-z_][A-Za-z0-9_]{0,200}(?!\n)$": "such as secret:NAME",
}


def _in_words(problem: str) -> str:
    """A sentence of msgspec's, such as "expected `str | array`, got `int`", without names of types and patterns."""
    said, matching, pattern = problem.partition(" matching regex ")
    if matching:
        said += f" {_PATTERNS.get(literal_eval(pattern), 'of another form')}"
    return _TYPE.sub(lambda found: " or ".join(_WORDS[each] for each in found[1].split(" | ")), said)


def _fields(runtime: str, value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if not isinstance(value, str | list | tuple) or (runtime == "http" and not isinstance(value, str)):
        raise Invalid("command", f"{value!r:.60} is not accepted", _FORMS[runtime])
    if runtime == "shell":
        return {"run": value}
    assert isinstance(value, str), "as was checked above"
    method, blank, url = value.partition(" ")
    return {"method": method, "url": url.strip()} if blank and method.isalpha() else {"url": value}


def _check_shell(command: ShellCommand) -> None:
    texts = (command.run,) if isinstance(command.run, str) else command.run
    if any("\0" in text for text in (*texts, command.directory or "")):
        raise Invalid("command", "it holds a NUL character", "no program can be given one")
    if not texts[0].strip():
        raise Invalid(
            "command", "it is empty", "give a command line, or a list: the program and its arguments"
        )
    both = set(command.success_codes) & set(command.retry_codes or ())
    if both:
        raise Invalid("command.retry_codes", f"{min(both)} is a success code, too", "give each code once")
