"""Tasks, from submission to archive. Begin with `life`: what happens to a task, and what it becomes by that. How a task
is asked for is in `submission`; what of its history need not be stored, in `shortening`; how many
change alike, in `update`."""

from .life import (
    DEFAULT_MAX_RETRIES,
    LOGS_KEPT,
    NO_LEASE,
    REPLAYABLE,
    Cancelled,
    Completed,
    Defaults,
    Failed,
    Outcome,
    Released,
    Rescheduled,
    archive,
    backoff,
    brought_back,
    cancel,
    check_held,
    claim,
    claim_all,
    claiming,
    completes_alone,
    completing,
    expire,
    is_held_under,
    logged,
    lose,
    may_replay,
    renew,
    replay,
    settle,
    terminate,
)
from .shortening import ShortHistory, is_short_alike, short_history, whole_history
from .submission import Submission, admit, check_submission, later, with_gates
from .update import Update
