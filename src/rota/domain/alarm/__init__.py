"""When something is an alarm, and what a notice of it says. Begin with `rules`: when one begins and when it is over.
`notices` has what people are told; `engine/roles/notices.py` sends it."""

from .rules import (
    FLEET,
    PATIENCE,
    ROWS,
    Facts,
    Verdict,
    as_facts,
    broken_run,
    checked_rules,
    ended,
    evaluate,
    failures_since,
    merged,
    no_success_since,
    rules_of,
)

__all__ = [
    "FLEET",
    "PATIENCE",
    "ROWS",
    "Facts",
    "Verdict",
    "as_facts",
    "broken_run",
    "checked_rules",
    "ended",
    "evaluate",
    "failures_since",
    "merged",
    "no_success_since",
    "rules_of",
]
