"""Doing a request once: what was answered is kept with what was done, in the same commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...domain.errors import Refused
from ...domain.model import Receipt
from ...stores.base import Tx, Work

__all__ = ["once"]

T = TypeVar("T")


def once(
    receipt_id: str, tenant: str, fingerprint: str, work: Work[T], answer: Callable[[T], tuple[int, Any]]
) -> Work[tuple[int, Any]]:
    """Do the work and keep its answer (a status and JSON, made by `answer`, which is pure); or, if this was done
    before, only give the answer again. `receipt_id` follows from tenant and key, `fingerprint` from the request: the
    same key for another request is refused. What is refused leaves no receipt."""

    async def wrapped(tx: Tx) -> tuple[int, Any]:
        known = await tx.get(Receipt, receipt_id)
        if known is not None:
            if known.tenant != tenant or known.fingerprint != fingerprint:
                raise Refused("idempotency_reused", receipt=receipt_id)
            return known.status, known.answer
        status, body = answer(await work(tx))
        tx.put(
            Receipt(
                id=receipt_id, tenant=tenant, at=tx.now, fingerprint=fingerprint, status=status, answer=body
            )
        )
        return status, body

    return wrapped
