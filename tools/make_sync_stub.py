"""`src/rota/sync.pyi` from `rota.Queue`: every call without `await`, with the same signature and return type.

    python tools/make_sync_stub.py

The signatures are taken as they stand in the source; what they name is imported from where the source
imports it. `tests/unit/test_typed_api.py` fails if the file is not what this would write.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import rota
import rota.sync

STUB = Path(__file__).parent.parent / "src" / "rota" / "sync.pyi"
WIDTH = 110

_HEAD = '''\
"""Made from `rota.Queue` by `python tools/make_sync_stub.py`. Change that, not this."""

'''
_QUEUE = '''
class OpenArtifact:
    """`rota.OpenArtifact`, read through the portal."""

    @property
    def artifact(self) -> Artifact: ...
    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to `stop` (None: the end), in pieces."""

    def read(self) -> bytes:
        """All of it, in memory."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write all of it to a file, which is there when it is whole."""

class Queue:
    """`rota.Queue`, each of its calls made through the portal. What they return is data, or is sync itself."""

    @property
    def tenant(self) -> str: ...
    @property
    def actor(self) -> str: ...
    @property
    def clock(self) -> Clock: ...
    def __enter__(self) -> Queue: ...
    def __exit__(self, *about: object) -> None: ...
    def bind(self, function: rota.TaskFunction[P, R]) -> TaskFunction[P, R]:
        """The function, submitted to this queue: `queue.bind(function).submit(…)`."""
'''
_VARIABLES = """\
P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)
"""
_FUNCTIONS = '''
class TaskFunction(Generic[P, R]):
    """`rota.TaskFunction`, bound to a queue, without `await`."""

    def options(self, *, connection: Any = None, **options: Unpack[SubmitOptions]) -> TaskFunction[P, R]: ...
    def args(self, *args: P.args, **kwargs: P.kwargs) -> rota.Arguments[P]: ...
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
    @overload
    def map(self, items: Iterable[rota.Arguments[P]]) -> list[Handle[R]]: ...
    @overload
    def map(self: _OfOne[A, R], items: Iterable[A]) -> list[Handle[R]]: ...

class _OfOne(Protocol[A_contra, R]):
    def submit(self, item: A_contra, /) -> Handle[R]: ...

class Handle(Generic[R]):
    """`rota.Handle`, without `await`."""

    @property
    def task(self) -> Task: ...
    @property
    def id(self) -> str: ...
    def get(self) -> Task: ...
    def cancel(self, reason: str = "") -> Task: ...
    def result(self, timeout: Duration | None = None) -> R: ...
'''
_STARS: dict[object, str] = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}


class Imports:
    """What the stub must import, gathered from what its annotations name."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self.needs_builtins = False

    def add(self, module: str, name: str) -> None:
        self.names.setdefault(module, set()).add(name)

    def lines(self) -> Iterator[str]:
        """Standard library, a blank line, ours: as the formatter wants them."""
        if self.needs_builtins:
            yield "import builtins"
        theirs = [module for module in sorted(self.names) if not module.startswith("rota")]
        ours = [module for module in sorted(self.names) if module.startswith("rota")]
        yield from map(self._line, theirs)
        yield ""
        yield "import rota"
        yield from map(self._line, ours)

    def _line(self, module: str) -> str:
        names = sorted(self.names[module])
        line = f"from {module} import {', '.join(names)}"
        if len(line) <= WIDTH:
            return line
        return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"


class Annotation(ast.NodeTransformer):
    """An annotation as the stub can say it: aliases of its module written out, `list` not taken for the method."""

    def __init__(self, module: ModuleType, imports: Imports) -> None:
        self._module = module
        self._imports = imports
        self._tree = ast.parse(inspect.getsource(module))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "list":
            self._imports.needs_builtins = True
            return ast.Attribute(ast.Name("builtins"), "list")
        if hasattr(builtins, node.id) or node.id in ("Queue", "OpenArtifact"):
            return node
        for statement in self._tree.body:
            if isinstance(statement, ast.ImportFrom) and node.id in {each.name for each in statement.names}:
                self._imports.add(self._origin(statement), node.id)
                return node
            if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", None) == node.id:
                written_out: ast.expr = self.visit(ast.parse(ast.unparse(statement.value), mode="eval").body)
                return written_out
        raise LookupError(f"{self._module.__name__} does not say where {node.id} comes from")

    def _origin(self, statement: ast.ImportFrom) -> str:
        package = self._module.__name__.split(".")
        base = package[: len(package) - statement.level] if statement.level else []
        return ".".join([*base, *filter(None, [statement.module])])


def stub() -> str:
    """The text of `sync.pyi`."""
    imports = Imports()
    imports.add("rota.engine.clock", "Clock")
    imports.add("collections.abc", "Iterator")
    imports.add("os", "PathLike")
    imports.add("rota.domain.model", "Artifact")
    calls = "".join(_method(name, function, imports) for name, function in queue_calls())
    connect = _signature("connect", rota.sync.connect, imports)
    imports.add("rota.domain.options", "Duration")
    for name in ("Generic", "ParamSpec", "Protocol", "TypeVar", "overload"):
        imports.add("typing", name)
    body = f"{_QUEUE}{textwrap.indent(calls, '    ')}{_FUNCTIONS}\n{connect}: ...\n"
    announced = ", ".join(f'"{name}"' for name in rota.sync.__all__)
    head = "\n".join([*imports.lines(), "", f"__all__ = [{announced}]", "", _VARIABLES])
    return _HEAD + head + body


def queue_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public method of the queue, in the order of its classes: `rota.sync.Queue` has them all."""
    seen: set[str] = set()
    for owner in rota.Queue.__mro__:
        for name, value in vars(owner).items():
            is_call = inspect.isfunction(value) and not name.startswith("_") and name != "bind"
            if is_call and name not in seen:
                seen.add(name)
                yield name, value


def _method(name: str, function: Callable[..., Any], imports: Imports) -> str:
    text = f"{_signature(name, function, imports)}:"
    about = inspect.getdoc(function)
    if not about:
        return f"{text} ...\n"
    quoted = textwrap.indent(f'"""{about}"""', "    ")
    return f"{text}\n{quoted}\n"


def _signature(name: str, function: Callable[..., Any], imports: Imports) -> str:
    """`def name(…) -> …`, one parameter to a line where there are many."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    assert node.returns is not None, f"{name} has no return type"
    annotation = Annotation(sys.modules[function.__module__], imports)
    parts: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        written = _written(node, parameter.name)
        about = "" if written is None else f": {ast.unparse(annotation.visit(written))}"
        parts.append(f"{_STARS.get(parameter.kind, '')}{parameter.name}{about}{_default(parameter)}")
    returned = ast.unparse(annotation.visit(node.returns))
    line = f"def {name}({', '.join(parts)}) -> {returned}"
    if len(line) <= WIDTH - 10:
        return line
    return f"def {name}(\n" + "".join(f"    {part},\n" for part in parts) + f") -> {returned}"


def _written(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    every = [
        *node.args.posonlyargs,
        *node.args.args,
        *node.args.kwonlyargs,
        node.args.vararg,
        node.args.kwarg,
    ]
    return next(argument.annotation for argument in every if argument is not None and argument.arg == name)


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is parameter.empty:
        return ""
    if isinstance(value, str):
        return f' = "{value}"'
    return f" = {value!r}" if value is None or isinstance(value, (bool, int, float)) else " = ..."


if __name__ == "__main__":
    STUB.write_text(stub())
