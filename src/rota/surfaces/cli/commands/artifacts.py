"""Commands about artifacts: list what a task left, and get one of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ....domain.model import Artifact
from .. import completing
from ..options import TASK
from ..render import Cell
from ..session import Session, command

if TYPE_CHECKING:
    from ....engine.artifacts import OpenArtifact
    from ...python.client import Queue

STDOUT = "-"


@command(
    name="artifacts",
    examples=[
        "rota artifacts 01997c1e-6b1f-7d61-a6a5-4ed0a1f6cf0e",
        "rota artifacts $ID --json | jq -r .[].name",
    ],
)
@click.argument("task_id", type=TASK, shell_complete=completing.task_ids)
def list_artifacts(session: Session, task_id: str) -> None:
    """What a task has left so far: its result, and what its handler left under a name."""
    found = session.run(lambda queue: queue.artifacts(task_id))
    screen = session.screen
    if session.as_json:
        screen.json(found)
    elif found:
        headings = ["NAME", "TYPE", "SIZE", "LEFT", "SHA-256"]
        screen.table(headings, [_row(session, each) for each in found], yields=("SHA-256", "LEFT"))
    else:
        screen.remark("it has left nothing")


def _row(session: Session, artifact: Artifact) -> list[Cell | str]:
    digest = artifact.digest[:12] if session.screen.is_terminal else artifact.digest
    size = f"{artifact.size:,}" if session.screen.is_terminal else str(artifact.size)
    left = session.screen.clock(artifact.created_at)
    return [Cell(artifact.name, "bold"), artifact.media_type, size, left, Cell(digest, "bright_black")]


@command(
    examples=[
        "rota artifact get $ID report.pdf -o report.pdf",
        "rota artifact get $ID stdout | less",
        "rota artifact get $ID result | jq .pages",
    ]
)
@click.argument("task_id", type=TASK, shell_complete=completing.task_ids)
@click.argument("name")
@click.option("-o", "--output", metavar="FILE", default=STDOUT, help="Where to write it; - is stdout.")
def get(session: Session, task_id: str, name: str, output: str) -> None:
    """Write one artifact of a task to stdout, or to a file. A file is there when all of it is. With a file, --json
    prints what is known of the artifact."""

    async def write(queue: Queue) -> Artifact:
        opened = await queue.open_artifact(task_id, name)
        if output == STDOUT:
            await _to_stdout(session, opened)
        else:
            with session.screen.progress(f"writing {output}", opened.artifact.size, of_bytes=True) as bar:
                await opened.save(output, report=bar.advance)
        return opened.artifact

    written = session.run(write, may_be_long=output == STDOUT)
    if output != STDOUT and session.as_json:
        session.screen.json(written)
    elif output != STDOUT:
        session.screen.remark(f"wrote {written.size:,} bytes to {output}")


async def _to_stdout(session: Session, opened: OpenArtifact) -> None:
    type = opened.artifact.media_type
    if session.screen.is_terminal and not type.startswith("text/") and "json" not in type:
        raise click.UsageError(f"{opened.artifact.name} is {type}, not for a terminal; give -o FILE")
    out = sys.stdout.buffer
    async for piece in opened.chunks():
        out.write(piece)
    out.flush()
