"""One question to NCCL's RAS service (2.24 and later), bounded: `verbose status` on localhost port 28028.

Every process of a host listens on the same port and the kernel picks one, so an answer may belong to another job and
silence may mean that a stopped process was picked. Source: NCCL `src/ras`, docs of 2.24 to 2.30.
"""

import socket
import time

from sentinel.agent.ladder import Taken

ADDRESS = ("127.0.0.1", 28028)
DEADLINE_S = 5.0
ANSWER_BYTES_MAX = 1 << 20


def status(left_s: float, address: tuple[str, int] = ADDRESS) -> Taken:
    """The answer as text; a refused connection means that RAS is off, silence is written down as silence."""
    deadline_s = min(DEADLINE_S, left_s)
    if deadline_s <= 0:
        return Taken(rung="ras", name="ncclras.txt", why="no time left")
    began = time.monotonic()
    answer = b""
    try:
        with socket.create_connection(address, timeout=deadline_s) as client:
            client.sendall(b"verbose status\n")
            while len(answer) < ANSWER_BYTES_MAX and (left := began + deadline_s - time.monotonic()) > 0:
                client.settimeout(left)
                part = client.recv(1 << 16)
                if not part:
                    break
                answer += part
    except TimeoutError:
        answer = answer or b"TimeoutError('timed out')"
    except OSError as error:
        return Taken(rung="ras", name="ncclras.txt", why=f"{address[0]}:{address[1]}: {error.strerror or error}")
    return Taken(rung="ras", name="ncclras.txt", data=answer, took_s=time.monotonic() - began)
