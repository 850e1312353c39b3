"""A bound on the idle connections of one address, so that a single client cannot hold all that the server accepts.

The server library accepts connections and reads them until a request is complete; it bounds all connections together,
and closes a silent one after 30 s. It knows no bound per address, so this looks once a second at the sockets of the
process: of an address with too many idle connections, the surplus is shut down, the longest idle first. A connection is
idle if it had no request since the second before. Closing an idle connection is an ordinary event of HTTP.

Trusted proxies are exempt: their connections are of many clients.
"""

import asyncio
import logging
import os
import socket
import stat
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

from penstock.kernel.http.client_address import TrustedProxies
from penstock.kernel.http.in_flight import InFlight, Peer

log = logging.getLogger(__name__)

SCAN_SECONDS = 1.0
DESCRIPTORS = "/proc/self/fd"
NO_PROXIES = TrustedProxies()


class IdleConnections:
    """Closes the idle connections of an address beyond the most that it may have."""

    def __init__(
        self, port: int, in_flight: InFlight, *, max_per_address: int, proxies: TrustedProxies = NO_PROXIES
    ) -> None:
        self._port = port
        self._in_flight = in_flight
        self._max = max_per_address
        self._proxies = proxies
        self._idle_since: dict[Peer, int] = {}  # the scan that first found the connection idle
        self._scans = count(1)

    async def run(self) -> None:
        """Scan once a second until cancelled."""
        with suppress(FileNotFoundError):  # no list of descriptors on this system: no bound
            while True:
                await asyncio.sleep(SCAN_SECONDS)
                await self.scan()

    async def scan(self) -> int:
        """Close the surplus of idle connections; returns how many."""
        busy = self._in_flight.take_busy()
        closed = await asyncio.to_thread(self._close_surplus, busy)
        if closed:
            log.warning("%d idle connections closed: more than %d of one address", closed, self._max)
        return closed

    def _close_surplus(self, busy: frozenset[Peer]) -> int:
        if len(_list_sockets()) <= self._max:  # the usual case: there cannot be too many
            self._idle_since.clear()
            return 0
        scan, closed = next(self._scans), 0
        known, self._idle_since = self._idle_since, {}
        idle: defaultdict[str, list[Peer]] = defaultdict(list)
        for _, peer in self._connections():
            if peer in busy:
                continue
            self._idle_since[peer] = known.get(peer, scan)
            if peer in known and not self._proxies.trusts(peer[0]):
                idle[peer[0]].append(peer)
        surplus = {
            peer
            for peers in idle.values()
            for peer in sorted(peers, key=self._idle_since.__getitem__)[: max(0, len(peers) - self._max)]
        }
        if surplus:
            for connection, peer in self._connections():
                if peer in surplus:
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                        closed += 1
        return closed

    def _connections(self) -> Iterator[tuple[socket.socket, Peer]]:
        """The connections to our port, each as a duplicate: the descriptor itself may be closed or reused meanwhile."""
        for descriptor in _list_sockets():
            with suppress(OSError), socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as connection:
                name = connection.getsockname()
                if isinstance(name, tuple) and name[1] == self._port:
                    yield connection, connection.getpeername()[:2]


def _list_sockets() -> list[int]:
    """The descriptors of this process that are sockets."""
    with os.scandir(DESCRIPTORS) as entries:
        names = [int(entry.name) for entry in entries]
    return [descriptor for descriptor in names if _is_socket(descriptor)]


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:  # closed meanwhile
        return False
