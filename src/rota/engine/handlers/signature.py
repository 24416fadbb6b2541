"""Where the arguments of a function come from: worked out once, when it is registered.

- A parameter whose type is *injected* (the context, the queue, …) or *provided* by the app gets it, whatever its name.
- `context` gets the context, `input` the whole input.
- The others are filled from the input's fields; if the input has none (it is a text, a number, a list), the first of
  them gets it whole. Of `(input, ctx)` the second is a context by another name, unless its annotation says otherwise.
- What an annotation names is decoded from JSON; without one a value is given as it is stored.

Tasks and workflows differ in what is injected, and in nothing else: both are bound and decoded by a `Signature`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from ...domain.errors import Invalid, PermanentError
from ...domain.options import instead_of
from .conversion import ABSENT, Decoder, FieldsDecoder, decoder, encoded, names_in

Getter = Callable[[Any], Any]
"""From the context of a call, what is injected: `operator.attrgetter("queue")`."""
_EMPTY = inspect.Parameter.empty
_NO_FIELDS: dict[str, Any] = {}
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _Injected:
    """A stand-in for a value until a worker fills it in."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError("a worker fills this parameter in; who calls the function directly must give it")

    def __repr__(self) -> str:
        return "rota.injected"


injected: Any = _Injected()
"""The default of a parameter that is filled by its type. It says to type checkers that callers need not give it."""


class _Field(NamedTuple):
    """A parameter that is filled from the input. `default` is `_EMPTY`: it must be there."""

    name: str
    default: Any
    decode: Decoder | None
    else_context: bool = False


class Signature:
    """The parameters of one function, and what it returns. `provided` are the types that the app makes for it: what is
    made is given to `arguments` by name, as `asks_for` says."""

    def __init__(
        self,
        kind: str,
        function: Callable[..., Any],
        *,
        inject: Mapping[type, Getter],
        provided: Mapping[type, Any] | None = None,
        namespace: Mapping[str, Any] | None = None,
        context_first: bool = False,
    ) -> None:
        """`namespace` has the names that stand where the function is defined, beside those of its module. With
        `context_first` the first parameter gets the context, whatever it is called."""
        self.kind = kind
        self._function = function
        self._injected = inject
        self._provided = provided or {}
        self._context_first = context_first
        self._hints = _Hints(kind, function, namespace or _NO_FIELDS)
        self._resolve(self._hints)

    def arguments(
        self, input: Any, context: Any, provided: Mapping[str, Any] = _NO_FIELDS
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments to call the function with. `PermanentError` says what the input lacks, or what in it does not
        fit."""
        if self._hints.are_missing:
            self.check_resolved()
        try:
            values = self._values(input, context)
        except Invalid as problem:
            raise PermanentError(str(problem)) from None
        for name, get in self._given:
            values[name] = get(context)
        if provided:
            values.update(provided)
        positional = [values.pop(name) for name in self._positional]
        return ([context, *positional] if self._context_first else positional), values

    def check(self, input: Any) -> None:
        """`Invalid`, if the function cannot be called with this input."""
        self.check_resolved()
        self._values(input, None)

    def check_key(self, field: str, name: str) -> None:
        """`Invalid`, if its fields are known, and none has this name."""
        known = self._names()
        if known is not None and name not in known:
            accepted = instead_of(name, known) if known else "leave it out"
            raise Invalid(field, f"the input of {self.kind} has no {name!r}", accepted)

    @property
    def is_resolved(self) -> bool:
        """Whether every name in its annotations is known by now."""
        return not self._hints.are_missing

    def check_resolved(self) -> None:
        """A name that was not there when the function was registered may be there now; it is refused if it is not."""
        if self._hints.are_missing:
            self._hints.are_missing, self._hints.is_last_time = False, True
            self._resolve(self._hints)

    def input_for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The input, as JSON, that calls the function with these arguments; what is injected is left out."""
        self.check_resolved()
        try:
            bound = self._callable_with.bind(*args, **kwargs)
        except TypeError as problem:
            raise Invalid("input", f"{self.kind}: {problem}", f"it takes {self._callable_with}") from None
        values: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            values |= value if self._callable_with.parameters[name].kind in _VARIADIC else {name: value}
        if not self.takes_input:
            input: Any = {name: self._encoded(name, value) for name, value in values.items()}
        elif values.keys() <= {"input"}:
            input = self._encoded("input", values.get("input"))
        else:
            others = ", ".join(sorted(values.keys() - {"input"}))
            raise Invalid(
                others, "the parameter input gets the whole input", "give it there, or name that otherwise"
            )
        self._values(input, None)
        return input

    def filled(self, args: Sequence[Any], kwargs: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
        """The keywords of a direct call, with those that are injected and were left out."""
        if not self._given:
            return kwargs
        given = self._signature.bind_partial(*args, **kwargs).arguments
        return {**{name: get(context) for name, get in self._given if name not in given}, **kwargs}

    def encoded_output(self, output: Any) -> Any:
        """The result of the function, as JSON; as it is, if its annotation says nothing. `Invalid` names the part of it
        that is not what the annotation says."""
        return output if self._returns is None else self._returns.encoded(output, "output")

    def decoded_output(self, output: Any) -> Any:
        """The stored result, as the function returned it."""
        self.check_resolved()
        return output if self._returns is None else self._returns(output, "output")

    @cached_property
    def _returns(self) -> Decoder | None:
        """Made when the first result is there: a class may be defined after the function that returns it. None also for
        a type that JSON cannot become: then the function must return what can be stored."""
        try:
            return decoder(self._hints.if_known(self._signature.return_annotation), "return")
        except (Invalid, NameError):
            return None

    def _values(self, input: Any, context: Any) -> dict[str, Any]:
        is_object = isinstance(input, dict)
        fields = input if is_object else _NO_FIELDS
        values = self._others(fields) if self._takes_any and not self.takes_input else {}
        whole = self._whole if is_object or input is None else self._whole_value
        if whole is not None:
            values[whole.name] = input if whole.decode is None else whole.decode(input, "input")
        found = fields
        if fields and self._read_fields is not None:
            found = self._read_fields(fields)
            if self._has_untyped:
                found = {**fields, **found}
        for field in self._fields:
            if field is whole:
                continue
            name, default, _, else_context = field
            value = found.get(name, ABSENT)
            if value is not ABSENT:
                values[name] = value
            elif else_context and whole is not None:
                values[name] = context
            elif default is not _EMPTY:
                values[name] = default
            else:
                raise self._has_no(name)
        return values

    def _names(self) -> Collection[str] | None:
        """The fields of the input that it asks for; None: there may be any."""
        if self._whole is not None:
            return None if self._whole.decode is None else names_in(self._whole.decode.hint)
        return None if self._takes_any else self._decoders.keys()

    def _others(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """For `**others`: every field that no parameter is named after."""
        decode, taken = self._decode_others, self._taken
        if decode is None:
            return {**fields}
        return {
            name: value if name in taken else decode(value, f"input.{name}") for name, value in fields.items()
        }

    def _encoded(self, name: str, value: Any) -> Any:
        """Without an annotation a value is stored as it is, and must be JSON."""
        typed = self._decoders.get(name, self._decode_others if name not in self._taken else None)
        return value if typed is None else encoded(value, "input" if self.takes_input else f"input.{name}")

    def _has_no(self, name: str) -> Invalid:
        problem = f"the input of {self.kind} has no {name!r}, which its handler asks for"
        return Invalid("input", problem, "name the parameter 'input' to get the whole input")

    # Made at registration

    def _resolve(self, hints: _Hints) -> None:
        try:
            self._signature = inspect.signature(self._function)
        except (TypeError, ValueError) as problem:
            raise Invalid(
                "function", str(problem), "register a function whose parameters are known"
            ) from None
        parameters = list(self._signature.parameters.values())
        if self._context_first:
            del parameters[:1]
        named = [p for p in parameters if p.kind not in _VARIADIC]
        types = {p.name: _class_in(hints.of(p)) for p in named}
        self._given = [
            (p.name, self._injected.get(types[p.name], _itself))
            for p in named
            if types[p.name] in self._injected or p.name == "context"
        ]
        self.asks_for = {p.name: types[p.name] for p in named if types[p.name] in self._provided}
        taken = {name for name, _ in self._given} | self.asks_for.keys()
        plain = [p for p in named if p.name not in taken]
        self.takes_input = any(p.name == "input" for p in plain)
        self._positional = [p.name for p in named if p.kind is p.POSITIONAL_ONLY]
        self._taken = frozenset(types)
        second = next((p for p in named[1:2] if p in plain and hints.allow_context(p)), None)
        self._fields = [self._field(p, hints, else_context=p is second) for p in plain]
        self._decoders = {field.name: field.decode for field in self._fields}
        typed = {each.name: each.decode.hint for each in self._fields if each.decode and each.name != "input"}
        self._read_fields = FieldsDecoder(typed) if typed else None
        self._has_untyped = any(each.decode is None for each in self._fields)
        self._whole = next((field for field in self._fields if field.name == "input"), None)
        self._whole_value = self._whole or next(iter(self._fields), None)
        rest = next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)
        if rest is None:
            self._check_no_others(parameters)
        self._takes_any = rest is not None
        self._decode_others = None if rest is None else self._field(rest, hints).decode
        left_out = second if self.takes_input else None
        asked = [p for p in parameters if (p in plain and p is not left_out) or p is rest]
        self._callable_with = inspect.Signature(asked)

    def _check_no_others(self, parameters: Iterable[inspect.Parameter]) -> None:
        """`*others` alone gets nothing: what is submitted would be left out without a word. Beside `**others` it is
        most often a wrapper, which passes on what has names."""
        for p in parameters:
            if p.kind is p.VAR_POSITIONAL:
                raise Invalid(
                    f"{self.kind}(*{p.name})",
                    "it would get nothing: the values of an input have names",
                    f"write a parameter for each, or {p.name} for a list of them",
                )

    def _field(self, p: inspect.Parameter, hints: _Hints, *, else_context: bool = False) -> _Field:
        name = f"{self.kind}({p.name})"
        if p.default is injected and not hints.are_missing:
            accepted = "annotate it with rota.Context, rota.Queue, rota.Task, or what app.provide(…) offers"
            raise Invalid(name, f"nobody provides {_shown(p.annotation)}", accepted)
        try:
            decode = decoder(hints.of(p), name)
        except NameError as problem:  # in a class that the annotation names
            hints.missing(p, problem)
            decode = None
        return _Field(p.name, p.default, decode, else_context)


class _Hints:
    """The annotations of a function, resolved. One that cannot be (yet) counts as none; if it still cannot be when the
    function is first used, it is refused."""

    def __init__(self, kind: str, function: Callable[..., Any], namespace: Mapping[str, Any]) -> None:
        self._kind = kind
        self._globals = _globals_of(function)
        self._namespace = dict(namespace)
        self.are_missing = False
        self.is_last_time = False

    def of(self, p: inspect.Parameter) -> Any:
        try:
            return self._resolved(p.annotation)
        except Exception as problem:  # evaluating an annotation runs code of the program
            self.missing(p, problem)
            return Any

    def missing(self, p: inspect.Parameter, problem: Exception) -> None:
        if p.name == "context":
            return  # it is known by its name
        self.are_missing = True
        if self.is_last_time:
            accepted = "import it where the function is defined, not only for type checkers"
            name = f"{self._kind}({p.name})"
            raise Invalid(
                name, f"its annotation {p.annotation!r} cannot be resolved: {problem}", accepted
            ) from None

    def allow_context(self, p: inspect.Parameter) -> bool:
        """Whether a second parameter may be a context by another name: it must be given, and be of any type."""
        return p.default is _EMPTY and self.if_known(p.annotation) in (Any, object)

    def if_known(self, annotation: Any) -> Any:
        try:
            return self._resolved(annotation)
        except Exception:  # as above; what nobody can name stays as it is
            return Any

    def _resolved(self, annotation: Any) -> Any:
        if annotation is _EMPTY:
            return Any
        holder = SimpleNamespace(__annotations__={"of": annotation})
        return get_type_hints(holder, self._globals, self._namespace, include_extras=True)["of"]


def _shown(annotation: Any) -> str:
    return (
        "it: it has no annotation"
        if annotation is _EMPTY
        else f"a {getattr(annotation, '__name__', annotation)}"
    )


def _globals_of(function: Any) -> dict[str, Any]:
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if isinstance(function, type):
        function = function.__dict__.get("__init__", function)
    elif not hasattr(function, "__globals__"):  # an object that can be called
        function = inspect.unwrap(type(function).__call__)
    known: dict[str, Any] = getattr(function, "__globals__", _NO_FIELDS)
    return known


def _class_in(hint: Any) -> Any:
    """`Context` of `Context`, `Context | None` and `Annotated[Context, …]`."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        others = [each for each in get_args(hint) if each is not NoneType]
        hint = others[0] if len(others) == 1 else hint
    return hint if isinstance(hint, type) else None


def _itself(context: Any) -> Any:
    return context
