"""The ranks' collective: everyone's number to rank 0 and the sum back, over sockets. Blocks like the real one."""

import socket
import struct
import threading
import time
from pathlib import Path

_WORD = struct.Struct("<q")
CONNECT_S = 30.0
RETRY_S = 0.05


class Group:
    """A star around rank 0 over a Unix socket in `folder`."""

    def __init__(self, folder: Path, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        address = str(folder / "group.sock")
        self._peers: list[socket.socket] = []
        if rank == 0:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(address)
                server.listen(ranks)
                server.settimeout(CONNECT_S)
                self._peers = [server.accept()[0] for _ in range(ranks - 1)]
        else:
            self._peers = [_connect(address)]
        for peer in self._peers:
            peer.settimeout(None)

    def all_reduce(self, value: int) -> int:
        """Sum over all ranks. Raises ConnectionError when a peer is gone."""
        if self.rank == 0:
            total = value + sum(_receive(peer) for peer in self._peers)
            for peer in self._peers:
                peer.sendall(_WORD.pack(total))
            return total
        self._peers[0].sendall(_WORD.pack(value))
        return _receive(self._peers[0])


def _connect(address: str) -> socket.socket:
    """Rank 0 may start last; ask again until it listens. Raises TimeoutError after `CONNECT_S`."""
    until = time.monotonic() + CONNECT_S
    while time.monotonic() < until:
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(address)
        except OSError:
            peer.close()
            threading.Event().wait(RETRY_S)
        else:
            return peer
    raise TimeoutError("rank 0 never listened")


def _receive(peer: socket.socket) -> int:
    data = b""
    while len(data) < _WORD.size:
        part = peer.recv(_WORD.size - len(data))
        if not part:
            raise ConnectionError("Connection closed by peer")
        data += part
    value: int = _WORD.unpack(data)[0]
    return value
