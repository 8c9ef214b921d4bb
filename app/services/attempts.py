"""Attempts: who keeps showing wrong bearers waits longer and longer for each answer.

The invariant: only a wrong bearer waits. A right one is answered at once, from whatever address: else anybody who
shares an address with the operator (a proxy, a NAT) could lock them out. What keeps a token from being guessed is its
length; the waiting keeps those who try from keeping the server busy.
"""

import asyncio
import ipaddress
import time
from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple

from app.domain import limits
from app.domain.errors import TooManyAttempts

_FIRST_DELAY_SECONDS = 0.25


class _Record(NamedTuple):
    failures: int
    at: float


class Attempts:
    """Counts wrong bearers by address, and delays their answers.

    Args:
        max_delay_seconds: the longest delay.
        max_waiting: how many answers may be delayed at the same time.
        clock: tells seconds that never go back.
    """

    def __init__(
        self,
        *,
        max_delay_seconds: float = limits.LOGIN_DELAY_SECONDS.value,
        max_waiting: int = limits.LOGINS_WAITING.value,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_delay_seconds = max_delay_seconds
        self._max_waiting = max_waiting
        self._clock = clock
        self._waiting = 0
        self._records: dict[str, _Record] = {}  # the address that failed last is the last one

    async def fail(self, address: str) -> None:
        """Note a wrong bearer, and return when it may be answered.

        Raises:
            TooManyAttempts: too many answers are being delayed already.
        """
        delay_seconds = self.note(address)
        if not delay_seconds:
            return
        if self._waiting >= self._max_waiting:
            raise TooManyAttempts(int(self._max_delay_seconds) or 1)
        self._waiting += 1
        try:
            await asyncio.sleep(delay_seconds)
        finally:
            self._waiting -= 1

    def note(self, address: str) -> float:
        """Note a wrong bearer, and tell how many seconds its answer has to wait."""
        key, now = _network_of(address), self._clock()
        before = self._records.pop(key, None)
        is_recent = before is not None and now - before.at < limits.LOGIN_MEMORY_SECONDS.value
        count = before.failures + 1 if before is not None and is_recent else 1
        if len(self._records) >= limits.LOGIN_ADDRESSES.value:
            del self._records[next(iter(self._records))]
        self._records[key] = _Record(count, now)
        over = count - limits.LOGIN_FAILURES.value
        if over <= 0:
            return 0.0
        return min(_FIRST_DELAY_SECONDS * 2.0 ** min(over - 1, 30), self._max_delay_seconds)


def address_of(scope: MutableMapping[str, Any]) -> str:
    """Return the address that a request came from; empty where there is none, as on a Unix socket."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _network_of(address: str) -> str:
    """Return what one client cannot choose freely: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == _IPV6:
        return str(ipaddress.ip_network((parsed, 64), strict=False).network_address)
    return address


_IPV6 = 6
