"""What is an alarm, and who is told of it. Begin with `rules`: when one begins and when it is over. What is sent to
people is in `notices`."""

from .rules import (
    FLEET,
    PATIENCE,
    ROWS,
    Facts,
    Verdict,
    as_facts,
    broken_run,
    checked_rules,
    evaluate,
    merged,
    no_success_since,
    rules_of,
    silenced,
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
    "evaluate",
    "merged",
    "no_success_since",
    "rules_of",
    "silenced",
]
