"""Whether one call of a workflow comes after another, however long each takes.

The tasks of asyncio are branches. A branch forks another when it creates its task, and goes on after it only if it
waited for nothing of its own meanwhile: then it waited for that branch. Two calls in branches of which neither goes on
after the other may come in one order today, and in another after a crash, when what both waited for is long there.
"""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections.abc import Iterator
from weakref import WeakKeyDictionary

__all__ = ["Branches", "CodeBranch"]


class CodeBranch:
    """A task of asyncio: who forked it, and at which moments it was born, was done, and waited for an answer itself."""

    __slots__ = ("born", "done", "forked_by", "waits")

    def __init__(self, forked_by: CodeBranch | None, born: int) -> None:
        self.forked_by = forked_by
        self.born = born
        self.done: int | None = None
        self.waits: list[int] = []

    def waited_during(self, other: CodeBranch) -> bool:
        assert other.done is not None
        return bisect(self.waits, other.born) < bisect(self.waits, other.done)

    def lineage(self) -> Iterator[CodeBranch]:
        """Itself, who forked it, and so on up to the code of the workflow."""
        found: CodeBranch | None = self
        while found is not None:
            yield found
            found = found.forked_by


class Branches:
    """All branches of one run. Moments are numbers in the order in which things happened."""

    def __init__(self) -> None:
        self._moment = 0
        self._of: WeakKeyDictionary[asyncio.Task[object], CodeBranch] = WeakKeyDictionary()

    def moment(self) -> int:
        self._moment += 1
        return self._moment

    def fork(self, task: asyncio.Task[object], by: asyncio.Task[object] | None) -> None:
        branch = self._of[task] = CodeBranch(self.of(by), self.moment())

        def ended(_: object) -> None:
            branch.done = self.moment()

        task.add_done_callback(ended)

    def of(self, task: asyncio.Task[object] | None) -> CodeBranch | None:
        return None if task is None else self._of.get(task)

    def comes_after(self, here: CodeBranch | None, there: CodeBranch | None, answered: int | None) -> bool:
        """Whether what is called `here` comes after a call that was awaited `there`, and `answered` then."""
        if here is None or there is None or answered is None:
            return False
        ours, theirs = list(here.lineage()), list(there.lineage())
        fork = next(branch for branch in ours if branch in theirs)
        if fork is not there:
            joined = theirs[theirs.index(fork) - 1]
            if joined.done is None or fork.waited_during(joined):
                return False
            answered = joined.done
        return fork is here or ours[ours.index(fork) - 1].born > answered
