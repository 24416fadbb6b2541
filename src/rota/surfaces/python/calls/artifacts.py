"""The calls of a queue that are about what tasks leave."""

from __future__ import annotations

from ....domain.artifact import check_name
from ....domain.checks import check_key
from ....domain.errors import NotFound
from ....domain.model import Artifact
from ....engine import queries
from ....engine.artifacts import OpenArtifact
from ... import redaction
from .base import Calls


class ArtifactCalls(Calls):
    """List and read the results, texts and files of tasks."""

    async def artifacts(self, task_id: str) -> list[Artifact]:
        """What a task has left so far, by name. What its handler returned comes first, as `result`."""
        found = await self.store.read(queries.artifacts_of(self.tenant, check_key(task_id, "task_id")))
        return [redaction.artifact(each) for each in found]

    async def open_artifact(self, task_id: str, name: str) -> OpenArtifact:
        """One artifact, to be read whole (`read()`), into a file (`save(path)`), or in pieces (`chunks(start, stop)`,
        without ever having all of it in memory)."""
        work = queries.one_artifact(self.tenant, check_key(task_id, "task_id"), check_name(name))
        found = await self.store.read(work)
        if found is None:
            raise NotFound("artifact", name)
        return OpenArtifact(self.store, redaction.artifact(found))
