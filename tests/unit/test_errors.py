"""Errors: they can be carried to another process."""

from __future__ import annotations

import pickle

import pytest

from rota.domain.errors import (
    Conflict,
    Corrupt,
    Invalid,
    NotFound,
    PermanentError,
    Refused,
    RescheduleError,
    RetryableError,
    RotaError,
    TaskFailed,
    Unavailable,
)
from rota.domain.model import Failure


@pytest.mark.parametrize(
    "error",
    [
        Refused("template_disabled", template="x"),
        Invalid("day", "there is none", "give one"),
        NotFound("task", "7"),
        Conflict("changed"),
        Unavailable("away", is_final=True, store="here"),
        Corrupt("at x"),
        PermanentError("never"),
        RetryableError("later", delay_seconds=5),
        RescheduleError(delay_seconds=5),
        TaskFailed("7", "x", "failed", Failure(type="KeyError", message="x", traceback="line 1")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_once_it_was_pickled(error: RotaError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args, again.__dict__) == (
        type(error),
        str(error),
        error.args,
        error.__dict__,
    )
    assert again.code == error.code
