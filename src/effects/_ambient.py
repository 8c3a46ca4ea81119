"""The clock and randomness as effects: the only place of the packages that touches either.

All are READ: what a step saw is in its receipts, so a resumed step sees it again.
"""

import asyncio
import os
import time
from datetime import UTC, datetime
from uuid import UUID

from ._effect import effect
from ._idempotency import Idempotency


@effect("ambient/now", idempotency=Idempotency.READ)
async def now() -> datetime:
    """The time of day, aware, in UTC."""
    return datetime.now(UTC)


@effect("ambient/monotonic", idempotency=Idempotency.READ)
async def monotonic() -> float:
    """Seconds of a clock that never goes back; the difference of two readings means something in one process only.

    What must be measured across a resume is measured with `now`.
    """
    return time.monotonic()


@effect("ambient/uuid", idempotency=Idempotency.READ)
async def uuid() -> UUID:
    """A random UUID (RFC 9562, version 4)."""
    return UUID(bytes=os.urandom(16), version=4)


@effect("ambient/random_bytes", idempotency=Idempotency.READ)
async def random_bytes(n: int) -> bytes:
    """`n` bytes fit for secrets."""
    return os.urandom(n)


@effect("ambient/sleep", idempotency=Idempotency.READ)
async def sleep(seconds: float) -> None:
    """Lets this much time pass.

    It observes the clock and changes nothing, hence READ and not PURE: a resumed step does not sit out again what it
    has sat out; a sleep that a crash cut short starts anew.
    """
    await asyncio.sleep(seconds)
