"""What housekeeping could not do. Nobody waits for it, so nobody would notice: it is said in the log of the node, once
for each kind of trouble, and again when it is over."""

from __future__ import annotations

import logging
from enum import StrEnum

from ..domain.errors import StoreError

__all__ = ["Chore", "Troubles"]

log = logging.getLogger("rota")


class Chore(StrEnum):
    """What is to be done; each with what it means that it is not."""

    VIEWS = "views are missing or old"
    ARCHIVE = "what has ended stays in memory, and in each snapshot"
    SNAPSHOT = "the log grows, and nodes take longer to start"
    REMOVAL = "what nobody needs any more stays in the bucket"


class Troubles:
    """Those of one bucket, as far as they have been said."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        self._said: dict[Chore, set[type[StoreError]]] = {}

    def met(self, chore: Chore, error: StoreError) -> None:
        said = self._said.setdefault(chore, set())
        if type(error) not in said:
            said.add(type(error))
            log.warning("housekeeping of %s: %s. Until it works, %s", self._bucket, error, chore.value)

    def over(self, chore: Chore) -> None:
        if self._said.pop(chore, None):
            log.info("housekeeping of %s: %s works again", self._bucket, chore.name.lower())
