"""How commands and questions are written: as functions of a transaction, which are called without it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from ..stores.base import Tx, Work

__all__ = ["as_work"]

P = ParamSpec("P")
T = TypeVar("T")


def as_work(function: Callable[Concatenate[Tx, P], Awaitable[T]]) -> Callable[P, Work[T]]:
    """Called without its `tx`, the function gives a work: `store.read(one_task(tenant, id))`. One that remembers
    something from one run to the next, or makes something before the first, is written out instead."""

    @wraps(function)
    def work_of(*args: P.args, **kwargs: P.kwargs) -> Work[T]:
        return lambda tx: function(tx, *args, **kwargs)

    return work_of
