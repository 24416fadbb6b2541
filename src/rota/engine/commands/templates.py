"""Works on templates."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ...domain.limits import check_input, check_key, check_kind, check_queue, check_tags
from ...domain.model import Template
from ...stores.base import Tx, Work
from .shared import limits_of

__all__ = ["save_template"]


def save_template(id: str, tenant: str, fields: dict[str, Any]) -> Work[Template]:
    """Create the template, or replace what it says."""

    async def work(tx: Tx) -> Template:
        limits = await limits_of(tx, tenant)
        old = await tx.get(Template, id)
        new = Template(id=id, tenant=tenant, created_at=tx.now, updated_at=tx.now, **fields)
        checked = replace(
            new,
            alias=check_key(new.alias, "alias"),
            kind=check_kind(new.kind),
            queue=check_queue(new.queue),
            parameters=check_input(new.parameters, limits, "parameters"),
            tags=check_tags(new.tags),
        )
        if old is not None:
            checked = replace(checked, version=old.version, created_at=old.created_at)
        return tx.put(checked)

    return work
