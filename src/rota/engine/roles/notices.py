"""Notices of alarms, to where people look: mail, chat, webhooks, through `apprise` (the extra `rota[alarms]`).

An alarm that began or is over waits until its notice is due (`Alarm.tell_at`). A round claims what is due, sends one
message with all of it to each address, and writes down who was told; so a burst is one message, and the fleet sends it
once. A notice that cannot be sent is tried again, ever more seldom. A node that dies in between leaves the claim to run
out: a notice comes at least once. There are at most `per_hour` messages an hour; what is due beyond that waits, and
goes out together.

`apprise` blocks, so it runs in a thread. An address holds secrets: nothing but its scheme is ever shown or stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

from ...domain.alarm import message
from ...domain.errors import Invalid
from ...domain.model import Alarm
from ...stores.base import CommitOptions, Store
from ..commands import claim_notices, record_notices

PATIENCE = timedelta(seconds=60)
NOW = timedelta(0)
_READING = CommitOptions(may_be_stale=True)


def label_of(address: str) -> str:
    """How an address is named: by its scheme, and by a few letters that tell two of them apart."""
    scheme = address.partition(":")[0]
    return f"{scheme} ({sha256(address.encode()).hexdigest()[:6]})"


def check_addresses(addresses: Sequence[str]) -> None:
    """Refuse addresses that `apprise` cannot read, and say so without showing them."""
    try:
        from apprise import Apprise
    except ImportError:
        raise Invalid("alarms.notify", "apprise is not installed", "install rota[alarms]") from None
    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # it would log addresses
    for number, address in enumerate(addresses, 1):
        if not Apprise().add(address):
            scheme = address.partition(":")[0]
            problem = f"address {number} ({scheme:.20}) is none that apprise knows"
            raise Invalid(
                "alarms.notify", problem, "give addresses such as mailto://user:password@example.com"
            )


def send(address: str, title: str, body: str, *, is_over: bool) -> bool:
    """Whether it was taken. Where a service has colours, what is over has another."""
    from apprise import Apprise, NotifyType

    sender = Apprise()
    kind = NotifyType.SUCCESS if is_over else NotifyType.FAILURE
    return bool(sender.add(address) and sender.notify(title=title, body=body, notify_type=kind))


class Notices:
    """A role: tells `addresses` of alarms."""

    def __init__(self, store: Store, addresses: Sequence[str], *, per_hour: int = 12) -> None:
        check_addresses(addresses)
        self._store = store
        self._addresses = {label_of(address): address for address in addresses}
        self._per_hour = per_hour

    async def run_once(self) -> timedelta | None:
        """One message. At once again if one was sent; else when the next is due."""
        claimed = await self._store.transact(claim_notices(self._per_hour), _READING)
        if not claimed.alarms:
            return claimed.next_in
        told = [label for label in self._addresses if await self._tell(label, claimed.alarms)]
        await self._store.transact(record_notices(claimed.alarms, told, tuple(self._addresses)))
        return NOW

    async def _tell(self, label: str, alarms: Sequence[Alarm]) -> bool:
        new = [alarm for alarm in alarms if label not in alarm.told]
        if not new:
            return True
        title, body = message(new)
        try:
            is_over = not any(alarm.is_open for alarm in new)
            async with asyncio.timeout(PATIENCE.total_seconds()):
                return await asyncio.to_thread(send, self._addresses[label], title, body, is_over=is_over)
        except Exception:  # whatever a service does, others are told, and this one again
            return False
