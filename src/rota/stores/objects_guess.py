"""Is it worth a request to ask whether there is one more entry?

Before a write, the write itself finds out: it is refused where an entry is. So asking first is a question of cost
alone, and what happened lately tells. Occasions differ (before a commit, at a poll), and so does it how many entries
were read already: a client finds what became of its last task, and then nothing more.
"""

from __future__ import annotations

__all__ = ["Guess"]

_LEARNS = 0.25
_WORTH = 0.1
"""A lost race costs a write and a read, and a write costs as much as ten reads."""

_ASK_ANYWAY = 8


class Guess:
    """How likely there was one more, by occasion and by how many entries had been read. Unknown: even odds."""

    def __init__(self) -> None:
        self._odds: dict[tuple[str, int], float] = {}
        self._unasked: dict[str, tuple[str, int]] = {}
        self._left_out = 0

    def is_worth(self, occasion: str, read: int) -> bool:
        """If not, `answer` is to be called when it turns out."""
        self._unasked.pop(occasion, None)
        if self._odds.get((occasion, read), 0.5) >= _WORTH:
            return True
        self._unasked[occasion] = (occasion, read)
        return False

    def is_worth_now_and_then(self, occasion: str, read: int) -> bool:
        """Where nothing turns out by itself: asked anyway, from time to time."""
        if self.is_worth(occasion, read):
            return True
        self._left_out += 1
        return self._left_out % _ASK_ANYWAY == 0

    def saw(self, occasion: str, read: int, more: bool) -> None:
        odds = self._odds.get((occasion, read), 0.5)
        self._odds[occasion, read] = odds + (more - odds) * _LEARNS

    def answer(self, occasion: str, more: bool) -> None:
        """What was not asked last has turned out."""
        unasked = self._unasked.pop(occasion, None)
        if unasked is not None:
            self.saw(*unasked, more)
